"""After the preemptor is placed, lets victims keep running one by one, costliest first, as long as
the preemptor still fits."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from extender.policy.placement.no_fit import Fullness
from extender.policy.preemption.statement import (
    Assignment,
    EvictionUnit,
    PreemptionRequest,
    Statement,
)
from extender.state.model import GPU, PodView


@dataclass(slots=True)
class FillBack:
    """Keeps victims of a statement.

    `fullness` knows which shapes fit nowhere in the pool. `is_allowed` says whether the plan is
    allowed in its current state. `beside` are statements of the cycle's plan whose pods may be
    placed elsewhere so that a victim can stay.
    """

    request: PreemptionRequest
    statement: Statement
    fullness: Fullness
    is_allowed: Callable[[], bool]
    beside: Sequence[Statement] = ()

    def run(self) -> None:
        """Keep each victim without which the preemptor still fits; then place all of its pods again
        where they fit best."""
        if not self._is_tight():
            self._keep_all_unneeded()
        if self.request.is_alike and len(self.statement.assignments) > 1:
            self.statement.reassign(self.request.chunk)

    def review(self) -> None:
        """As `run`, for a plan that was made when less was free than is now; places no pod again
        without need."""
        if not self._is_tight() or self._may_fit_now():
            self._keep_all_unneeded()

    def _keep_all_unneeded(self) -> None:
        statement, candidates = self.statement, self.statement.candidates
        for unit in self._costliest_first():
            self._keep_if_unneeded(unit.w, unit.pods, partial(statement.keep, unit))
        for p in sorted(
            statement.moving,
            key=lambda p: (
                -candidates.rank[candidates.owner[p]],
                -candidates.lost[p],
                candidates.pods[p].uid,
            ),
        ):
            self._keep_if_unneeded(candidates.owner[p], (p,), partial(statement.cancel_move, p))

    def _keep_if_unneeded(self, w: int, pods: Sequence[int], keep: Callable[[], None]) -> None:
        """Keep these pods of workload w if the preemptor still fits, or fits after those in
        `beside` make way."""
        mark = self.statement.checkpoint()
        keep()
        is_legal = self.statement.candidates.is_legal(w)
        is_kept = is_legal and self._try_to_keep(pods, ())
        if is_legal and not is_kept and self.beside:
            is_kept = self._try_to_keep(pods, self.beside)
        if not is_kept:
            self.statement.rollback(mark)

    def _try_to_keep(self, pods: Sequence[int], beside: Sequence[Statement]) -> bool:
        statements = (self.statement, *beside)
        marks = _checkpoint(statements)
        if self._make_way(pods, statements) and self.is_allowed():
            return True
        _rollback(statements, marks)
        return False

    def _make_way(self, stay: Sequence[int], statements: Sequence[Statement]) -> bool:
        """Whether the pods in `stay` fit after the statements' pods on their nodes are placed
        elsewhere; the caller rolls back a False."""
        statement, pods = self.statement, self.statement.candidates.pods
        nodes = {pods[p].node for p in stay}
        if not self._are_apart(stay):
            # A pod with anti-affinity may be on any node of a domain.
            nodes |= {placement.node for placement in statement.placements}
        elif not self._is_over(nodes):
            return True
        unassigned = [(owner, each) for owner in statements for each in owner.unassign_on(nodes)]
        is_placed = _place_again(unassigned, statements)
        return is_placed and not self._is_over(nodes) and self._are_apart(stay)

    def _are_apart(self, stay: Iterable[int]) -> bool:
        """Whether no pod placed in this cycle has anti-affinity to the pods in `stay`."""
        statement, pods = self.statement, self.statement.candidates.pods
        is_apart = statement.session.places.pod_affinity.is_apart
        return all(is_apart(pods[p], statement.ix_of(pods[p].node)) for p in stay)

    def _is_over(self, nodes: Iterable[str]) -> bool:
        return any(self.statement.is_over(self.statement.ix_of(node)) for node in nodes)

    def _is_tight(self) -> bool:
        """A cheap check that no victim can stay: no node has room for another pod of the
        preemptor's shape, and each victim's node has exactly one of its pods."""
        statement, pods = self.statement, self.statement.candidates.pods
        shape = self.request.shapes[0]
        # A moved pod that stays frees its new placement, which the preemptor may need.
        if not self.request.is_alike or statement.moving:
            return False
        if not self.fullness.is_full(shape.demand, shape.constraints):
            return False
        n_assigned = Counter(
            assignment.placement.node for assignment in statement.assignments.values()
        )
        for unit in statement.units.values():
            node = pods[unit.pods[0]].node
            if n_assigned[node] != 1 or any(pods[p].node != node for p in unit.pods):
                return False
        return True

    def _may_fit_now(self) -> bool:
        """Whether any victim's node has as many GPUs free as the victim holds."""
        statement, candidates = self.statement, self.statement.candidates
        cards = statement.session.sim.later.cards
        return any(
            sum(cards.free_of(statement.ix_of(candidates.pods[unit.pods[0]].node)))
            >= candidates.amounts_of(unit.pods)[GPU]
            for unit in statement.units.values()
        )

    def _costliest_first(self) -> list[EvictionUnit]:
        candidates = self.statement.candidates
        return sorted(
            self.statement.units.values(),
            key=lambda unit: (
                -candidates.rank[unit.w],
                -unit.lost,
                -candidates.age[unit.w],
                candidates.pods[unit.pods[0]].uid,
            ),
        )


def _place_again(
    unassigned: Sequence[tuple[Statement, Assignment]], statements: Sequence[Statement]
) -> bool:
    """Place each of these unassigned pods again; on False nothing has changed."""
    marks = _checkpoint(statements)
    was = {each.placement.pod.uid: (owner, each.frame) for owner, each in unassigned}
    pods, first = [each.placement.pod for _, each in unassigned], statements[0]

    def place_all(in_order: Sequence[PodView]) -> bool | None:
        if all(was[pod.uid][0].assign(pod, was[pod.uid][1]) for pod in in_order):
            return True
        _rollback(statements, marks)
        return None

    return first.session.places.try_orders(pods, first.pool, place_all) is not None


def _checkpoint(statements: Sequence[Statement]) -> list[int]:
    return [each.checkpoint() for each in statements]


def _rollback(statements: Sequence[Statement], marks: Sequence[int]) -> None:
    """In any order: the first with newer steps rolls the simulation back for all."""
    for each, mark in zip(statements, marks, strict=True):
        each.rollback(mark)
