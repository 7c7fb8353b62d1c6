"""One search: the pods of a claim are seated one after the other, and others leave for them.

A `Search` is a `DomainPlacer`: inside each domain that is tried it makes room where nothing is
free.
"""

from collections.abc import Collection, Sequence
from typing import Final

from extender.kernels.victims import IMPOSSIBLE
from extender.policy.placement.node_filter import WHOLE_POOL, NodeSet
from extender.policy.plan import Placement
from extender.policy.preemption.limits import meet_limits
from extender.policy.preemption.make_room import Room
from extender.policy.preemption.node_costs import Price
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solution import Solution
from extender.policy.preemption.statement import Claim
from extender.policy.workloads.pod_classes import placing_orders, shapes_of
from extender.state.model import PodView
from extender.state.nodes import NodeTable

#: So often a plan that the rule does not allow is tried, each without the nodes that those before
#: it cleared last.
_MOST_REFUSALS: Final = 4
#: So many pods are placed in every domain to see what that costs.
_FEW_PODS: Final = 32


class Search:
    """One claim's way to a plan. `was_forbidden`: there was one, but the rule does not allow it."""

    def __init__(
        self, context: PoolContext, claim: Claim, rule: PreemptionRule, *, can_move: bool
    ) -> None:
        self.context = context
        self.claim = claim
        self.rule = rule
        self.can_move = can_move
        self.was_forbidden = False
        self.solution = Solution(context, claim, rule)
        self.trial = self.solution.trial
        self._room = Room(context, self.trial, claim, rule)

    def run(self) -> bool:
        """Whether there is a plan: then the simulation holds it, otherwise nothing.

        If a pod was to move and is evicted instead, a plan without moves may cost less.
        """
        mark = self.checkpoint()
        best: tuple[Price, bool, frozenset[int]] | None = None
        for with_moves in self._ways():
            self._room.is_doubtful = False
            if self._go(with_moves=with_moves):
                if best is None and not self._room.is_doubtful:
                    return True
                price = self.trial.price()
                if best is None or price < best[0]:
                    best = price, with_moves, frozenset(self._room.refused)
            self.rollback(mark)
        return best is not None and self._go(with_moves=best[1], without=best[2])

    def _ways(self) -> Sequence[bool]:
        """Whether it is tried with moves, one attempt after the other."""
        if not self.can_move:
            return (False,)
        return (True, False) if self.rule.can_stop else (True,)

    def _go(self, *, with_moves: bool, without: Collection[int] = frozenset()) -> bool:
        """Whether there is a plan of this kind that makes no room on the nodes `without`; if not,
        the caller undoes what was tried.

        Where the rule does not allow the plan, it may allow one that makes room elsewhere.
        """
        room, mark = self._room, self.checkpoint()
        room.begin(with_moves=with_moves, refused=without)
        for _ in range(_MOST_REFUSALS):
            room.cleared.clear()
            is_placed = self._place_all()
            if not (is_placed and meet_limits(self.trial, room.terms) and self._settle()):
                return False
            if self.solution.is_valid():
                return True
            self.was_forbidden = True
            if not room.cleared or self.context.n_retries == 0:
                return False
            self.context.n_retries -= 1
            room.refused.add(room.cleared[-1])
            self.rollback(mark)
        return False

    def place_in(
        self, pods: Sequence[PodView], pool: str, frame: NodeSet
    ) -> list[Placement] | None:
        """As `topology.DomainPlacer.place_in`."""
        mark = self.checkpoint()
        for in_order in placing_orders(pods):
            if all(self._room.seat(pod, frame) for pod in in_order):
                return [self.trial.seats[pod.uid].placement for pod in pods]
            self.rollback(mark)
        return None

    def cost(self, pods: Sequence[PodView], pool: str, frame: NodeSet) -> tuple[int, ...]:
        """As `DomainPlacer.cost`: few pods are tried, of many the cheapest nodes are summed."""
        if len(pods) <= _FEW_PODS:
            mark = self.checkpoint()
            placed = self.place_in(pods, pool, frame)
            price = self.trial.price() if placed else (IMPOSSIBLE, 0, 0)
            self.rollback(mark)
            return price
        total = [0, 0, 0]
        for shape in shapes_of(pods):
            offers = self._room.offers(shape, frame)
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
            self.context.changed_prices()

    def _place_all(self) -> bool:
        claim, context = self.claim, self.context
        if not claim.is_near and len(claim.chunk) == 1:
            return self._room.seat(claim.chunk[0], WHOLE_POOL)
        if not claim.is_near:
            return self.place_in(claim.chunk, context.pool, WHOLE_POOL) is not None
        lay_out = context.session.places.lay_out
        return lay_out(claim.pending, context.pool, self, self._emptied(), claim.chunk) is not None

    def _emptied(self) -> NodeTable:
        """The nodes as they would be if everything left that may."""
        herd, terms = self.context.herd, self._room.terms
        table = self.context.session.sim.later.copy()
        for p, pod in enumerate(herd.pods):
            is_open = terms.tiers[herd.queue[herd.owner[p]]] or terms.moves[herd.shape[p]]
            if herd.is_here[p] and is_open:
                table.give_back(table.cards.ix[pod.node], pod.demand, pod.cards)
        return table

    def _settle(self) -> bool:
        victims = self.solution.fill_back(self.solution, with_moves=self._room.with_moves)
        if not victims.settle():
            return False
        self._room.is_doubtful |= victims.n_instead > 0
        return True
