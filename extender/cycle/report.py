"""What people see: shares in the status of queues, conditions of pod groups, events on pods.

Reports never decide anything. A status is written when it differs from what was written last, and
not more often than once a second; `is_behind` asks for another look when something is due.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from extender.api.events import Upserted
from extender.api.kinds import (
    NodePoolStatus,
    PodGroupStatus,
    PoolUse,
    QueueStatus,
    QueueSummary,
)
from extender.api.objects import Condition
from extender.api.reasons import SENTENCES, Reason, Refused
from extender.api.units import format_gpus
from extender.cycle.metrics import PENDING
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, KubeError, NotLeading
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.kube.resources import DEPARTMENTS, NODE_POOLS, POD_GROUPS, PROJECTS, Resource
from extender.policy.plan import Plan, QueueShare
from extender.state.cluster import ClusterState
from extender.state.model import GPU, Snapshot, WorkloadView, department_queue

#: Seconds between two looks.
STATUS_PERIOD_S: Final = 1.0
_WRITES_AT_ONCE: Final = 16

log = structlog.get_logger()


class Reporter:
    """Writes statuses and events; keeps what it wrote last so that nothing is written twice."""

    def __init__(self, client: Client, state: ClusterState, recorder: EventRecorder) -> None:
        self._client = client
        self._state = state
        self._recorder = recorder
        self._written: dict[tuple[str, str], bytes] = {}
        self._conditions: dict[str, Condition] = {}
        self._told: dict[str, Reason] = {}
        self._looked_at = float("-inf")
        self.is_behind = False

    async def report(self, plan: Plan) -> None:
        """Bring every status that changed up to date; at most once a period, O(pods)."""
        now = asyncio.get_running_loop().time()
        self.is_behind = now - self._looked_at < STATUS_PERIOD_S
        if self.is_behind:
            return
        self._looked_at = now
        snapshot = self._state.snapshot(int(time.time()))
        await self._make_groups(snapshot)
        writes = [
            *_queue_writes(PROJECTS, snapshot, plan),
            *_queue_writes(DEPARTMENTS, snapshot, plan),
            *self._pool_writes(snapshot),
            *self._group_writes(snapshot, plan),
        ]
        limit = asyncio.Semaphore(_WRITES_AT_ONCE)

        async def write(target: "_Target", status: Any) -> None:
            async with limit:
                await self._write(target, status)

        async with asyncio.TaskGroup() as tasks:
            for target, status in writes:
                tasks.create_task(write(target, status))
        self._tell_waits(snapshot, plan)

    async def _make_groups(self, snapshot: Snapshot) -> None:
        """A group that only pods name gets its PodGroup, so that there is somewhere to look."""
        for workload in snapshot.workloads.values():
            if not workload.is_group or workload.key in self._state.pod_groups:
                continue
            body = {
                "metadata": {"name": workload.name, "namespace": workload.namespace},
                "spec": {"minMember": workload.min_member},
            }
            try:
                group = await self._client.create(POD_GROUPS, body, namespace=workload.namespace)
            except AlreadyExists:
                continue
            except KubeError as error:
                log.warning("pod group not made", group=workload.key, error=str(error))
                continue
            self._state.apply(Upserted(group))

    async def _write(self, target: "_Target", status: Any) -> None:
        key, body = target.key, msgspec.json.encode(status)
        if self._written.get(key) == body:
            return
        try:
            await self._client.merge_patch(
                target.resource,
                target.name,
                {"status": msgspec.to_builtins(status)},
                namespace=target.namespace,
                subresource="status",
            )
        except NotLeading:
            raise
        except KubeError as error:
            log.warning("status not written", object=target.name, error=str(error))
            self.is_behind = True
            return
        self._written[key] = body

    def _pool_writes(self, snapshot: Snapshot) -> list[tuple["_Target", NodePoolStatus]]:
        return [
            (_Target(NODE_POOLS, name), status)
            for name, status in _pool_statuses(snapshot).items()
            if name in self._state.node_pools
        ]

    def _group_writes(
        self, snapshot: Snapshot, plan: Plan
    ) -> list[tuple["_Target", PodGroupStatus]]:
        return [
            (
                _Target(POD_GROUPS, workload.name, workload.namespace),
                self._group_status(workload, plan.waits.get(workload.key)),
            )
            for workload in snapshot.workloads.values()
            if workload.is_group and workload.key in self._state.pod_groups
        ]

    def _group_status(self, workload: WorkloadView, wait: Refused | None) -> PodGroupStatus:
        n_bound = sum(pod.state == "bound" for pod in workload.pods)
        n_reserved = sum(pod.state == "reserved" for pod in workload.pods)
        if n_bound >= workload.min_member:
            status, reason = "True", Reason.SCHEDULED
        elif n_bound + n_reserved >= workload.min_member:
            status, reason = "False", Reason.RESERVED
        else:
            status, reason = "False", wait.reason if wait else Reason.WAITING_FOR_TURN
        return PodGroupStatus(
            pending=len(workload.pods) - n_bound,
            scheduled=n_bound,
            running=sum(pod.started_at > 0 for pod in workload.pods),
            conditions=[self._condition(workload.key, status, reason, wait)],
        )

    def _condition(self, key: str, status: str, reason: Reason, wait: Refused | None) -> Condition:
        before = self._conditions.get(key)
        if before and before.status == status:
            since = before.last_transition_time
        else:
            since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = wait.detail if wait and wait.detail else SENTENCES[reason]
        condition = Condition(
            type="Scheduled",
            status=status,
            reason=reason,
            message=message,
            last_transition_time=since,
        )
        self._conditions[key] = condition
        return condition

    def _tell_waits(self, snapshot: Snapshot, plan: Plan) -> None:
        """One event for each workload whose reason to wait is new."""
        counts: dict[Reason, int] = {}
        for key, refused in plan.waits.items():
            counts[refused.reason] = counts.get(refused.reason, 0) + 1
            if self._told.get(key) == refused.reason:
                continue
            self._told[key] = refused.reason
            workload = snapshot.workloads.get(key)
            if workload and workload.pods:
                self._recorder.record(_reference(workload), refused.reason, str(refused), "Warning")
        for key in [key for key in self._told if key not in plan.waits]:
            del self._told[key]
        for reason in Reason:
            PENDING.labels(reason).set(counts.get(reason, 0))


class _Target(msgspec.Struct, frozen=True):
    resource: Resource[Any]
    name: str
    namespace: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.resource.plural, f"{self.namespace}/{self.name}"


def _queue_writes(
    resource: Resource[Any], snapshot: Snapshot, plan: Plan
) -> list[tuple[_Target, QueueStatus]]:
    """The status of every department or project."""
    is_top = resource is DEPARTMENTS
    by_queue: dict[str, list[tuple[str, QueueShare]]] = {
        name: [] for name, view in snapshot.queues.items() if (view.parent == "") == is_top
    }
    for (queue, pool), share in sorted(plan.shares.items()):
        if queue in by_queue:
            by_queue[queue].append((pool, share))
    pods = _count_pods(snapshot, is_top)
    return [
        (
            _Target(resource, name.removeprefix(department_queue(""))),
            _queue_status(listed, *pods.get(name, (0, 0))),
        )
        for name, listed in by_queue.items()
    ]


def _reference(workload: WorkloadView) -> ObjectRef:
    pod = workload.pods[0]
    return ObjectRef("v1", "Pod", pod.name, pod.namespace, pod.uid)


def _count_pods(snapshot: Snapshot, by_department: bool) -> dict[str, tuple[int, int]]:
    """Queue -> (pods that wait, pods that are bound)."""
    counts: dict[str, tuple[int, int]] = {}
    for workload in snapshot.workloads.values():
        queue = workload.project
        if by_department:
            project = snapshot.queues.get(queue)
            queue = project.parent if project else ""
        waiting, bound = counts.get(queue, (0, 0))
        n_bound = sum(pod.state == "bound" for pod in workload.pods)
        counts[queue] = waiting + len(workload.pods) - n_bound, bound + n_bound
    return counts


def _queue_status(
    shares: list[tuple[str, QueueShare]], n_pending: int, n_running: int
) -> QueueStatus:
    listed = [share for _, share in shares]
    allocated = sum(share.allocated[GPU] for share in listed)
    if allocated <= sum(share.quota[GPU] for share in listed):
        state = "InQuota"
    elif all(share.allocated[GPU] <= share.fair_share[GPU] for share in listed):
        state = "OverQuota"
    else:
        state = "OverFairShare"
    return QueueStatus(
        state=state,  # type: ignore[arg-type]  # one of the three literals above
        gpu=QueueSummary(
            quota=format_gpus(sum(share.quota[GPU] for share in listed)),
            fair_share=format_gpus(sum(share.fair_share[GPU] for share in listed)),
            allocated=format_gpus(allocated),
            requested=format_gpus(sum(share.requested[GPU] for share in listed)),
            pending_pods=n_pending,
            running_pods=n_running,
        ),
        node_pools=[
            PoolUse(
                name=pool,
                quota=format_gpus(share.quota[GPU]),
                fair_share=format_gpus(share.fair_share[GPU]),
                allocated=format_gpus(share.allocated[GPU]),
                allocated_non_preemptible=format_gpus(share.allocated_non_preemptible[GPU]),
                requested=format_gpus(share.requested[GPU]),
            )
            for pool, share in shares
        ],
    )


def _pool_statuses(snapshot: Snapshot) -> dict[str, NodePoolStatus]:
    """Capacity, use and fragments of every pool; O(cards)."""
    sums = {name: [0, 0, 0, 0] for name in snapshot.pools}
    table = snapshot.nodes
    cards = table.cards
    for name, ix in cards.ix.items():
        if not name or table.pool[ix] not in sums:
            continue
        total = sums[table.pool[ix]]
        capacity = cards.capacity_milli[ix]
        free = [max(0, milli) for milli in cards.free_of(ix)]
        total[0] += 1
        total[1] += capacity
        total[2] += capacity - sum(free)
        total[3] += sum(milli for milli in free if milli < 1000)
    return {
        name: NodePoolStatus(
            nodes=nodes,
            capacity=format_gpus(capacity),
            allocated=format_gpus(allocated),
            fragmented=format_gpus(fragmented),
        )
        for name, (nodes, capacity, allocated, fragmented) in sums.items()
    }
