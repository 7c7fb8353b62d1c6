"""What becomes of victims once the taker has its places: who moves, who stays, who stops.

First the displaced find new places, or stop. Then, the dearest first, every unit that would be
stopped is kept where its pods can stay or move instead, and everybody stays without whom the taker
has its places all the same. So the result is minimal: leaving out any victim breaks the plan, for
what was needed among more victims is needed among fewer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from extender.api.demand import Demand
from extender.policy.shapes import in_packing_order
from extender.policy.terms import Terms
from extender.policy.trial import Claim, Seat, Trial, Unit
from extender.state.model import Constraints, PodView

#: A taker of so many pods or fewer is placed again as a whole where pod by pod did not do.
_FEW_PODS = 16


@dataclass(slots=True)
class Victims:
    """The victims of a trial. `place_again` places the whole taker in what is free, or says no;
    `is_full` knows what has no place in the pool; `can_move`: who would stop may move instead."""

    claim: Claim
    trial: Trial
    terms: Terms
    is_full: Callable[[Demand, Constraints], bool]
    place_again: Callable[[Sequence[PodView]], bool]
    can_move: bool

    def settle(self) -> bool:
        """Decide about all of them; False where somebody can neither move nor stop."""
        trial = self.trial
        for p in self.largest_first([p for p, place in trial.moving.items() if place is None]):
            if p in trial.moving and trial.moving[p] is None and not self.resettle(p):
                return False
        for unit in self._dearest_first() if self.can_move else ():
            if not all(map(self._is_stuck, unit.pods)):
                self._keep(unit)
        if not self._is_tight():
            self._spare_needless()
        return True

    def resettle(self, p: int) -> bool:
        """Give a displaced pod a new place, or stop it with all that must stop with it."""
        trial, herd = self.trial, self.trial.herd
        if trial.resettle(p):
            return True
        w = herd.owner[p]
        trial.restore(p)
        unit = unit_at(trial, self.terms, p)
        if unit is None:
            for other in [m for m in trial.moving if herd.owner[m] == w]:
                trial.restore(other)
            unit = unit_at(trial, self.terms, p)
        if unit is None:
            return False
        trial.stop(unit)
        # What was put back to be stopped with it, and is not, is in the taker's way.
        return not any(trial.is_over(trial.ix_of(herd.pods[m].node)) for m in herd.members[w])

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
        if not all(trial.resettle(p) for p in self.largest_first(displaced)):
            trial.rollback(mark)

    def _is_stuck(self, p: int) -> bool:
        """Whether the pod has no other place."""
        herd = self.trial.herd
        pod = herd.pods[p]
        return not herd.may_move[p] or self.is_full(pod.demand, pod.constraints)

    def _spare_needless(self) -> None:
        trial, herd = self.trial, self.trial.herd
        for unit in self._dearest_first():
            if unit.pods[0] in trial.units:
                self._spare(lambda unit=unit: trial.spare(unit), unit.pods)  # type: ignore[misc]
        for p in sorted(trial.moving, key=lambda p: (-herd.lost[p], p)):
            self._spare(lambda p=p: trial.restore(p), (p,))  # type: ignore[misc]

    def _spare(self, let_stay: Callable[[], None], pods: Sequence[int]) -> None:
        """Let the pods stay if the taker has its places all the same."""
        trial, herd = self.trial, self.trial.herd
        mark = trial.checkpoint()
        nodes = {herd.pods[p].node for p in pods}
        in_the_way = [uid for uid, seat in trial.seats.items() if seat.placement.node in nodes]
        let_stay()
        if not herd.is_legal(herd.owner[pods[0]]):
            trial.rollback(mark)
            return
        if not self._is_over(nodes):
            return
        if self._seat_again([trial.unseat(uid) for uid in in_the_way]) and not self._is_over(nodes):
            return
        trial.rollback(mark)
        if 1 < len(trial.seats) <= _FEW_PODS and not self.claim.is_alike:
            self._spare_by_new_places(let_stay, nodes)

    def _spare_by_new_places(self, let_stay: Callable[[], None], nodes: set[str]) -> None:
        """The same with all places of the taker open again: pods that differ may change places."""
        trial = self.trial
        mark = trial.checkpoint()
        pods = [trial.unseat(uid).placement.pod for uid in list(trial.seats)]
        let_stay()
        if self._is_over(nodes) or not self.place_again(pods):
            trial.rollback(mark)

    def _is_over(self, nodes: Iterable[str]) -> bool:
        return any(self.trial.is_over(self.trial.ix_of(node)) for node in nodes)

    def _seat_again(self, seats: Sequence[Seat]) -> bool:
        frames = {seat.placement.pod.uid: seat.frame for seat in seats}
        pods = in_packing_order([seat.placement.pod for seat in seats])
        return all(self.trial.seat(pod, frames[pod.uid]) for pod in pods)

    def _is_tight(self) -> bool:
        """Whether it is plain that nobody can stay: no node takes one pod more, and each victim is
        on a node where the one pod of the taker needed it."""
        trial, pods = self.trial, self.trial.herd.pods
        shape = self.claim.shapes[0]
        if not self.claim.is_alike or not self.is_full(shape.demand, shape.constraints):
            return False
        n_seats = Counter(seat.placement.node for seat in trial.seats.values())
        if any(n_seats[pods[p].node] != 1 for p in trial.moving):
            return False
        for unit in trial.units.values():
            node = pods[unit.pods[0]].node
            if n_seats[node] != 1 or any(pods[p].node != node for p in unit.pods):
                return False
        return True

    def _dearest_first(self) -> list[Unit]:
        herd = self.trial.herd
        return sorted(
            self.trial.units.values(),
            key=lambda unit: (-unit.lost, -herd.priority[unit.w], -herd.age[unit.w], unit.pods[0]),
        )

    def largest_first(self, pods: Sequence[int]) -> list[int]:
        """The pods p in the order in which new places are looked for."""
        herd = self.trial.herd
        by_uid = {herd.pods[p].uid: p for p in pods}
        return [by_uid[pod.uid] for pod in in_packing_order([herd.pods[p] for p in pods])]


def unit_at(trial: Trial, terms: Terms, p: int) -> Unit | None:
    """The unit in which pod p would be stopped now, or None where that is not allowed."""
    herd = trial.herd
    pods = herd.unit_of(p)
    if pods is None:
        return None
    w = herd.owner[p]
    is_whole = len(pods) > 1 or herd.n_live[w] == 1
    if is_whole and terms.is_safe[w]:
        return None
    tier = terms.tier_of(herd, w, herd.amounts_of(pods))
    if tier is None:
        return None
    return Unit(pods, w, tier[0], tier[1], is_whole, sum(herd.lost[each] for each in pods))
