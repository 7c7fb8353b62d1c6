"""Who leaves, for whom, and who was told.

Pods that leave for one workload are evicted one by one, so that none is lost for a plan that a
disruption budget has ended already; those of different workloads side by side. Pods of one project
leave in the plan's order: each was chosen for what its project had after those before it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from extender.api.failpoint import reach
from extender.api.reasons import Reason
from extender.cycle import metrics
from extender.cycle.pods import PodWriter
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.policy.plan import Eviction, Move, Plan
from extender.state.cluster import ClusterState
from extender.state.model import PodView, Snapshot, WorkloadView

#: How long a pod whose eviction a budget refused is not chosen again, in seconds.
PROTECTED_S: Final = 30.0

#: Evictions under way at once.
_EVICTIONS_AT_ONCE: Final = 16
#: Names in an event before "and N more".
_NAMED: Final = 3

log = structlog.get_logger(__name__)


class Evictor:
    """Takes victims down. Remembers only which pods a disruption budget protects."""

    def __init__(self, state: ClusterState, writer: PodWriter, recorder: EventRecorder) -> None:
        self._state = state
        self._writer = writer
        self._recorder = recorder
        self._protected: dict[str, float] = {}
        self._limit = asyncio.Semaphore(_EVICTIONS_AT_ONCE)

    def protected(self) -> frozenset[str]:
        """UIDs of pods that a disruption budget has lately kept from being evicted."""
        now = asyncio.get_running_loop().time()
        self._protected = {uid: till for uid, till in self._protected.items() if till > now}
        return frozenset(self._protected)

    async def evict(self, plan: Plan, snapshot: Snapshot, without_place: set[str]) -> None:
        """Evict what the plan says, but nobody for workloads whose places did not land."""
        cases: dict[tuple[str, str], list[_Turn]] = {}
        last: dict[str, asyncio.Event] = {}
        for eviction in (*plan.evictions, *map(_as_eviction, plan.moves)):
            project = snapshot.workloads[eviction.workload].project
            turn = _Turn(eviction, last.get(project))
            last[project] = turn.is_over
            # What leaves for nobody leaves with its own workload.
            stale = "" if eviction.beneficiary else eviction.workload
            cases.setdefault((eviction.beneficiary, stale), []).append(turn)

        async def settle(beneficiary: str, turns: list[_Turn]) -> list[str]:
            try:
                evictions = [turn.eviction for turn in turns]
                if beneficiary not in without_place and self._are_as_planned(evictions):
                    return await self._settle(snapshot.workloads.get(beneficiary), turns)
                log.info("evictions put off", workload=beneficiary, victims=len(turns))
                return []
            finally:
                for turn in turns:
                    turn.is_over.set()

        async with asyncio.TaskGroup() as tasks:
            started = [
                tasks.create_task(settle(beneficiary, turns))
                for (beneficiary, _), turns in cases.items()
            ]
        await self._writer.see_leaving([uid for task in started for uid in task.result()])

    async def _settle(
        self, beneficiary: WorkloadView | None, turns: "Sequence[_Turn]"
    ) -> list[str]:
        """Evict for one workload until one is refused; returns the UIDs of those that leave."""
        told: list[Eviction] = []
        for turn in turns:
            if turn.before is not None:
                await turn.before.wait()
            reach("control.before-evict")
            async with self._limit:
                is_leaving = await self._evict_one(turn.eviction, beneficiary)
            turn.is_over.set()
            if is_leaving:
                reach("control.evicted")
                told.append(turn.eviction)
            elif beneficiary is not None:
                break
        if beneficiary is not None and beneficiary.pods and told:
            note = f"{Reason.WAITING_FOR_VICTIMS}: {_names(told)} left for it"
            waiting = _reference(beneficiary.pods[0])
            self._recorder.record(waiting, Reason.WAITING_FOR_VICTIMS, note, "Normal")
        return [eviction.pod.uid for eviction in told]

    def _are_as_planned(self, evictions: Iterable[Eviction]) -> bool:
        """Whether every victim still stands where the simulation took it from."""
        for eviction in evictions:
            now = self._state.pod(eviction.pod.uid)
            if now is None or (now.node, now.cards) != (eviction.pod.node, eviction.pod.cards):
                return False
        return True

    async def _evict_one(self, eviction: Eviction, beneficiary: WorkloadView | None) -> bool:
        pod = eviction.pod
        outcome = await self._writer.evict(pod)
        if outcome == "refused":
            metrics.EVICTION_REFUSALS.inc()
            self._protected[pod.uid] = asyncio.get_running_loop().time() + PROTECTED_S
            log.info("eviction refused by a disruption budget", pod=pod.key)
        if outcome not in ("done", "gone"):
            return False
        metrics.EVICTED.labels(eviction.reason).inc()
        log.info(
            "evicted pod",
            pod=pod.key,
            reason=eviction.reason,
            beneficiary=eviction.beneficiary,
            milli=pod.held_milli,
        )
        related = _reference(beneficiary.pods[0]) if beneficiary and beneficiary.pods else None
        self._recorder.record(_reference(pod), eviction.reason, eviction.note, "Warning", related)
        return True


@dataclass(slots=True)
class _Turn:
    """An eviction that waits until the one of its project that the plan has before it is over."""

    eviction: Eviction
    before: asyncio.Event | None
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


def _as_eviction(move: Move) -> Eviction:
    """How the pod that is moved leaves."""
    note = f"{move.note}; its place on {move.placement.node} is kept" if move.note else ""
    return Eviction(move.placement.pod, move.workload, move.reason, move.beneficiary, note)


def _names(evictions: Sequence[Eviction]) -> str:
    named = ", ".join(eviction.pod.key for eviction in evictions[:_NAMED])
    more = len(evictions) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def _reference(pod: PodView) -> ObjectRef:
    return ObjectRef("v1", "Pod", pod.name, pod.namespace, pod.uid)
