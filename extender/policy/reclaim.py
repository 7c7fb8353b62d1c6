"""Stage `reclaim`: a queue below its fair share takes back from queues above theirs.

The taker ends at or under its fair share, in its project and its department; the giver is above
its own before each unit it gives. So, while demand stays as it is, two sums strictly fall, the
first before the second: what queues hold above their fair shares, and (where work within quota
takes from work above quota) what they hold above their quotas. What was taken can't be taken back:
a queue at or under its share is no victim, and one that would pass its share with the evicted
workload is no taker. Evicted pods that are made again don't change demand, so they don't change the
shares either.

A plan is simulated whole before anything is evicted: the pods of the chunk have their nodes and
cards on the table where victims have left. Then every victim without which they still fit is put
back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from extender.api.reasons import Reason, Refused
from extender.api.units import format_gpus
from extender.policy.chunks import Pending
from extender.policy.order import Turns
from extender.policy.place import Shape, in_packing_order, shapes_of
from extender.policy.plan import Eviction, Placement
from extender.policy.queues import Queue, sum_amounts
from extender.policy.room import make_room
from extender.policy.session import Session
from extender.policy.victims import Claim, Cost, Draft, Unit, Victim, Victims, find_victims
from extender.state.model import GPU, PodView


def reclaim(session: Session) -> None:
    """Serve every pool that allows preemption; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        if session.snapshot.pools[pool].has_preemption:
            here = [pending for pending in session.pending if pool in pending.pools]
            served = _Reclaim(session, pool).serve(here)
            session.pending = [p for p in session.pending if id(p) not in served]


@dataclass(slots=True)
class _Offers:
    """Nodes by what a place on them costs: lower bounds, which are proven when they are used."""

    heap: list[tuple[Cost, int, int]]
    n_touched: int


@dataclass(slots=True)
class _Attempt:
    """One chunk's plan in the making."""

    placements: list[Placement] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)


_OfferKey = tuple[Queue, bool, bool, bool, int, object]


class _Reclaim:
    """Reclaim in one pool. Victims are looked for once something may take at all."""

    def __init__(self, session: Session, pool: str) -> None:
        self._session = session
        self._pool = pool
        self._victims: Victims | None = None
        self._offers: dict[_OfferKey, _Offers] = {}
        self._touched: list[int] = []
        self._failed: list[tuple[Claim, Shape]] = []

    def serve(self, waiting: Sequence[Pending]) -> set[int]:
        """Give everybody its turn until nothing more can be taken; returns ids of what is done."""
        session, pool = self._session, self._pool
        turns = Turns((session.queue_of(p.workload, pool), p) for p in waiting)
        served: set[int] = set()
        while (turn := turns.pop()) is not None:
            project, pending = turn
            key = pending.workload.key
            if session.is_giving(key):
                # It grows no more in the cycle in which it shrinks.
                turns.settle()
                continue
            result = self._try_chunk(project, pending)
            if isinstance(result, Refused):
                self._explain(pending, result)
                turns.settle()
                continue
            if result is None:
                turns.settle()
                continue
            rest = self._commit(project, pending, result)
            turns.settle(rest)
            if result.units:
                turns.resift()
            if rest is None:
                served.add(id(pending))
                session.waits.pop(key, None)
        return served

    def _explain(self, pending: Pending, refused: Refused) -> None:
        """Say why nothing may be taken, where lack of cards is all that was known."""
        session = self._session
        known = session.waits.get(pending.workload.key)
        could_ever = pending.need()[GPU] <= session.queues[self._pool].capacity[GPU]
        if known is None or (known.reason is Reason.INSUFFICIENT_GPU and could_ever):
            session.waits[pending.workload.key] = refused

    def _try_chunk(self, project: Queue, pending: Pending) -> _Attempt | Refused | None:
        """A plan held in the simulation; or why none may be made; or None where none was found."""
        session = self._session
        amounts = pending.need()
        need = amounts[GPU]
        claim = _claim(project, pending, need)
        if isinstance(claim, Refused):
            return claim
        refused = session.check_room(project, pending.workload, amounts, "later")
        if refused is not None and not claim.only_siblings:
            return refused
        shapes = shapes_of(pending.chunk)
        if need == 0 or self._has_failed(claim, shapes):
            return None
        mark = session.sim.checkpoint()
        before = project.parent.allocated[GPU] if project.parent else 0
        attempt = self._simulate(claim, pending.chunk, need)
        if attempt is not None and self._is_allowed(project, pending, attempt, before):
            return attempt
        self._undo(attempt, mark)
        if len(shapes) == 1:
            self._failed.append((claim, shapes[0]))
        return None

    def _simulate(self, claim: Claim, chunk: Sequence[PodView], need: int) -> _Attempt | None:
        """Place the chunk's pods one after the other, evicting where nothing else is left.

        On failure the caller rolls the simulation back.
        """
        session = self._session
        if self._victims is None:
            self._victims = find_victims(session, self._pool)
        # A gang's search is long, so the sum is looked at first; one pod's offers say no as fast.
        is_gang = len(chunk) > 1
        if is_gang and self._victims.most_milli(claim) + self._idle_milli(chunk) < need:
            return None
        attempt = _Attempt()
        for pod in in_packing_order(chunk):
            placement = session.places.place_pod(pod, self._pool, "later")
            if placement is None:
                found = self._best_offer(claim, pod)
                if found is None:
                    self._give_back_victims(attempt.units)
                    return None
                ix, draft = found
                self._evict(draft, attempt)
                placement = session.places.place_on(pod, ix, self._pool, "later")
            attempt.placements.append(placement)
        if len(attempt.units) > 1:
            self._put_back(attempt)
        return attempt

    def _idle_milli(self, chunk: Sequence[PodView]) -> int:
        """Milli free later on all nodes that the chunk's pods may use."""
        later = self._session.sim.later
        usable = {
            ix
            for constraints in {id(p.constraints): p.constraints for p in chunk}.values()
            for ix in self._session.places.matcher.candidates(self._pool, constraints)
        }
        return sum(max(0, milli) for ix in usable for milli in later.cards.free_of(ix))

    def _best_offer(self, claim: Claim, pod: PodView) -> tuple[int, Draft] | None:
        """The node on which a place for `pod` costs least, and what must go there."""
        offers = self._offers_for(claim, pod)
        heap = offers.heap
        while heap:
            cost, rank, ix = heap[0]
            draft = self._draft(claim, pod, ix)
            if draft is None:
                heappop(heap)
            elif draft.cost > cost:
                heappop(heap)
                heappush(heap, (draft.cost, rank, ix))
            else:
                return ix, draft
        return None

    def _offers_for(self, claim: Claim, pod: PodView) -> _Offers:
        """All nodes with their costs, brought up to date where something was released since."""
        key = (
            claim.project,
            claim.is_project_in_quota,
            claim.is_department_in_quota,
            claim.only_siblings,
            id(pod.constraints),
            pod.demand,
        )
        candidates = self._session.places.matcher.candidates(self._pool, pod.constraints)
        offers = self._offers.get(key)
        if offers is None:
            stale = set(candidates)
            offers = self._offers[key] = _Offers([], len(self._touched))
        else:
            stale = set(self._touched[offers.n_touched :])
            if not stale:
                return offers
            offers.heap[:] = [entry for entry in offers.heap if entry[2] not in stale]
            offers.n_touched = len(self._touched)
        for rank, ix in enumerate(candidates):
            draft = self._draft(claim, pod, ix) if ix in stale else None
            if draft is not None:
                offers.heap.append((draft.cost, rank, ix))
        heapify(offers.heap)
        return offers

    def _draft(self, claim: Claim, pod: PodView, ix: int) -> Draft | None:
        assert self._victims is not None
        entries = self._victims.on_node.get(ix)
        if not entries:
            return None
        return make_room(self._session.sim.later, ix, pod.demand, entries, claim)

    def _evict(self, draft: Draft, attempt: _Attempt) -> None:
        """Let the draft's pods leave in the simulation."""
        sim, victims = self._session.sim, self._victims
        assert victims is not None
        for unit in draft.units.values():
            attempt.units.append(unit)
            for pod in unit.pods:
                ix = sim.later.cards.ix[pod.node]
                sim.evict(ix, pod.demand, pod.cards)
                victims.remove(unit.victim, pod, ix)
            sim.discharge(unit.victim.project, unit.amounts, is_np=False)

    def _put_back(self, attempt: _Attempt) -> None:
        """Let every victim stay without which the chunk still fits, the dearest first.

        Only pods placed on the victim's nodes can be in its way; they are placed again. The result
        is minimal: what was needed among more victims is needed among fewer.
        """
        units = _split(attempt.units)
        units.sort(key=lambda unit: -unit.lost)
        attempt.units = [unit for unit in units if not self._stays(unit, attempt)]

    def _stays(self, unit: Unit, attempt: _Attempt) -> bool:
        sim, victims = self._session.sim, self._victims
        assert victims is not None
        cards = sim.later.cards
        mark = sim.checkpoint()
        nodes = {pod.node for pod in unit.pods}
        moved = [placed for placed in attempt.placements if placed.node in nodes]
        for placed in moved:
            sim.unhold(cards.ix[placed.node], placed.pod.demand, placed.cards)
        for pod in unit.pods:
            sim.reinstate(cards.ix[pod.node], pod.demand, pod.cards)
        again = []
        for placed in moved:
            found = self._session.places.place_pod(placed.pod, self._pool, "later")
            if found is None:
                sim.rollback(mark)
                return False
            again.append(found)
        sim.charge(unit.victim.project, unit.amounts, is_np=False)
        attempt.placements = [p for p in attempt.placements if p.node not in nodes] + again
        for pod in unit.pods:
            victims.restore(unit.victim, pod, cards.ix[pod.node])
        return True

    def _is_allowed(self, project: Queue, pending: Pending, attempt: _Attempt, before: int) -> bool:
        """Whether the taker stays within its share, with the cards it has got."""
        milli = sum(placement.milli for placement in attempt.placements)
        if project.allocated[GPU] + milli > project.share_to_take[GPU]:
            return False
        amounts = sum_amounts(placement.amounts for placement in attempt.placements)
        if self._session.check_room(project, pending.workload, amounts, "later") is not None:
            return False
        department = project.parent or project
        return department.allocated[GPU] + milli <= max(department.share_to_take[GPU], before)

    def _undo(self, attempt: _Attempt | None, mark: int) -> None:
        if attempt is not None:
            self._give_back_victims(attempt.units)
        if self._session.sim.checkpoint() > mark:
            self._session.sim.rollback(mark)
            # Bounds that were raised on the way are none any more.
            self._offers.clear()

    def _give_back_victims(self, units: Sequence[Unit]) -> None:
        assert self._victims is not None
        ix_of = self._session.sim.later.cards.ix
        for unit in units:
            for pod in unit.pods:
                self._victims.restore(unit.victim, pod, ix_of[pod.node])

    def _commit(self, project: Queue, pending: Pending, attempt: _Attempt) -> Pending | None:
        key = pending.workload.key
        for unit in attempt.units:
            giver = unit.victim
            note = f"{giver.project.name} is above its share; {project.name} is below its own"
            for pod in unit.pods:
                self._session.evict(Eviction(pod, giver.workload.key, Reason.RECLAIMED, key, note))
        taker = self._victims.by_key.get(key) if self._victims else None
        if taker is not None:
            taker.is_barred = True
        self._note_released(attempt)
        return self._session.admit(pending, attempt.placements, self._pool, "nominated")

    def _note_released(self, attempt: _Attempt) -> None:
        """Nodes on which more was freed than is used may have become cheaper for others."""
        balance: dict[str, list[int]] = {}
        for unit in attempt.units:
            for pod in unit.pods:
                _add(balance, pod.node, pod, pod.held_milli, 1)
        for placed in attempt.placements:
            _add(balance, placed.node, placed.pod, placed.milli, -1)
        ix_of = self._session.sim.later.cards.ix
        released = [ix_of[node] for node, left in balance.items() if max(left) > 0]
        if released:
            self._touched.extend(released)
            self._failed.clear()
            self._session.places.forget_failures(self._pool)

    def _has_failed(self, claim: Claim, shapes: Sequence[Shape]) -> bool:
        """Whether the same taker, free to take from as many, found nothing for something easier."""
        return any(
            known == claim and shape.is_no_easier_than(failed)
            for known, failed in self._failed
            for shape in shapes
        )


def _claim(project: Queue, pending: Pending, need: int) -> Claim | Refused:
    """What the project may take for `need` milli, or that it has its share."""
    department = project.parent or project
    if project.allocated[GPU] + need > project.share_to_take[GPU]:
        return _has_its_share(project, pending, need)
    together = department.allocated[GPU] + need
    only_siblings = together > min(department.share_to_take[GPU], department.limit[GPU])
    return Claim(
        project,
        is_project_in_quota=project.allocated[GPU] + need <= project.quota[GPU],
        is_department_in_quota=together <= department.quota[GPU],
        only_siblings=only_siblings,
    )


def _has_its_share(project: Queue, pending: Pending, need: int) -> Refused:
    return Refused(
        Reason.OVER_FAIR_SHARE,
        f"{pending.workload.key}: needs {format_gpus(need)} GPUs, {project.name} has"
        f" {format_gpus(project.allocated[GPU])} of its fair share of"
        f" {format_gpus(project.share_to_take[GPU])}, and nothing is free",
    )


def _split(units: Sequence[Unit]) -> list[Unit]:
    """Units that can stay or go on their own: surplus pods one by one, the last pods together."""
    merged: dict[Victim, list[Unit]] = {}
    for unit in units:
        merged.setdefault(unit.victim, []).append(unit)
    result = []
    for victim, parts in merged.items():
        pods = [pod for part in parts for pod in part.pods]
        if any(part.is_core for part in parts):
            result.append(Unit(victim, pods, True, sum(victim.lost[p.uid] for p in pods)))
        else:
            result.extend(Unit(victim, [pod], False, victim.lost[pod.uid]) for pod in pods)
    return result


def _add(balance: dict[str, list[int]], node: str, pod: PodView, milli: int, sign: int) -> None:
    left = balance.setdefault(node, [0, 0, 0, 0])
    demand = pod.demand
    for at, amount in enumerate((milli, demand.cpu_milli, demand.memory_mib, 1)):
        left[at] += sign * amount
