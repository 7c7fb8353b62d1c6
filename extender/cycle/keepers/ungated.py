"""Makes pods that lack nodes visible to autoscalers that read pods, and no other pods.

The extender accepts no node for a pod without a plan. So if only our gate is removed,
kube-scheduler reports the pod as unschedulable, and the autoscaler adds a node for it. As soon as
the pod fits, a cycle plans it like every pending pod.

A gate cannot be added again. So a pending pod that has lost it, and for which no nodes should be
added any more, is deleted: its controller recreates it, behind the gate. A pod of a DaemonSet would
come back without a gate, so it stays.
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

#: Seconds without entitlement before the deletion: a cycle may still place the workload.
LOST_S: Final = 30.0

log = structlog.get_logger(__name__)


class UngatedPods:
    """The pending pods without our gate, during one term of leadership."""

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
        """Remove the gate for `wanted`, and delete pods no longer entitled to nodes; `waiting` are
        the keys of all workloads that did not fit."""
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
        """By UID, the pods without a gate for which no nodes should be added."""
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
        """Whether its controller recreates it behind the gate, as all but DaemonSets do."""
        maker = self._state.maker_of(pod)
        return maker is not None and maker.kind != "DaemonSet"

    def _now(self, pod: PodView) -> PodView | None:
        """The pod in its current version; the decision used an older one."""
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
    """Whether an autoscaler may add nodes for the pod: its workload may use such a pool, or could
    when the pod was ungated and given the labels of the pool's nodes."""
    asked = set(pod.constraints.node_selector)
    return any(
        name in workload.pools or (view.selector and asked.issuperset(view.selector))
        for name, view in growing.items()
    )


def _waits(pod: PodView) -> bool:
    """Whether the pod is pending without a row and has no gate of others."""
    return pod.state == "gated" and not pod.other_gates and not pod.is_terminating
