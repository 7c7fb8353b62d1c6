"""What becomes of victims once the taker has its places: who moves, who stays, who stops.

First the displaced find new places, or stop. Then, the dearest first, every unit that would be
stopped is kept where its pods can stay or move instead, and everybody stays without whom the taker
has its places all the same. So the result is minimal: leaving out any victim breaks the plan, for
what was needed among more victims is needed among fewer.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from extender.policy.placement.no_fit import Fullness
from extender.policy.plan import Placement
from extender.policy.preemption.eligibility import Terms
from extender.policy.preemption.relocation import largest_first, move_or_stop
from extender.policy.preemption.statement import Claim, Seat, Trial, Unit
from extender.policy.workloads.pod_classes import placing_orders
from extender.state.model import GPU

#: How often everybody is looked at; more than twice is rare.
_MOST_PASSES: Final = 4


class PlanCheck(Protocol):
    """Says what a plan may be."""

    def is_allowed(self) -> bool:
        """Whether the plan is allowed as it is now."""


@dataclass(slots=True)
class Victims:
    """The victims of a trial.

    `fullness` knows what has no place in the pool; `can_move`: a unit that would be evicted may
    move instead. `n_instead` counts units that are evicted because one of their pods had nowhere to
    move.
    """

    claim: Claim
    trial: Trial
    terms: Terms
    fullness: Fullness
    check: PlanCheck
    can_move: bool
    n_instead: int = 0

    def settle(self) -> bool:
        """Decide about all of them; False where somebody can neither move nor stop."""
        trial = self.trial
        homeless = [p for p, place in trial.moving.items() if place is None]
        for p in largest_first(trial.herd, homeless):
            if p in trial.moving and trial.moving[p] is None:
                if not move_or_stop(trial, self.terms, p):
                    return False
                self.n_instead += p not in trial.moving
        for unit in self._dearest_first() if self.can_move else ():
            if not all(map(self._is_stuck, unit.pods)):
                self._keep(unit)
        self.spare_needless()
        if self.claim.is_alike and len(trial.seats) > 1:
            trial.seat_again(self.claim.chunk)
        return True

    def _keep(self, unit: Unit) -> None:
        """Let the unit go on: its pods stay where they can, the others move."""
        trial, herd = self.trial, self.trial.herd
        mark = trial.checkpoint()
        trial.spare(unit)
        if not herd.is_legal(unit.w):
            trial.rollback(mark)
            return
        displaced = []
        for p in unit.pods:
            pod = herd.pods[p]
            if trial.is_over(trial.ix_of(pod.node)):
                if self._is_stuck(p):
                    trial.rollback(mark)
                    return
                trial.displace(p)
                displaced.append(p)
        if not all(trial.resettle(p) for p in largest_first(herd, displaced)) or (
            trial.is_for_limits and not self.check.is_allowed()
        ):
            trial.rollback(mark)

    def _is_stuck(self, p: int) -> bool:
        """Whether the pod has no other place."""
        herd = self.trial.herd
        pod = herd.pods[p]
        return not herd.can_move(p) or self.fullness.is_full(pod.demand, pod.constraints)

    def spare_needless(self) -> None:
        """Let everybody stay without whom the taker has its places all the same."""
        if not self._is_tight():
            self._spare_in_passes()

    def review(self) -> None:
        """The same for a plan that was made when less was free than is now."""
        if not self._is_tight() or self._may_fit_again():
            self._spare_in_passes()

    def _spare_in_passes(self) -> None:
        # Who stays may give up a new place that is where another one was.
        for _ in range(_MOST_PASSES):
            mark = self.trial.checkpoint()
            self._spare_once()
            if self.trial.checkpoint() == mark:
                return

    def _spare_once(self) -> None:
        trial, herd = self.trial, self.trial.herd
        for unit in self._dearest_first():
            if unit.pods[0] in trial.units:
                self._spare(unit)
        for p in sorted(
            trial.moving,
            key=lambda p: (-herd.rank[herd.owner[p]], -herd.lost[p], herd.pods[p].uid),
        ):
            self._spare(p)

    def _spare(self, victim: Unit | int) -> None:
        """Let a unit, or a pod p that moves, stay if the taker has its places all the same."""
        trial, herd = self.trial, self.trial.herd
        mark = trial.checkpoint()
        if not self._try_without(victim):
            return
        pods = victim.pods if isinstance(victim, Unit) else (victim,)
        w = herd.owner[pods[0]]
        if not herd.is_legal(w) or not self._may_keep(pods):
            trial.rollback(mark)

    def _try_without(self, victim: Unit | int) -> bool:
        """Whether the taker has its places without the victim, who stays then."""
        trial = self.trial
        pods = victim.pods if isinstance(victim, Unit) else (victim,)
        mark = trial.checkpoint()
        self._let_stay(victim)
        if self._make_way(pods):
            return True
        trial.rollback(mark)
        return False

    def _let_stay(self, victim: Unit | int) -> None:
        if isinstance(victim, Unit):
            self.trial.spare(victim)
        else:
            self.trial.restore(victim)

    def _may_keep(self, stay: Iterable[int]) -> bool:
        """Whether the plan is allowed as it is, and nobody was given a place in this cycle who
        keeps away from those that stay."""
        return self.check.is_allowed() and self._are_apart(stay)

    def _are_apart(self, stay: Iterable[int]) -> bool:
        trial, pods = self.trial, self.trial.herd.pods
        is_apart = trial.session.places.pod_affinity.is_apart
        return all(is_apart(pods[p], trial.ix_of(pods[p].node)) for p in stay)

    def _make_way(self, stay: Collection[int]) -> bool:
        """Whether those who stay have their places, once the taker's pods there are elsewhere;
        what was tried in vain is for the caller to undo."""
        pods = self.trial.herd.pods
        nodes = {pods[p].node for p in stay}
        if not self._are_apart(stay):
            # Who has to keep away may be on any node of a domain.
            nodes |= {placement.node for placement in self.trial.placements}
        elif not self._is_over(nodes):
            return True
        mark = self.trial.checkpoint()
        for only_overlapping in (False, True):
            # Those who are in nobody's way may be the company that the others need.
            seats = self._unseat_on(nodes, only_overlapping=only_overlapping)
            if self._seat_again(seats) and not self._is_over(nodes) and self._are_apart(stay):
                return True
            self.trial.rollback(mark)
        return False

    def _unseat_on(self, nodes: Collection[str], *, only_overlapping: bool = False) -> list[Seat]:
        """Take the places of the taker on these nodes back, or just those on cards of which more is
        held than there is; returns them."""
        return [
            self.trial.unseat(uid)
            for uid, seat in list(self.trial.seats.items())
            if seat.placement.node in nodes
            and not (only_overlapping and self._is_free_of_others(seat.placement))
        ]

    def _is_free_of_others(self, placement: Placement) -> bool:
        """Whether all who hold its cards have room on them."""
        cards = self.trial.session.sim.later.cards
        free = cards.free_of(cards.ix[placement.node])
        return all(free[card.index] >= 0 for card in placement.cards)

    def _is_over(self, nodes: Iterable[str]) -> bool:
        return any(self.trial.is_over(self.trial.ix_of(node)) for node in nodes)

    def _seat_again(self, seats: Sequence[Seat]) -> bool:
        mark = self.trial.checkpoint()
        frames = {seat.placement.pod.uid: seat.frame for seat in seats}
        for in_order in placing_orders([seat.placement.pod for seat in seats]):
            if all(self.trial.seat(pod, frames[pod.uid]) for pod in in_order):
                return True
            self.trial.rollback(mark)
        return False

    def _is_tight(self) -> bool:
        """Whether it is plain that nobody can stay: no node takes one pod more, in the one pool
        that may be used, and each victim is on a node where the one pod of the taker needed it."""
        trial, pods = self.trial, self.trial.herd.pods
        shape = self.claim.shapes[0]
        # Who stays gives up his new place, and that may be what the taker needs.
        if not self.claim.is_alike or trial.moving or trial.is_for_limits:
            return False
        if not self.fullness.is_full(shape.demand, shape.constraints):
            return False
        n_seats = Counter(seat.placement.node for seat in trial.seats.values())
        for unit in trial.units.values():
            node = pods[unit.pods[0]].node
            if n_seats[node] != 1 or any(pods[p].node != node for p in unit.pods):
                return False
        return True

    def _may_fit_again(self) -> bool:
        """Whether any victim's node has so much left over as the victim holds."""
        trial, herd = self.trial, self.trial.herd
        cards = trial.session.sim.later.cards
        return any(
            sum(cards.free_of(trial.ix_of(herd.pods[unit.pods[0]].node)))
            >= herd.amounts_of(unit.pods)[GPU]
            for unit in trial.units.values()
        )

    def _dearest_first(self) -> list[Unit]:
        herd = self.trial.herd
        return sorted(
            self.trial.units.values(),
            key=lambda unit: (
                -herd.rank[unit.w],
                -unit.lost,
                -herd.age[unit.w],
                herd.pods[unit.pods[0]].uid,
            ),
        )
