"""One attempt to place a request pod by pod, selecting victims where no node has room.

A `Search` is a `DomainPlacer`: it makes room in each topology domain that is tried.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from extender.kernels.node_victims import IMPOSSIBLE
from extender.policy.placement.node_filter import WHOLE_POOL, NodeSet
from extender.policy.plan import Placement
from extender.policy.preemption.limits import meet_limits
from extender.policy.preemption.make_room import NodeClearing
from extender.policy.preemption.node_costs import Cost
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solution import Solution
from extender.policy.preemption.statement import PreemptionRequest
from extender.policy.workloads.pod_classes import shapes_of
from extender.state.model import PodView
from extender.state.nodes import NodeTable

#: Nodes that are tried for a single pod while the rule forbids the plan.
MOST_NODES: Final = 4
#: Up to this many pods are placed in every domain to compare costs.
_FEW_PODS: Final = 32


class Search:
    """The search for one request. `was_forbidden`: the rule forbade a solution that was found;
    `was_over_limit`: a limit forbade it."""

    def __init__(
        self,
        context: PoolContext,
        request: PreemptionRequest,
        rule: PreemptionRule,
        *,
        can_move: bool,
    ) -> None:
        self.context = context
        self.request = request
        self.rule = rule
        self.can_move = can_move
        self.was_forbidden = False
        self.was_over_limit = False
        self.solution = Solution(context, request, rule)
        self.statement = self.solution.statement
        self._clearing = NodeClearing(context, self.statement, request, rule)

    def run(self) -> bool:
        """Whether there is a plan; only then the simulation holds anything.

        Victims are moved where possible. If others are evicted beside them, or a move turned out to
        be impossible, evictions alone may cost less: then the cheaper of the two plans is taken.
        """
        mark = self.checkpoint()
        best: tuple[Cost, bool] | None = None
        for with_moves in self._attempts():
            if self._attempt_on_nodes(mark, with_moves=with_moves):
                if best is None and not self._is_mixed():
                    return True
                cost = self.statement.cost()
                best = min(best or (cost, with_moves), (cost, with_moves), key=itemgetter(0))
            self.rollback(mark)
        return best is not None and self._attempt_on_nodes(mark, with_moves=best[1])

    def _is_mixed(self) -> bool:
        """Whether some victims are evicted though victims were selected to be moved."""
        statement, clearing = self.statement, self._clearing
        return bool(statement.units) and bool(statement.moving or clearing.was_evicted_instead)

    def _attempt_on_nodes(self, mark: int, *, with_moves: bool) -> bool:
        """As `_attempt`, but while the rule forbids the plan of a single pod the next cheapest node
        is tried, up to `MOST_NODES` in all."""
        was_forbidden = self.was_forbidden
        self._clearing.passed_over.clear()
        self._clearing.was_evicted_instead = False
        for _ in range(MOST_NODES):
            self.was_forbidden = False
            if self._attempt(with_moves=with_moves):
                return True
            was_forbidden |= self.was_forbidden
            placements, statement = self.statement.placements, self.statement
            has_victims = bool(statement.units or statement.moving)
            if not self.was_forbidden or not has_victims or len(placements) != 1:
                break
            self._clearing.passed_over.add(statement.ix_of(placements[0].node))
            self.rollback(mark)
        self.was_forbidden = was_forbidden
        return False

    def _attempts(self) -> Sequence[bool]:
        """For each attempt, whether it may move pods."""
        if not self.can_move:
            return (False,)
        return (True, False) if self.rule.can_evict else (True,)

    def _attempt(self, *, with_moves: bool) -> bool:
        """Whether there is a plan of this kind; the caller rolls back a False."""
        self._clearing.with_moves = with_moves
        eligibility = self._clearing.eligibility
        if not self._place_all():
            return False
        if not meet_limits(self.request.leaf, self.statement, eligibility):
            self.was_over_limit = True
            return False
        self.solution.fill_back()
        self.was_forbidden = not self.solution.is_valid()
        return not self.was_forbidden

    def place_in(
        self, pods: Sequence[PodView], pool: str, frame: NodeSet
    ) -> list[Placement] | None:
        """As `DomainPlacer.place_in`."""
        mark = self.checkpoint()

        def place_all(in_order: Sequence[PodView]) -> list[Placement] | None:
            if all(self._clearing.assign(pod, frame) for pod in in_order):
                return [self.statement.assignments[pod.uid].placement for pod in pods]
            self.rollback(mark)
            return None

        return self.context.session.places.try_orders(pods, pool, place_all)

    def cost(self, pods: Sequence[PodView], pool: str, frame: NodeSet) -> tuple[int, ...]:
        """As `DomainPlacer.cost`: places few pods; for many it sums the lowest costs of nodes."""
        if len(pods) <= _FEW_PODS:
            mark = self.checkpoint()
            placed = self.place_in(pods, pool, frame)
            cost = self.statement.cost() if placed else (IMPOSSIBLE, 0, 0)
            self.rollback(mark)
            return cost
        total = [0, 0, 0]
        for shape in shapes_of(pods):
            costs = self._clearing.costs(shape, frame)
            for lowest in costs.lowest(shape.count):
                total = [one + more for one, more in zip(total, lowest, strict=True)]
        return tuple(total)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return self.statement.checkpoint()

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, and discard costs computed since."""
        if self.statement.checkpoint() > mark:
            self.statement.rollback(mark)
            self.context.forget_costs()

    def _place_all(self) -> bool:
        request, context = self.request, self.context
        chunk, tree = request.chunk, request.nearness
        if tree is not None:
            domains = context.session.places.domains(context.pool, self, self._emptied())
            return domains.run(request.pending, chunk, tree) is not None
        if len(chunk) == 1:
            return self._clearing.assign(chunk[0], WHOLE_POOL)
        return self.place_in(chunk, context.pool, WHOLE_POOL) is not None

    def _emptied(self) -> NodeTable:
        """The nodes as if all eligible pods were gone."""
        candidates, eligibility = self.context.candidates, self._clearing.eligibility
        table = self.context.session.sim.later.copy()
        for p, pod in enumerate(candidates.pods):
            is_open = (
                eligibility.tiers[candidates.queue[candidates.owner[p]]]
                or eligibility.moves[candidates.shape[p]]
            )
            if candidates.is_here[p] and is_open:
                table.give_back(table.cards.ix[pod.node], pod.demand, pod.cards)
        return table
