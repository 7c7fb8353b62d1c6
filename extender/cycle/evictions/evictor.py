"""Runs evictions beside the cycle: a plan queues them, and the next cycle does not wait.

As soon as a victim is queued, the model has it as terminating, so no later plan selects it again or
relies on it; the rows that the plan wrote reserve what it frees. Right before each eviction, the
beneficiary must still be pending with the plan's nominations. Otherwise the eviction is dropped,
the victim keeps running, and the next cycle drops the nominations. If an eviction gets no answer,
the victim counts as terminating until a live read shows its state; if it stays, the eviction is
sent again, so that the beneficiary keeps its turn.

Evictions start in the plan's order, many at a time. Only the last workload of each project in the
plan waits for those before it: its eviction may take the project below its share, and would leave
the others without a reason. Evictions that disruption budgets cover start only after a dry run
accepted all of them for the same beneficiary.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from extender.api.objects import OwnerReference
from extender.api.reasons import MOVES, Reason
from extender.api.units import MILLI_PER_GPU
from extender.cycle import metrics
from extender.cycle.evictions.beneficiaries import Beneficiaries, EvictionGroup, eviction_group
from extender.cycle.evictions.events import EvictionEvents
from extender.cycle.evictions.protection import Protection
from extender.cycle.pods.writer import Outcome, PodWriter
from extender.kube.errors import NotLeading
from extender.kube.recorder import EventRecorder
from extender.policy.plan import Eviction, Move, Plan, leaves_with
from extender.policy.preemption.lost_work import seconds_lost
from extender.policy.queues.tree import held_pool
from extender.policy.workloads.budget_deadlines import Deadlines
from extender.policy.workloads.disruption_budgets import HoldKey, hold_s
from extender.policy.workloads.terminating import bound_s
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot
from extender.usage.meter import UsageMeter

#: Evictions in flight: one costs the API server as much as several patches, and other pods' writes
#: wait behind those in flight.
AT_ONCE: Final = 10
#: Requests for an eviction that gets no answer and does not happen.
_ATTEMPTS: Final = 5
_OVERRULED: Final = "a disruption budget held it back beyond its deadline"

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Turn:
    """One eviction of a group, which starts when those in `after` are over.

    The pod loses `lost_s` seconds of work, and has `grace_s` to end (None: its own grace period).
    `maker` is the controller that would recreate the pod; it can't be looked up once the pod is
    gone.
    """

    eviction: Eviction
    group: EvictionGroup
    maker: OwnerReference | None = None
    lost_s: int = 0
    grace_s: int | None = None
    after: "Sequence[_Turn]" = ()
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Evictor:
    """Carries out evictions beside the cycle while this process leads."""

    def __init__(
        self, state: ClusterState, writer: PodWriter, recorder: EventRecorder, meter: UsageMeter
    ) -> None:
        self._state = state
        self._meter = meter
        self._writer = writer
        self._events = EvictionEvents(state, recorder)
        self._protection = Protection()
        self._deadlines = Deadlines()
        self._beneficiaries = Beneficiaries(state)
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued: set[str] = set()

    def review(self) -> None:
        """Check whether the beneficiaries of earlier evictions ran; once per cycle."""
        self._beneficiaries.review(asyncio.get_running_loop().time())

    def protected(self) -> frozenset[str]:
        """UIDs of pods that a disruption budget recently protected from an eviction."""
        return self._protection.current(asyncio.get_running_loop().time())

    def held_since(self) -> Mapping[HoldKey, int]:
        """Since when disruption budgets have held back each victim that plans selected."""
        return self._deadlines.since()

    async def close(self) -> None:
        """Give up evictions that have not started: this process no longer leads."""
        for task in self._tasks:
            task.cancel()
        # Before any await, at which a second cancellation may end this.
        for uid in self._queued:
            self._state.forget_terminating(uid)
        self._queued.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, plan: Plan, snapshot: Snapshot, without_rows: set[str]) -> None:
        """Queue the plan's evictions, except for workloads in `without_rows`.

        Awaits nothing, so the model has the victims as terminating before anything else reads it.
        """
        self._deadlines.note(plan, snapshot.now_s)
        groups: dict[tuple[str, str], list[Eviction]] = {}
        evictions = [*plan.evictions, *map(_as_eviction, plan.moves)]
        for eviction in evictions:
            of = (eviction.beneficiary, leaves_with(eviction))
            groups.setdefault(of, []).append(eviction)
        group_by_uid: dict[str, EvictionGroup] = {}
        for (_, leaving_with), listed in groups.items():
            if leaving_with in without_rows or not self._are_as_planned(listed):
                log.info("evictions skipped", workload=leaving_with, victims=len(listed))
                continue
            group = eviction_group(plan, snapshot, listed)
            group_by_uid.update((eviction.pod.uid, group) for eviction in listed)
        turns = [
            self._turn(eviction, group_by_uid[eviction.pod.uid], snapshot)
            for eviction in evictions
            if eviction.pod.uid in group_by_uid
        ]
        _defer_last_workloads(turns, snapshot)
        self._state.assume_terminating(group_by_uid)
        self._queued.update(group_by_uid)
        for turn in turns:
            self._run(self._take(turn))

    def _turn(self, eviction: Eviction, group: EvictionGroup, snapshot: Snapshot) -> _Turn:
        pod = eviction.pod
        project = group.victims[eviction.workload].project
        pool = held_pool(snapshot, pod)
        most_s = bound_s(snapshot, project, pool)
        usual_s = snapshot.pools[pool].checkpoint_s if pool in snapshot.pools else 0
        is_over = self._deadlines.is_over(pod, hold_s(snapshot, pod, project), snapshot.now_s)
        if is_over and eviction.reason not in MOVES:
            group.forced.add(pod.uid)
        return _Turn(
            eviction,
            group,
            self._state.maker_of(pod),
            lost_s=seconds_lost(pod, snapshot.now_s, usual_s),
            grace_s=most_s if pod.grace_s > most_s else None,
        )

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, turn: _Turn) -> None:
        """Evict one pod in its turn; lets no exception escape but cancellation."""
        group, uid = turn.group, turn.eviction.pod.uid
        is_leaving = False
        try:
            is_leaving = await self._evict_in_turn(turn)
        except NotLeading:
            group.drop("this process no longer leads")
        except Exception:
            metrics.EVICTION_FAILURES.inc()
            log.exception("eviction broke", pod=turn.eviction.pod.key)
        finally:
            self._queued.discard(uid)
            if not is_leaving:
                self._state.forget_terminating(uid)
            turn.is_over.set()
            group.n_open -= 1
            if not group.n_open:
                self._finish(group)

    async def _evict_in_turn(self, turn: _Turn) -> bool:
        """Evict the pod; returns whether it is terminating or gone."""
        group = turn.group
        for other in turn.after:
            await other.is_over.wait()
        outcome = await self._attempts(turn)
        if outcome == "refused":
            self._refuse(turn.eviction, group)
        if outcome == "done":
            group.accepted.append(turn.eviction)
            self._tell(turn, group.beneficiary)
        # A pod that is gone has ended before: an event would blame the beneficiary.
        return outcome in ("done", "gone")

    async def _attempts(self, turn: _Turn) -> Outcome:
        """What became of the eviction; it is sent again if there is no answer and the pod stays."""
        outcome: Outcome = "failed"
        for _ in range(_ATTEMPTS):
            async with self._limit:
                outcome = await self._attempt(turn)
            if outcome != "unknown":
                break
            outcome = await self._writer.settle(turn.eviction.pod)
            if outcome != "failed":
                break
        return outcome

    async def _attempt(self, turn: _Turn) -> Outcome:
        """Evict the pod if its group still is to be evicted; `failed` if it is not."""
        group = turn.group
        if group.dry_run is None:
            group.dry_run = asyncio.ensure_future(self._dry_run(group))
        await asyncio.shield(group.dry_run)
        why = group.dropped or self._beneficiaries.why_drop(group)
        if why:
            group.drop(why)
            return "failed"
        if self._state.pod(turn.eviction.pod.uid) is None:
            return "gone"  # it ended meanwhile: an eviction would delete it and its logs
        return await self._end(turn)

    async def _end(self, turn: _Turn) -> Outcome:
        """Evict the pod, or delete it if budgets refuse after their deadline."""
        pod = turn.eviction.pod
        outcome = await self._writer.evict(pod, grace_s=turn.grace_s)
        if outcome != "refused" or pod.uid not in turn.group.forced:
            return outcome
        log.warning("disruption budget overruled: its deadline has passed", pod=pod.key)
        metrics.BUDGETS_OVERRULED.inc()
        reason = turn.eviction.reason
        return await self._writer.delete(pod, reason, _OVERRULED, grace_s=turn.grace_s)

    async def _dry_run(self, group: EvictionGroup) -> None:
        """Dry-run the evictions that budgets cover, so that no plan is begun that the API server
        would stop half way."""
        covered = [
            eviction
            for eviction in group.evictions
            if eviction.pod.budgets and eviction.pod.uid not in group.forced
        ]
        evict = self._writer.evict
        answers = await asyncio.gather(*(evict(each.pod, is_dry_run=True) for each in covered))
        for eviction, answer in zip(covered, answers, strict=True):
            if answer == "refused":
                self._refuse(eviction, group)

    def _refuse(self, eviction: Eviction, group: EvictionGroup) -> None:
        """Drop the rest of the group, and protect all its victims of that workload for a while: a
        budget that protects one pod of a gang protects the gang."""
        metrics.EVICTION_REFUSALS.inc()
        log.info("eviction refused by a disruption budget", pod=eviction.pod.key)
        group.drop("a disruption budget protects a victim")
        unit = [each.pod.uid for each in group.evictions if each.workload == eviction.workload]
        self._protection.refuse(unit, asyncio.get_running_loop().time())

    def _tell(self, turn: _Turn, beneficiary: WorkloadView | None) -> None:
        eviction, pod = turn.eviction, turn.eviction.pod
        victim = turn.group.victims[eviction.workload]
        for_project = beneficiary.project if beneficiary else ""
        metrics.EVICTED.labels(eviction.reason, victim.project, for_project).inc()
        lost_milli_s = pod.held_milli * turn.lost_s
        metrics.LOST.labels(victim.project).inc(lost_milli_s / MILLI_PER_GPU)
        self._meter.lose(pod.node, pod.uid, lost_milli_s, int(time.time()))
        log.info(
            "evicted pod",
            pod=pod.key,
            reason=eviction.reason,
            beneficiary=eviction.beneficiary,
            milli=pod.held_milli,
        )
        self._events.tell_victim(eviction, victim, beneficiary, turn.maker)

    def _finish(self, group: EvictionGroup) -> None:
        """Report the group once all its turns are over."""
        beneficiary = group.beneficiary
        if group.evictions[0].reason is Reason.NODE_EMPTIED and not group.dropped:
            self._events.tell_nodes(group.accepted)
        if group.dropped:
            n_left = len(group.evictions) - len(group.accepted)
            log.info("evictions dropped", workload=group.key, victims=n_left, why=group.dropped)
        if beneficiary is None or not group.accepted:
            return
        self._beneficiaries.watch(group, asyncio.get_running_loop().time())
        left = [(each.pod, group.victims[each.workload]) for each in group.accepted]
        self._events.tell_beneficiary(beneficiary, left)

    def _are_as_planned(self, evictions: Iterable[Eviction]) -> bool:
        """Whether every victim still has the node and cards that the plan assumed."""
        for eviction in evictions:
            now = self._state.pod(eviction.pod.uid)
            if now is None or (now.node, now.cards) != (eviction.pod.node, eviction.pod.cards):
                return False
        return True


def _defer_last_workloads(turns: Sequence[_Turn], snapshot: Snapshot) -> None:
    """Make the evictions of each project's last workload wait for those before them."""
    by_project: dict[str, list[_Turn]] = {}
    for turn in turns:
        project = snapshot.workloads[turn.eviction.workload].project
        by_project.setdefault(project, []).append(turn)
    for listed in by_project.values():
        last = listed[-1].eviction.workload
        before = [turn for turn in listed if turn.eviction.workload != last]
        for turn in listed:
            if turn.eviction.workload == last:
                turn.after = before


def _as_eviction(move: Move) -> Eviction:
    """The eviction of the pod that is moved."""
    note = f"a place on node {move.placement.node} is kept for the pod that replaces it"
    return Eviction(move.pod, move.workload, move.reason, move.beneficiary, note)
