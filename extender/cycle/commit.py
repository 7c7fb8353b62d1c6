"""A plan becomes writes, in the one order that is safe to be cut off anywhere.

Rows first, one write per node; then the gates of workloads whose rows all landed; then evictions,
each only while the place it makes is held by nominated rows. A workload whose rows were refused
is simply planned anew.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from extender.api.events import Upserted
from extender.api.failpoint import reach
from extender.api.kinds import Row
from extender.cycle import metrics
from extender.cycle.pods import PodWriter, Release
from extender.cycle.recovery import Repairs
from extender.cycle.rows import row_of
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.policy.plan import Admission, Eviction, Plan
from extender.state.cluster import ClusterState
from extender.state.ledger import Change, Ledger
from extender.state.model import PodView, Snapshot, WorkloadView

#: How long a pod whose eviction a budget refused is not chosen again, in seconds.
PROTECTED_S: Final = 30.0

#: Beneficiaries whose victims are evicted side by side.
_BENEFICIARIES_AT_ONCE: Final = 16

log = structlog.get_logger(__name__)


class Committer:
    """Carries plans and repairs out. Remembers only which pods a disruption budget protects."""

    def __init__(
        self, state: ClusterState, ledger: Ledger, writer: PodWriter, recorder: EventRecorder
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._writer = writer
        self._recorder = recorder
        self._protected: dict[str, float] = {}

    def protected(self) -> frozenset[str]:
        """UIDs of pods that a disruption budget has lately kept from being evicted."""
        now = asyncio.get_running_loop().time()
        self._protected = {uid: till for uid, till in self._protected.items() if till > now}
        return frozenset(self._protected)

    async def repair(self, repairs: Repairs) -> None:
        """Write what recovery found, then release the pods of plans that are whole."""
        changes = [Change("repairs", frees=repairs.frees, bound=repairs.bound)]
        changes += [
            Change(f"restore {row.uid}", rows={node: [row]})
            for node, rows in repairs.restores.items()
            for row in rows
        ]
        if repairs.frees or repairs.bound or repairs.restores:
            await self._write(changes)
        if repairs.releases:
            await self._writer.release(repairs.releases)

    async def carry_out(self, plan: Plan, snapshot: Snapshot, epoch: int) -> bool:
        """Do what the plan says; returns whether anything was written."""
        changes = [
            _change_of(admission, epoch, snapshot.now_s) for admission in plan.admissions
        ] + [self._drop(snapshot.workloads[key]) for key in plan.drops]
        changes = [change for change in changes if change.rows or change.frees]
        if not changes:
            return bool(plan.evictions) and await self._evict(plan, snapshot, set())
        reach("control.before-rows")
        lost = await self._write(changes)
        reach("control.after-rows")
        releases = [
            Release(self._now(placement.pod), placement.node, epoch)
            for admission in plan.admissions
            if admission.state == "reserved" and _key_of(admission) not in lost
            for placement in admission.placements
        ]
        await self._writer.release(releases)
        await self._evict(plan, snapshot, lost)
        if releases:
            log.info("released pods", pods=len(releases), workloads=len(plan.admissions))
        return True

    async def _write(self, changes: list[Change]) -> set[str]:
        """Commit to the ledger; returns the keys of changes that did not land."""
        outcome = await self._ledger.commit(changes)
        for node in outcome.written.values():
            self._state.apply(Upserted(node))
        for key, refused in outcome.refused.items():
            log.info("rows refused", workload=key, reason=refused.reason, detail=refused.detail)
        for key, error in outcome.failed.items():
            log.warning("rows not written", workload=key, error=str(error))
        return outcome.refused.keys() | outcome.failed.keys()

    def _drop(self, workload: WorkloadView) -> Change:
        """Give up the places a workload holds for itself."""
        frees: dict[str, list[Row]] = {}
        for pod in workload.pods:
            row = self._state.row_of(pod)
            if pod.state == "nominated" and row is not None:
                frees.setdefault(pod.node, []).append(row)
        return Change(workload.key, frees=frees)

    def _now(self, pod: PodView) -> PodView:
        """The pod as the model has it now, which may be newer than the snapshot."""
        return self._state.pod(pod.uid) or pod

    # -- evictions ---------------------------------------------------------------------------

    async def _evict(self, plan: Plan, snapshot: Snapshot, lost: set[str]) -> bool:
        """Evict victims, beneficiaries side by side; one stops at its first refusal."""
        by_beneficiary: dict[str, list[Eviction]] = {}
        for eviction in plan.evictions:
            by_beneficiary.setdefault(eviction.beneficiary, []).append(eviction)
        limit = asyncio.Semaphore(_BENEFICIARIES_AT_ONCE)

        async def make_room(beneficiary: str, evictions: list[Eviction]) -> list[str]:
            async with limit:
                if f"{beneficiary} nominated" not in lost and self._are_as_planned(evictions):
                    return await self._evict_for(snapshot.workloads.get(beneficiary), evictions)
            log.info("evictions put off", workload=beneficiary, victims=len(evictions))
            return []

        async with asyncio.TaskGroup() as tasks:
            started = [
                tasks.create_task(make_room(beneficiary, evictions))
                for beneficiary, evictions in by_beneficiary.items()
            ]
        told = [uid for task in started for uid in task.result()]
        await self._writer.see_leaving(told)
        return bool(told)

    async def _evict_for(
        self, beneficiary: WorkloadView | None, evictions: list[Eviction]
    ) -> list[str]:
        """Evict one by one, so that none is lost for a plan that a refusal has ended already."""
        told: list[str] = []
        for eviction in evictions:
            reach("control.before-evict")
            if not await self._evict_one(eviction, beneficiary):
                break
            reach("control.evicted")
            told.append(eviction.pod.uid)
        return told

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
        victim = _reference(pod)
        related = _reference(beneficiary.pods[0]) if beneficiary and beneficiary.pods else None
        self._recorder.record(victim, eviction.reason, eviction.note, "Warning", related)
        return True


def _change_of(admission: Admission, epoch: int, now_s: int) -> Change:
    rows: dict[str, list[Row]] = {}
    for placement in admission.placements:
        row = row_of(
            admission.workload,
            placement,
            state=admission.state,
            epoch=epoch,
            reserved_at=now_s,
        )
        rows.setdefault(placement.node, []).append(row)
    return Change(_key_of(admission), rows=rows)


def _key_of(admission: Admission) -> str:
    """A workload may get some places at once and others when victims are gone."""
    return f"{admission.workload.key} {admission.state}"


def _reference(pod: PodView) -> ObjectRef:
    return ObjectRef("v1", "Pod", pod.name, pod.namespace, pod.uid)
