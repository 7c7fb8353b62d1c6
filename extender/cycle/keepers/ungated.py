"""Lets autoscalers that read pods see the pods that lack nodes, and no others.

A pod without our gate and without a plan is bound nowhere: the extender accepts no node for it. So
kube-scheduler calls it unschedulable, and the autoscaler adds a node for it. As soon as the pod
fits, a cycle plans it as it plans every waiting pod.

A gate cannot be put back. A pod that waits without one in such a node pool, and for which no nodes
are to be added, is therefore deleted: its controller creates it again, behind the gate. A pod of a
DaemonSet would come back without one, so it stays.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from extender.api.reasons import SENTENCES, Reason
from extender.cycle import metrics
from extender.cycle.pod_events import PodEvents
from extender.cycle.pods.writer import PodWriter
from extender.cycle.writes import write_all
from extender.policy.scale_up import ScaleUp
from extender.state.cluster import ClusterState
from extender.state.model import ElasticView, PodView, PoolView, WorkloadView

#: Seconds without a claim before the deletion: a cycle may place the workload, or work before it.
LOST_S: Final = 30.0

log = structlog.get_logger(__name__)


class UngatedPods:
    """The pods that wait without our gate, in one term of office."""

    def __init__(self, state: ClusterState, writer: PodWriter, events: PodEvents) -> None:
        self._state = state
        self._writer = writer
        self._events = events
        self._lost_since: dict[str, float] = {}

    async def keep(
        self,
        wanted: Mapping[str, ScaleUp],
        waiting: Iterable[str],
        pools: Mapping[str, PoolView],
    ) -> None:
        """Remove the gate for `wanted`, and delete what lost its claim; `waiting` are the keys of
        all workloads without a place."""
        growing = {
            name: view.elastic
            for name, view in pools.items()
            if view.elastic is not None and view.elastic.reads_pods
        }
        writes = [
            self._ungate(pod, growing[scale_up.pool])
            for scale_up in wanted.values()
            if scale_up.pool in growing
            for pod in map(self._now, scale_up.pods)
            if pod is not None and pod.is_gated and _waits(pod)
        ]
        lost = self._lost(wanted, waiting, growing)
        now = asyncio.get_running_loop().time()
        self._lost_since = {uid: self._lost_since.get(uid, now) for uid in lost}
        writes += [
            self._delete(pod, workload)
            for uid, (pod, workload) in lost.items()
            if now - self._lost_since[uid] >= LOST_S
        ]
        await write_all(writes, what="pod without a place")

    def _lost(
        self,
        wanted: Mapping[str, ScaleUp],
        waiting: Iterable[str],
        growing: Mapping[str, ElasticView],
    ) -> dict[str, tuple[PodView, WorkloadView]]:
        """By UID, the pods without a gate that no nodes are to be added for."""
        workloads = self._state.workloads()
        starting = frozenset[str]().union(*(each.starting for each in wanted.values()))
        return {
            pod.uid: (pod, workload)
            for key in waiting
            if (workload := workloads.get(key)) is not None
            for pod in workload.pods
            if pod.uid not in starting
            and not pod.is_gated
            and _waits(pod)
            and _is_seen(pod, workload, growing)
            and self._comes_back_gated(pod)
        }

    def _comes_back_gated(self, pod: PodView) -> bool:
        """Whether its controller makes it again, behind the gate; pods of DaemonSets get none."""
        maker = self._state.maker_of(pod)
        return maker is not None and maker.kind != "DaemonSet"

    def _now(self, pod: PodView) -> PodView | None:
        """The pod as it is known now; what was decided on is older."""
        return self._state.pod(pod.uid)

    async def _ungate(self, pod: PodView, pool: ElasticView) -> None:
        labels = dict(pod.constraints.node_selector) | dict(pool.selector)
        if await self._writer.ungate(pod, labels):
            log.info("removed the gate for an autoscaler", pod=pod.key)

    async def _delete(self, pod: PodView, workload: WorkloadView) -> None:
        why = SENTENCES[Reason.GATED_AGAIN]
        outcome = await self._writer.delete(pod, Reason.GATED_AGAIN, why)
        log.info("deleted a pod without a place", pod=pod.key, outcome=outcome)
        if outcome == "done":
            metrics.EVICTED.labels(Reason.GATED_AGAIN, workload.project, "").inc()
            self._events.tell(pod, Reason.GATED_AGAIN, why)


def _is_seen(pod: PodView, workload: WorkloadView, growing: Mapping[str, ElasticView]) -> bool:
    """Whether an autoscaler may add nodes for the pod: its workload may go to such a pool, or could
    when the pod lost its gate and took the labels of the pool's nodes."""
    asked = set(pod.constraints.node_selector)
    return any(
        name in workload.pools or (view.selector and asked.issuperset(view.selector))
        for name, view in growing.items()
    )


def _waits(pod: PodView) -> bool:
    """Whether the pod has no place, and only our gate keeps kube-scheduler from looking at it."""
    return pod.state == "gated" and not pod.other_gates and not pod.is_terminating
