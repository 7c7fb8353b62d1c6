"""Writes what users see: shares in queue statuses, conditions of pod groups, events on pods.

Reports never decide anything. A status is written when it has changed, and at most once a second;
figures of many queues take turns. `is_behind` requests another report soon. A report costs one pass
over the workloads and cards, and work for what has changed since the last.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from extender.api.events import Upserted
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuProject, MonthUse, QueueStatus
from extender.api.reasons import Reason
from extender.cycle.keepers.own_groups import OwnGroups
from extender.cycle.metrics import PENDING, POOLS, QUEUES, REPLICAS
from extender.cycle.past_use import PastUseKeeper
from extender.cycle.pod_events import PodEvents
from extender.cycle.pool_metrics import PoolSums, pool_sums
from extender.cycle.reports.budgets import Used, month_uses, within_budget
from extender.cycle.reports.conditions import observed
from extender.cycle.reports.figure_turns import NewStatus, due
from extender.cycle.reports.group_status import ended_status, group_status
from extender.cycle.reports.placed import PlacedConditions
from extender.cycle.reports.queue_status import (
    PodCounts,
    over_quota,
    pool_statuses,
    queue_status,
    shares_of,
    validity,
    why_empty,
    why_without_pods,
)
from extender.cycle.reports.seen import Seen
from extender.cycle.reports.wait_events import WaitEvents
from extender.cycle.writes import write_all
from extender.kube.backoff import Backoff
from extender.kube.client import Client
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.kube.resources import DEPARTMENTS, NODE_POOLS, POD_GROUPS, PROJECTS, Resource
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.model import department_queue
from extender.state.nodes import NodeTable
from extender.state.problems import Problem
from extender.state.snapshot import Snapshot

#: Seconds between two reports.
STATUS_PERIOD_S: Final = 1.0

log = structlog.get_logger(__name__)


class Reporter:
    """Writes statuses and events; remembers its last writes to objects that still exist."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        recorder: EventRecorder,
        past_use: PastUseKeeper,
        month_used: Callable[[int], Used],
    ) -> None:
        """`month_used` returns projects' use in the month of a time, from the usage books."""
        self._client = client
        self._state = state
        self._recorder = recorder
        self._past_use = past_use
        self._month_used = month_used
        self._seen = Seen()
        #: The status written last, and the time of the last write attempt.
        self._written: dict[tuple[str, str], tuple[msgspec.Struct | None, float]] = {}
        self._placed = PlacedConditions(client, state)
        self._events = PodEvents(state, recorder)
        self._own_groups = OwnGroups(client, state, self._events)
        self._wait_events = WaitEvents(state)
        self._problems: frozenset[Problem] = frozenset()
        self._looked_at = float("-inf")
        #: When everything is examined again because a write failed.
        self._retry_at = float("inf")
        self._backoff = Backoff(STATUS_PERIOD_S)
        self.is_behind = False

    async def report(self, plan: Plan) -> None:
        """Write every status that has changed; at most once a period."""
        now = asyncio.get_running_loop().time()
        self.is_behind = now - self._looked_at < STATUS_PERIOD_S
        if self.is_behind:
            return
        since_last_s, self._looked_at = now - self._looked_at, now
        if now >= self._retry_at:
            self._retry_at = float("inf")
            self._seen.forget()
        snapshot = self._state.snapshot(int(time.time()))
        changed = self._seen.look(snapshot, plan)
        problems, sums = self._state.problems(), pool_sums(snapshot)
        by_object = _by_object(problems)
        all_well = await self._own_groups.keep(snapshot, changed, now)
        statuses = [
            *self._pool_statuses(sums, by_object, snapshot.nodes),
            *self._group_statuses(snapshot, plan, changed),
        ]
        queues = self._new_queue_statuses(snapshot, plan, by_object)
        queues_due = due(queues, since_last_s)
        writes = [
            *(self._write(each.target, each.status, now) for each in queues_due),
            *(self._write(*each, now) for each in statuses if self._is_new(*each)),
        ]
        all_well &= await write_all(writes, what="status")
        self.is_behind |= len(queues_due) < len(queues)
        self._note_failures(now, all_well=all_well)
        self._forget_gone()
        self._tell_problems(problems)
        self._count_waits(plan)
        QUEUES.look(plan, snapshot)
        POOLS.look(plan, snapshot, sums)
        REPLICAS.look(plan, snapshot)
        self.is_behind |= await self._placed.write(snapshot, plan, changed, now)
        for note in self._wait_events.due(snapshot, plan, now):
            self._events.tell(note.pod, note.reason, note.note, owner_note=note.owner_note)

    def _note_failures(self, now: float, *, all_well: bool) -> None:
        """If a write failed, examine everything again after a delay that grows while writes fail:
        one that the API server always refuses must not cost a whole pass each second."""
        if self._retry_at == float("inf"):
            if all_well:
                self._backoff.reset()
            else:
                self._retry_at = now + self._backoff.next_s()
        self.is_behind |= self._retry_at <= now + STATUS_PERIOD_S

    def _forget_gone(self) -> None:
        """Forget writes to deleted objects, if there are any."""
        lists = self._lists().values()
        if len(self._written) > sum(map(len, lists)):
            self._written = {
                (plural, name): written
                for (plural, name), written in self._written.items()
                if name in self._lists()[plural]
            }

    def _group_statuses(
        self, snapshot: Snapshot, plan: Plan, changed: Iterable[str]
    ) -> Iterable[tuple["_Target", msgspec.Struct]]:
        for key in changed:
            group, workload = self._state.pod_groups.get(key), snapshot.workloads.get(key)
            if group is None or (workload is not None and not workload.is_group):
                continue
            meta = group.metadata
            target = _Target(POD_GROUPS, meta.name, meta.namespace)
            if workload is None:
                yield target, ended_status(group.status)
            else:
                status = group_status(workload, plan.waits.get(key), group.status)
                status.observed_generation = meta.generation
                status.conditions = observed(status.conditions, meta.generation)
                yield target, status

    # -- queues and node pools ---------------------------------------------------------------

    def _new_queue_statuses(
        self, snapshot: Snapshot, plan: Plan, problems: "_Problems"
    ) -> list[NewStatus["_Target"]]:
        new = []
        for target, status in self._queue_statuses(snapshot, plan, problems):
            if self._is_new(target, status):
                stored = self._stored(target)
                before = stored if isinstance(stored, QueueStatus) else None
                _, tried_at = self._written.get(target.key, (None, float("-inf")))
                new.append(NewStatus(target, status, before, tried_at))
        return new

    def _queue_statuses(
        self, snapshot: Snapshot, plan: Plan, problems: "_Problems"
    ) -> Iterable[tuple["_Target", QueueStatus]]:
        shares, pods = shares_of(plan.shares), self._seen.pods_of_queues(snapshot)
        departments: Iterable[tuple[Resource[Any], str, GpuDepartment | GpuProject]] = (
            (DEPARTMENTS, department_queue(name), each)
            for name, each in self._state.departments.items()
        )
        projects = ((PROJECTS, name, each) for name, each in self._state.projects.items())
        used = self._month_used(snapshot.now_s)
        for resource, queue, each in (*departments, *projects):
            name = each.metadata.name
            found = problems.get((type(each).__name__, name), ())
            conditions = validity(found, each.status.conditions, why_without_pods(each))
            counts, past = pods.get(queue, PodCounts()), self._past_use.of_queue(queue)
            months: dict[str, MonthUse] = {}
            if isinstance(each, GpuProject):
                months = month_uses(each, used, snapshot.now_s)
                conditions += within_budget(each, months, each.status.conditions)
            status = queue_status(shares.get(queue, ()), counts, conditions, past, months)
            status.observed_generation = each.metadata.generation
            conditions.append(over_quota(status, each.status.conditions))
            status.conditions = observed(conditions, each.metadata.generation)
            yield _Target(resource, name), status

    def _pool_statuses(
        self,
        sums: Mapping[str, PoolSums],
        problems: "_Problems",
        nodes: NodeTable,
    ) -> Iterable[tuple["_Target", msgspec.Struct]]:
        for name, status in pool_statuses(sums).items():
            pool = self._state.node_pools.get(name)
            if pool is not None:
                found = problems.get((GpuNodePool.__name__, name), ())
                generation = pool.metadata.generation
                status.observed_generation = generation
                note = "" if status.nodes else why_empty(pool, nodes.labels, nodes.pool)
                conditions = validity(found, pool.status.conditions, note)
                status.conditions = observed(conditions, generation)
                status.past = self._past_use.of_pool(name)
                yield _Target(NODE_POOLS, name), status

    # -- writing -----------------------------------------------------------------------------

    def _is_new(self, target: "_Target", status: msgspec.Struct) -> bool:
        """Whether the API server does not have this status yet, as far as we know."""
        written, _ = self._written.get(target.key, (None, 0.0))
        return status not in (self._stored(target), written)

    def _stored(self, target: "_Target") -> msgspec.Struct | None:
        plural, name = target.key
        known = self._lists()[plural].get(name)
        return known.status if known else None

    def _lists(self) -> Mapping[str, Mapping[str, Any]]:
        """All objects with a status of ours, by plural and key."""
        state = self._state
        return {
            DEPARTMENTS.plural: state.departments,
            PROJECTS.plural: state.projects,
            NODE_POOLS.plural: state.node_pools,
            POD_GROUPS.plural: state.pod_groups,
        }

    async def _write(self, target: "_Target", status: msgspec.Struct, now: float) -> None:
        before, _ = self._written.get(target.key, (None, now))
        self._written[target.key] = before, now
        written = await self._client.merge_patch(
            target.resource,
            target.name,
            {"status": msgspec.to_builtins(status)},
            namespace=target.namespace,
            subresource="status",
        )
        self._written[target.key] = status, now
        self._state.apply(Upserted(written))

    # -- events ------------------------------------------------------------------------------

    def _tell_problems(self, problems: list[Problem]) -> None:
        """Record one event for each new problem."""
        found = frozenset(problems)
        for problem in sorted(found - self._problems):
            uid = self._uid_of(problem)
            version = "v1" if problem.kind == "Node" else PROJECTS.api_version
            reference = ObjectRef(version, problem.kind, problem.name, "", uid)
            self._recorder.record(reference, Reason(problem.fault), str(problem), "Warning")
            log.warning("invalid object", problem=str(problem))
        self._problems = found

    def _uid_of(self, problem: Problem) -> str:
        if problem.kind == "Node":
            return problem.name  # as in kubelet's own events
        known = self._lists()[f"{problem.kind.lower()}s"].get(problem.name)
        return known.metadata.uid if known else ""

    def _count_waits(self, plan: Plan) -> None:
        counts = Counter(refused.reason for refused in plan.waits.values())
        for reason in Reason:
            PENDING.labels(reason).set(counts[reason])


class _Target(msgspec.Struct, frozen=True):
    resource: Resource[Any]
    name: str
    namespace: str = ""

    @property
    def key(self) -> tuple[str, str]:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return self.resource.plural, name


#: The mistakes in each object, by its kind and name.
_Problems = Mapping[tuple[str, str], Sequence[Problem]]


def _by_object(problems: Iterable[Problem]) -> _Problems:
    found: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        found.setdefault((problem.kind, problem.name), []).append(problem)
    return found
