"""Inference, interactive and build workloads precede training in their project, up to the quota.

Only these workloads and non-preemptible ones count against the quota here, preemptible training
does not. So training never blocks a session within the quota, and such a session is never evicted
for training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add, le, sub
from typing import Final

from extender.policy.queues.queue import Queue
from extender.policy.queues.tree import PoolQueues, held_pool
from extender.policy.workloads.gangs import live_pods
from extender.state.model import NOTHING, Amounts, WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.tally import held_amounts, sum_amounts

#: Workload kinds that precede training, as long as they are within their project's quota.
FIRST_KINDS: Final = ("inference", "interactive", "build")


@dataclass(slots=True)
class _Project:
    """Workloads of the first kinds and non-preemptible ones of a project in a node pool.

    `held_by` is the allocation by workload key. `running` has the preemptible ones that run,
    `held_by_others` is the allocation of all others. Requests in MiB are measured on `card_mib`,
    the pool's smallest card.
    """

    queue: Queue
    card_mib: int
    held_by: dict[str, Amounts] = field(default_factory=dict)
    held_by_others: Amounts = NOTHING
    running: dict[str, WorkloadView] = field(default_factory=dict)
    _first: dict[str, WorkloadView] | None = None
    _first_size: Amounts = NOTHING
    _before: dict[int, Amounts] = field(default_factory=dict)
    _ranked: list[tuple[WorkloadView, Amounts]] = field(default_factory=list)

    def count(self, key: str, amounts: Amounts) -> None:
        """Add to the allocation of the workload."""
        self.held_by[key] = _plus(self.held_by.get(key, NOTHING), amounts)
        if key not in self.running:
            self.held_by_others = _plus(self.held_by_others, amounts)
            # As long as all of these fit, the others do not change which workloads they are.
            if self._first and not self._fits(_plus(self.held_by_others, self._first_size)):
                self._first = None

    def first(self) -> Mapping[str, WorkloadView]:
        """The workloads of `running` that precede training."""
        if self._first is None:
            self._first, total = {}, self.held_by_others
            self._before.clear()
            self._ranked = self._ranked or [
                (each, size_of(each, self.card_mib))
                for each in sorted(self.running.values(), key=by_priority)
            ]
            for each, size in self._ranked:
                more = _plus(total, size)
                if self._fits(more):
                    total, self._first[each.key] = more, each
            self._first_size = _minus(total, self.held_by_others)
        return self._first

    def size_before(self, priority: int) -> Amounts:
        """The sizes of all in `first` with this priority or a higher one."""
        first = self.first()
        if priority not in self._before:
            sizes = (
                size
                for each, size in self._ranked
                if each.key in first and each.priority >= priority
            )
            self._before[priority] = sum_amounts(sizes)
        return self._before[priority]

    def _fits(self, amounts: Amounts) -> bool:
        """Whether the amounts are within the project's quota."""
        return all(map(le, amounts, self.queue.quota))


@dataclass(slots=True, eq=False)
class FirstKinds:
    """Workloads of the first kinds and non-preemptible ones, by project and node pool."""

    snapshot: Snapshot
    queues: Mapping[str, PoolQueues]
    _projects: dict[Queue, _Project] | None = None
    _started: list[tuple[Queue, str, Amounts]] = field(default_factory=list)

    def start(self, workload: WorkloadView, leaf: Queue, amounts: Amounts) -> None:
        """The workload is placed in this cycle."""
        if not _is_counted(workload):
            return
        if self._projects is None:
            self._started.append((leaf.project, workload.key, amounts))
        else:
            self._of(leaf.project).count(workload.key, amounts)

    def is_first(self, workload: WorkloadView, project: Queue) -> bool:
        """Whether the workload precedes training of its project.

        It must be of a first kind and fit the quota with all its pods, beside non-preemptible
        workloads and those of the first kinds before it: by priority, then running before pending,
        then by age.
        """
        if workload.kind not in FIRST_KINDS:
            return False
        of = self._of(project)
        if workload.key in of.running:
            return workload.key in of.first()
        before = _plus(of.held_by_others, of.size_before(workload.priority))
        total = _plus(before, size_of(workload, of.card_mib))
        total = _minus(total, of.held_by.get(workload.key, NOTHING))
        return all(map(le, total, project.quota))

    def _of(self, project: Queue) -> _Project:
        if self._projects is None:
            self._projects = {}
            for workload in self.snapshot.workloads.values():
                if _is_counted(workload):
                    self._read(workload)
            for queue, key, amounts in self._started:
                self._of(queue).count(key, amounts)
        found = self._projects.get(project)
        if found is None:
            pools = (q for q in self.queues.values() if q.by_name.get(project.name) is project)
            found = self._projects[project] = _Project(project, next(pools).smallest_card_mib)
        return found

    def _read(self, workload: WorkloadView) -> None:
        for pod in live_pods(workload):
            pool = held_pool(self.snapshot, pod)
            queues = self.queues.get(pool)
            leaf = queues.leaf_of(workload) if queues is not None else None
            if queues is not None and leaf is not None:
                of = self._of(leaf.project)
                if workload.is_preemptible:
                    of.running[workload.key] = workload
                of.count(workload.key, held_amounts(pod, queues.smallest_card_mib))


def size_of(workload: WorkloadView, card_mib: int) -> Amounts:
    """The allocation once all pods run; requests in MiB are measured on `card_mib`."""
    pods = (pod for pod in workload.pods if not pod.is_terminating)
    return sum_amounts(held_amounts(pod, card_mib) for pod in pods)


def by_priority(workload: WorkloadView) -> tuple[int, int, str]:
    """Sort key: the highest priority first, then the oldest."""
    return -workload.priority, workload.created_at, workload.key


def _plus(one: Amounts, other: Amounts) -> Amounts:
    gpu, cpu, memory = map(add, one, other)
    return gpu, cpu, memory


def _minus(one: Amounts, other: Amounts) -> Amounts:
    gpu, cpu, memory = map(sub, one, other)
    return gpu, cpu, memory


def _is_counted(workload: WorkloadView) -> bool:
    return workload.kind in FIRST_KINDS or not workload.is_preemptible
