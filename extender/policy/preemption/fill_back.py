"""After the preemptor is placed, decides for each victim whether it is evicted, moved, or keeps
running.

Pods that are to move and have no new place get one, or are evicted. Then victims are returned one
by one, the costliest first, as long as the preemptor keeps its places.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from extender.policy.placement.no_fit import Fullness
from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.relocation import move_or_evict, relocation_order
from extender.policy.preemption.statement import (
    Assignment,
    EvictionUnit,
    PreemptionRequest,
    Statement,
)
from extender.state.model import GPU


class PlanCheck(Protocol):
    """Says what a plan may be."""

    def is_allowed(self) -> bool:
        """Whether the plan is allowed as it is now."""


@dataclass(slots=True)
class FillBack:
    """The victims of a statement.

    `fullness` knows what has no place in the pool. `beside` are statements of the cycle's plan, the
    pods of which may be placed elsewhere for a victim that stays.
    """

    request: PreemptionRequest
    statement: Statement
    eligibility: Eligibility
    fullness: Fullness
    check: PlanCheck
    beside: Sequence[Statement] = ()

    def run(self) -> bool:
        """Decide about all of them; False if a pod can neither move nor be evicted."""
        statement = self.statement
        homeless = [p for p, place in statement.moving.items() if place is None]
        for p in relocation_order(statement.candidates, self.eligibility, homeless):
            is_homeless = p in statement.moving and statement.moving[p] is None
            if is_homeless and not move_or_evict(statement, self.eligibility, p):
                return False
        self.give_back()
        if self.request.is_alike and len(statement.assignments) > 1:
            statement.reassign(self.request.chunk)
        return True

    def give_back(self) -> None:
        """Give back each victim without which the preemptor still has its places."""
        if not self._is_tight():
            self._give_back_each()

    def review(self) -> None:
        """The same for a plan that was made when less was free than is now."""
        if not self._is_tight() or self._may_fit_now():
            self._give_back_each()

    def _give_back_each(self) -> None:
        statement, candidates = self.statement, self.statement.candidates
        for unit in self._costliest_first():
            self._give_back_one(unit.w, unit.pods, partial(statement.keep, unit))
        for p in sorted(
            statement.moving,
            key=lambda p: (
                -candidates.rank[candidates.owner[p]],
                -candidates.lost[p],
                candidates.pods[p].uid,
            ),
        ):
            self._give_back_one(candidates.owner[p], (p,), partial(statement.cancel_move, p))

    def _give_back_one(self, w: int, pods: Sequence[int], keep: Callable[[], None]) -> None:
        """Let these pods of workload w stay if the preemptor has its places all the same, or has
        them once the statements beside it give way, too."""
        mark = self.statement.checkpoint()
        keep()
        is_legal = self.statement.candidates.is_legal(w)
        is_kept = is_legal and self._try_to_keep(pods, ())
        if is_legal and not is_kept and self.beside:
            is_kept = self._try_to_keep(pods, self.beside)
        if not is_kept:
            self.statement.rollback(mark)

    def _try_to_keep(self, pods: Sequence[int], beside: Sequence[Statement]) -> bool:
        giving = (self.statement, *beside)
        marks = _checkpoint(giving)
        if self._make_way(pods, giving) and self.check.is_allowed():
            return True
        _rollback(giving, marks)
        return False

    def _make_way(self, stay: Sequence[int], giving: Sequence[Statement]) -> bool:
        """Whether the pods that stay have their places, once the pods of these statements there are
        elsewhere; what was tried in vain is for the caller to undo."""
        statement, pods = self.statement, self.statement.candidates.pods
        nodes = {pods[p].node for p in stay}
        if not self._are_apart(stay):
            # A pod with anti-affinity may be on any node of a domain.
            nodes |= {placement.node for placement in statement.placements}
        elif not self._is_over(nodes):
            return True
        taken_back = [(owner, each) for owner in giving for each in owner.unassign_on(nodes)]
        is_placed = _assign_again(taken_back, giving)
        return is_placed and not self._is_over(nodes) and self._are_apart(stay)

    def _are_apart(self, stay: Iterable[int]) -> bool:
        """Whether no pod placed in this cycle keeps away from the pods that stay."""
        statement, pods = self.statement, self.statement.candidates.pods
        is_apart = statement.session.places.pod_affinity.is_apart
        return all(is_apart(pods[p], statement.ix_of(pods[p].node)) for p in stay)

    def _is_over(self, nodes: Iterable[str]) -> bool:
        return any(self.statement.is_over(self.statement.ix_of(node)) for node in nodes)

    def _is_tight(self) -> bool:
        """Whether no victim can stay for plain reasons: no node takes one pod more, in the one pool
        that may be used, and each victim is on a node where the one pod of the preemptor needed
        it."""
        statement, pods = self.statement, self.statement.candidates.pods
        shape = self.request.shapes[0]
        # A pod that stays gives up its new place, which may be what the preemptor needs.
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
        """Whether any victim's node has so much left over as the victim holds."""
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


def _assign_again(
    taken_back: Sequence[tuple[Statement, Assignment]], giving: Sequence[Statement]
) -> bool:
    """Give each pod that was taken back another place; False and nothing done where one has
    none."""
    marks = _checkpoint(giving)
    was = {each.placement.pod.uid: (owner, each.frame) for owner, each in taken_back}
    pods, first = [each.placement.pod for _, each in taken_back], giving[0]
    for in_order in first.session.places.orders(pods, first.pool):
        if all(was[pod.uid][0].assign(pod, was[pod.uid][1]) for pod in in_order):
            return True
        _rollback(giving, marks)
    return False


def _checkpoint(statements: Sequence[Statement]) -> list[int]:
    return [each.checkpoint() for each in statements]


def _rollback(statements: Sequence[Statement], marks: Sequence[int]) -> None:
    """In any order: the first that has done anything since takes the simulation back for all."""
    for each, mark in zip(statements, marks, strict=True):
        each.rollback(mark)
