"""Inference, interactive and build work precedes training in its project, up to the quota.

What counts against the quota here is what such work and non-preemptible work of the project hold,
not its preemptible training: training never keeps a session from its place, and a session within
the quota is never evicted for training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.policy.queues.tree import PoolQueues, Queue, held_amounts, held_pool, sum_amounts
from extender.policy.workloads.gangs import live_pods
from extender.state.model import Amounts, WorkloadView
from extender.state.snapshot import Snapshot

#: Kinds of work that precede training, as long as they are within their project's quota.
FIRST_KINDS: Final = ("inference", "interactive", "build")


@dataclass(slots=True, eq=False)
class FirstKinds:
    """What work of the first kinds and non-preemptible work hold, by project and node pool."""

    snapshot: Snapshot
    queues: Mapping[str, PoolQueues]
    _held: dict[Queue, list[int]] | None = None
    _started: list[tuple[Queue, Amounts]] = field(default_factory=list)

    def held(self, project: Queue) -> Amounts:
        """By the project in the pool of this queue; the first call costs a pass over all work."""
        if self._held is None:
            self._held = {}
            for workload in self.snapshot.workloads.values():
                if _is_counted(workload):
                    self._count(workload)
            for queue, amounts in self._started:
                self._add(queue, amounts)
        gpu, cpu, memory = self._held.get(project, (0, 0, 0))
        return gpu, cpu, memory

    def start(self, workload: WorkloadView, leaf: Queue, amounts: Amounts) -> None:
        """The workload is given places in this cycle."""
        if not _is_counted(workload):
            return
        if self._held is None:
            self._started.append((leaf.project, amounts))
        else:
            self._add(leaf.project, amounts)

    def _count(self, workload: WorkloadView) -> None:
        for pod in live_pods(workload):
            pool = held_pool(self.snapshot, pod)
            queues = self.queues.get(pool)
            leaf = queues.leaf_of(workload) if queues is not None else None
            if queues is not None and leaf is not None:
                self._add(leaf.project, held_amounts(pod, queues.smallest_card_mib))

    def _add(self, project: Queue, amounts: Amounts) -> None:
        assert self._held is not None
        held = self._held.setdefault(project, [0, 0, 0])
        for resource, amount in enumerate(amounts):
            held[resource] += amount


def size_of(workload: WorkloadView) -> Amounts:
    """What the workload holds once all its pods run; requests in MiB count as nothing."""
    return sum_amounts(held_amounts(pod, 0) for pod in workload.pods if not pod.is_terminating)


def _is_counted(workload: WorkloadView) -> bool:
    return workload.kind in FIRST_KINDS or not workload.is_preemptible
