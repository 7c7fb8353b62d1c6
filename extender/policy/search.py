"""One search: the pods of a chunk are seated one after the other, and others leave for them.

A `Search` is a Placer (`topology`): inside each domain that is tried it makes room where nothing
is free.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from extender.kernels import nodes as node_kernel
from extender.kernels.victims import IMPOSSIBLE
from extender.policy.chunks import Pending
from extender.policy.groups import has_topology
from extender.policy.match import WHOLE_POOL, Frame
from extender.policy.minimal import Victims, unit_at
from extender.policy.offers import Offers, Price
from extender.policy.plan import Placement
from extender.policy.shapes import in_packing_order, shapes_of
from extender.policy.terms import Rule, Terms
from extender.policy.trial import Trial
from extender.state.model import GPU, PodView
from extender.state.nodes import NodeTable

if TYPE_CHECKING:
    from extender.policy.solver import Solver

#: Nodes on which a plan with moves is tried for one pod. A node fails when its pods have no other
#: place together though each has one; a cluster in which this happens so often has no room to move.
_MOST_TRIES: Final = 512
#: So many pods are placed in every domain to see what that costs.
_FEW_PODS: Final = 32


class Search:
    """One chunk's way to a plan. `was_forbidden`: there was one, but the rule does not allow it."""

    def __init__(
        self, solver: "Solver", pending: Pending, chunk: Sequence[PodView], rule: Rule
    ) -> None:
        self.solver = solver
        self.pending = pending
        self.chunk = chunk
        self.rule = rule
        self.was_forbidden = False
        self.trial = Trial(solver.session, solver.pool, solver.herd, solver.touched)
        self.everything = self._terms_with_moves()
        self.terms: Terms = self.everything
        self._is_deferred = False
        self._n_stopped_instead = 0

    def run(self) -> Trial | None:
        """A plan that the simulation holds, or None and nothing held."""
        for terms, is_deferred in self._ways():
            self.terms, self._is_deferred = terms, is_deferred
            mark = self.trial.checkpoint()
            if self._place_all() and self._settle():
                if self._may_keep():
                    return self.trial
                self.was_forbidden = True
            self.rollback(mark)
        return None

    def place_in(self, pods: Sequence[PodView], pool: str, frame: Frame) -> list[Placement] | None:
        """As `topology.Placer.place_in`."""
        mark = self.trial.checkpoint()
        for pod in in_packing_order(pods):
            if not self._seat(pod, frame):
                self.rollback(mark)
                return None
        return [self.trial.seats[pod.uid].placement for pod in pods]

    def cost(self, pods: Sequence[PodView], pool: str, frame: Frame) -> tuple[int, ...]:
        """As `topology.Placer.cost`: few pods are tried, of many the cheapest nodes are summed."""
        if len(pods) <= _FEW_PODS:
            mark = self.trial.checkpoint()
            placed = self.place_in(pods, pool, frame)
            price = self.trial.price() if placed else (IMPOSSIBLE, 0, 0)
            self.rollback(mark)
            return price
        total = [0, 0, 0]
        for shape in shapes_of(pods):
            offers = self.solver.offers(self.rule, self.terms, shape, frame)
            for lowest in offers.lowest(shape.count):
                total = [one + more for one, more in zip(total, lowest, strict=True)]
        return tuple(total)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return self.trial.checkpoint()

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, prices included that were worked out since."""
        if self.trial.checkpoint() > mark:
            self.trial.rollback(mark)
            self.solver.changed_prices()

    def _may_keep(self) -> bool:
        trial = self.trial
        if self.rule.needs_victims and not trial.units and not trial.moving:
            return False
        return self.rule.may_keep(trial)

    def _ways(self) -> Iterator[tuple[Terms, bool]]:
        """How it is tried, one way after the other: with moves first, where any are possible."""
        if any(self.everything.moves):
            if len(self.chunk) > 1:
                yield self.everything, True
            yield self.everything, False
        if self.rule.can_stop:
            yield self.solver.terms(self.rule, bytearray(len(self.everything.moves))), False

    def _terms_with_moves(self) -> Terms:
        """The rule's terms, with those shapes moved that have another place somewhere."""
        herd = self.solver.herd
        moves = bytearray(len(herd.shapes))
        if self.rule.can_move:
            for at, (demand, constraints) in enumerate(herd.shapes):
                moves[at] = not self.solver.is_full(demand, constraints)
        return self.solver.terms(self.rule, moves)

    def _place_all(self) -> bool:
        session, pool = self.solver.session, self.solver.pool
        if not has_topology(self.pending.workload):
            return self.place_in(self.chunk, pool, WHOLE_POOL) is not None
        could = self._emptied()
        return session.places.lay_out(self.pending, pool, self, could, self.chunk) is not None

    def _emptied(self) -> NodeTable:
        """The nodes as they would be if everything left that may."""
        herd, terms = self.solver.herd, self.terms
        table = self.solver.session.sim.later.copy()
        for p, pod in enumerate(herd.pods):
            is_open = terms.tiers[herd.queue[herd.owner[p]]] or terms.moves[herd.shape[p]]
            if herd.is_here[p] and is_open:
                table.give_back(table.cards.ix[pod.node], pod.demand, pod.cards)
        return table

    def _seat(self, pod: PodView, frame: Frame) -> bool:
        solver = self.solver
        if not solver.is_full(pod.demand, pod.constraints) and self.trial.seat(pod, frame):
            return True
        offers = solver.offers(self.rule, self.terms, pod, frame)
        best: tuple[Price, int] | None = None
        for _ in range(_MOST_TRIES):
            at = offers.cheapest()
            if at < 0 or (best is not None and offers.price(at) >= best[0]):
                break
            mark = self.trial.checkpoint()
            self._n_stopped_instead = 0
            if self._make_room(pod, frame, offers, offers.candidates[at]):
                if self._n_stopped_instead == 0 or len(self.chunk) > 1:
                    return True
                price = self.trial.price()
                if best is None or price < best[0]:
                    best = price, offers.candidates[at]
            self.trial.rollback(mark)
            offers.refresh(solver.touched, offers.epoch)
            offers.exclude(at)
        offers.readmit()
        return best is not None and self._make_room(pod, frame, offers, best[1])

    def _make_room(self, pod: PodView, frame: Frame, offers: Offers, ix: int) -> bool:
        """Seat the pod on node `ix` and send away who must leave; the caller undoes a False."""
        trial, herd, terms = self.trial, self.solver.herd, self.terms
        n_touched = len(self.solver.touched)
        chosen = offers.choose(ix)
        if chosen is None:
            return False
        displaced = []
        for p in chosen:
            if not herd.is_here[p]:
                continue
            if terms.moves[herd.shape[p]] and herd.may_move[p]:
                trial.displace(p)
                displaced.append(p)
            else:
                unit = unit_at(trial, terms, p)
                if unit is None:
                    return False
                trial.stop(unit)
        if self._moves_too_much() or not self._fits(pod, ix):
            return False
        trial.seat_on(pod, ix, frame)
        self.solver.recheck(self.solver.touched[n_touched:])
        return self._is_deferred or self._resettle(displaced)

    def _moves_too_much(self) -> bool:
        rule, moving = self.rule, self.trial.moving
        if rule.max_moves is not None and len(moving) > rule.max_moves:
            return True
        most = rule.most_moved_milli
        return most is not None and self.solver.herd.amounts_of(moving)[GPU] > most

    def _resettle(self, displaced: Sequence[int]) -> bool:
        trial, victims = self.trial, self._victims()
        for p in victims.largest_first(displaced):
            if p in trial.moving and trial.moving[p] is None:
                if not victims.resettle(p):
                    return False
                self._n_stopped_instead += p not in trial.moving
        return True

    def _fits(self, pod: PodView, ix: int) -> bool:
        """Whether the node takes the pod, by what is free later and by who is there."""
        places, later = self.solver.session.places, self.solver.session.sim.later
        if pod.demand.counted and not later.fits_counted(ix, pod.demand):
            return False
        allowed = places.beside.allowed(pod, array("i", [ix]), "later")
        return node_kernel.best_node(later, pod.demand, allowed, node_kernel.BINPACK) >= 0

    def _settle(self) -> bool:
        return self._victims().settle()

    def _victims(self) -> Victims:
        rule, solver = self.rule, self.solver
        can_move = rule.can_move and rule.can_stop
        return Victims(self.trial, self.terms, solver.is_full, self._place_again, can_move)

    def _place_again(self, pods: Sequence[PodView]) -> bool:
        """Places for the whole chunk in what is free later."""
        trial, solver = self.trial, self.solver
        if not has_topology(self.pending.workload):
            return all(trial.seat(pod, WHOLE_POOL) for pod in in_packing_order(pods))
        places, later = solver.session.places, solver.session.sim.later
        found = places.lay_out(self.pending, solver.pool, _Reseating(trial), later, pods)
        return found is not None


@dataclass(slots=True)
class _Reseating:
    """A Placer that takes what is free later, in a trial."""

    trial: Trial

    def place_in(self, pods: Sequence[PodView], pool: str, frame: Frame) -> list[Placement] | None:
        """As `topology.Placer.place_in`."""
        mark = self.trial.checkpoint()
        if all(self.trial.seat(pod, frame) for pod in in_packing_order(pods)):
            return [self.trial.seats[pod.uid].placement for pod in pods]
        self.trial.rollback(mark)
        return None

    def cost(self, pods: Sequence[PodView], pool: str, frame: Frame) -> tuple[int, ...]:
        """Nobody leaves, so it is the same everywhere."""
        return ()

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return self.trial.checkpoint()

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`."""
        self.trial.rollback(mark)
