"""Evictions, which run beside the cycle: a plan queues them, and the next cycle does not wait.

From the moment a victim is queued the model has it as terminating, so no later plan counts on it or
takes it again; the rows that the plan wrote before hold the places that it leaves. Right before
each eviction its beneficiary must still wait for the places that the plan nominated. If it does
not, the eviction is dropped, the victim stays, and the next cycle gives up what was promised. If
an eviction gets no answer, its victim counts as terminating until a live read shows its state.

Evictions start in the plan's order, many at a time. Only the last workload that a project gives in
one plan waits for those before it: it may take the project below its share, and the others are then
no longer above theirs. What disruption budgets cover is evicted for one beneficiary only after a
dry run accepted all of it.
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
from extender.cycle.evictions.beneficiaries import Beneficiaries, EvictionGroup, case_of
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

#: Evictions under way at once: an eviction costs the API server as much as several patches, and
#: pods that have nothing to do with it wait behind those under way.
AT_ONCE: Final = 16
_OVERRULED: Final = "a disruption budget held it back beyond its deadline"

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Turn:
    """One eviction of a case, which starts when those in `after` are over.

    The pod loses `lost_s` seconds of its running, and has `grace_s` to end (None: what it asks
    for). `is_forced`: the deadline up to which disruption budgets bind it has passed. `maker` would
    make the pod again; it is no longer known once the pod is gone.
    """

    eviction: Eviction
    case: EvictionGroup
    maker: OwnerReference | None = None
    lost_s: int = 0
    grace_s: int | None = None
    is_forced: bool = False
    after: "Sequence[_Turn]" = ()
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Evictor:
    """Carries evictions out beside the cycle, as long as this process leads."""

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
        """Look at what earlier evictions were good for; once a cycle."""
        self._beneficiaries.review(asyncio.get_running_loop().time())

    def protected(self) -> frozenset[str]:
        """UIDs of pods that a disruption budget lately kept from being evicted."""
        return self._protection.current(asyncio.get_running_loop().time())

    def held_since(self) -> Mapping[HoldKey, int]:
        """Since when disruption budgets hold back pods that plans want."""
        return self._deadlines.since()

    async def close(self) -> None:
        """Give up what has not started: this process leads no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for uid in self._queued:
            self._state.forget_leaving(uid)
        self._queued.clear()

    def start(self, plan: Plan, snapshot: Snapshot, without_place: set[str]) -> None:
        """Queue what the plan evicts, except for workloads without their rows.

        Awaits nothing: the model has the victims as terminating before anything else looks at it.
        """
        self._deadlines.note(plan, snapshot.now_s)
        cases: dict[tuple[str, str], list[Eviction]] = {}
        evictions = [*plan.evictions, *map(_as_eviction, plan.moves)]
        for eviction in evictions:
            of = (eviction.beneficiary, leaves_with(eviction))
            cases.setdefault(of, []).append(eviction)
        case_by_uid: dict[str, EvictionGroup] = {}
        for (_, leaving_with), listed in cases.items():
            if leaving_with in without_place or not self._are_as_planned(listed):
                log.info("evictions put off", workload=leaving_with, victims=len(listed))
                continue
            case = case_of(plan, snapshot, listed)
            case_by_uid.update((eviction.pod.uid, case) for eviction in listed)
        turns = [
            self._turn(eviction, case_by_uid[eviction.pod.uid], snapshot)
            for eviction in evictions
            if eviction.pod.uid in case_by_uid
        ]
        for turn in turns:
            if turn.is_forced:
                turn.case.forced.add(turn.eviction.pod.uid)
        _let_last_wait(turns, snapshot)
        self._state.expect_leaving(case_by_uid)
        self._queued.update(case_by_uid)
        for turn in turns:
            self._run(self._take(turn))

    def _turn(self, eviction: Eviction, case: EvictionGroup, snapshot: Snapshot) -> _Turn:
        pod = eviction.pod
        project = case.victims[eviction.workload].project
        pool = held_pool(snapshot, pod)
        most_s = bound_s(snapshot, project, pool)
        usual_s = snapshot.pools[pool].checkpoint_s if pool in snapshot.pools else 0
        is_stopped = eviction.reason not in MOVES
        is_over = self._deadlines.is_over(pod, hold_s(snapshot, pod, project), snapshot.now_s)
        return _Turn(
            eviction,
            case,
            self._state.maker_of(pod),
            lost_s=seconds_lost(pod, snapshot.now_s, usual_s),
            grace_s=most_s if pod.grace_s > most_s else None,
            is_forced=is_stopped and is_over,
        )

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, turn: _Turn) -> None:
        """Evict one pod when it is its turn; nothing escapes but cancellation."""
        case, uid = turn.case, turn.eviction.pod.uid
        is_leaving = False
        try:
            is_leaving = await self._evict_in_turn(turn)
        except NotLeading:
            case.drop("this process leads no more")
        except Exception:
            metrics.EVICTION_FAILURES.inc()
            log.exception("eviction broke", pod=turn.eviction.pod.key)
        finally:
            self._queued.discard(uid)
            if not is_leaving:
                self._state.forget_leaving(uid)
            turn.is_over.set()
            case.n_open -= 1
            if not case.n_open:
                self._finish(case)

    async def _evict_in_turn(self, turn: _Turn) -> bool:
        """Whether the pod leaves."""
        case = turn.case
        for other in turn.after:
            await other.is_over.wait()
        async with self._limit:
            if case.asked is None:
                case.asked = asyncio.ensure_future(self._ask(case))
            await asyncio.shield(case.asked)
            why = case.dropped or self._beneficiaries.why_not(case)
            if why:
                case.drop(why)
                return False
            if self._state.pod(turn.eviction.pod.uid) is None:
                return True  # it has ended meanwhile: an eviction would delete it, logs and all
            outcome = await self._end(turn)
        if outcome == "unknown":
            outcome = await self._writer.settle(turn.eviction.pod)
        if outcome == "refused":
            self._refuse(turn.eviction, case)
        if outcome not in ("done", "gone"):
            return False
        if outcome == "gone":
            return True  # it ended or was deleted before: an event would blame the beneficiary
        case.told.append(turn.eviction)
        self._tell(turn, case.beneficiary)
        return True

    async def _end(self, turn: _Turn) -> Outcome:
        """Evict the pod, or delete it where budgets refuse though their deadline has passed."""
        pod = turn.eviction.pod
        outcome = await self._writer.evict(pod, grace_s=turn.grace_s)
        if outcome != "refused" or not turn.is_forced:
            return outcome
        log.warning("disruption budget overruled: its deadline has passed", pod=pod.key)
        metrics.BUDGETS_OVERRULED.inc()
        reason = turn.eviction.reason
        return await self._writer.delete(pod, reason, _OVERRULED, grace_s=turn.grace_s)

    async def _ask(self, case: EvictionGroup) -> None:
        """Have the API server try the evictions that budgets cover: a plan that it would not let be
        carried out whole is not begun."""
        covered = [
            eviction
            for eviction in case.evictions
            if eviction.pod.budgets and eviction.pod.uid not in case.forced
        ]
        evict = self._writer.evict
        answers = await asyncio.gather(*(evict(each.pod, is_dry_run=True) for each in covered))
        for eviction, answer in zip(covered, answers, strict=True):
            if answer == "refused":
                self._refuse(eviction, case)

    def _refuse(self, eviction: Eviction, case: EvictionGroup) -> None:
        """The rest of the case is given up, and all it takes of the victim's workload is protected
        for a while: a budget that saves one pod of a gang saves the gang."""
        metrics.EVICTION_REFUSALS.inc()
        log.info("eviction refused by a disruption budget", pod=eviction.pod.key)
        case.drop("a disruption budget protects a victim")
        unit = [each.pod.uid for each in case.evictions if each.workload == eviction.workload]
        self._protection.refuse(unit, asyncio.get_running_loop().time())

    def _tell(self, turn: _Turn, beneficiary: WorkloadView | None) -> None:
        eviction, pod = turn.eviction, turn.eviction.pod
        victim = turn.case.victims[eviction.workload]
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

    def _finish(self, case: EvictionGroup) -> None:
        """All turns of the case are over."""
        beneficiary = case.beneficiary
        if case.evictions[0].reason is Reason.NODE_EMPTIED and not case.dropped:
            self._events.tell_nodes(case.told)
        if case.dropped:
            n_left = len(case.evictions) - len(case.told)
            log.info("evictions dropped", workload=case.key, victims=n_left, why=case.dropped)
        if beneficiary is None or not case.told:
            return
        self._beneficiaries.watch(case, asyncio.get_running_loop().time())
        left = [(each.pod, case.victims[each.workload]) for each in case.told]
        self._events.tell_beneficiary(beneficiary, left)

    def _are_as_planned(self, evictions: Iterable[Eviction]) -> bool:
        """Whether every victim still stands where the simulation took it from."""
        for eviction in evictions:
            now = self._state.pod(eviction.pod.uid)
            if now is None or (now.node, now.cards) != (eviction.pod.node, eviction.pod.cards):
                return False
        return True


def _let_last_wait(turns: Sequence[_Turn], snapshot: Snapshot) -> None:
    """The pods of the last workload that a project gives wait for those before them."""
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
    """How the pod that is moved leaves."""
    note = f"a place on node {move.placement.node} is kept for the pod that replaces it"
    return Eviction(move.placement.pod, move.workload, move.reason, move.beneficiary, note)
