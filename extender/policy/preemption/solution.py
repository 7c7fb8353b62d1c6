"""A solution: the placements of a request, and the pods that are evicted or moved for it."""

from collections.abc import Sequence

from extender.policy.preemption.fill_back import FillBack
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.queue import RESOURCES
from extender.policy.session import placed_amounts
from extender.state.model import Amounts


class Solution:
    """The solution of one request by one rule; `statement` has its operations."""

    def __init__(
        self, context: PoolContext, request: PreemptionRequest, rule: PreemptionRule
    ) -> None:
        self.context = context
        self.request = request
        self.rule = rule
        self.statement = Statement(
            context.session, context.pool, context.candidates, context.touched
        )
        # Pods whose affinity was unsatisfied before this solution.
        self._unsatisfied = context.session.places.pod_affinity.unsatisfied()

    def fill_back(self) -> None:
        """Keep the victims without which the preemptor still fits."""
        FillBack(self.request, self.statement, self.context.fullness, self.is_allowed).run()

    def review(self, beside: Sequence["Solution"]) -> None:
        """Keep the victims that are not needed any more, because resources were freed. The pods of
        `beside` may be placed elsewhere for that."""
        candidates, solutions = self.context.candidates, (self, *beside)
        leaves = {candidates.leaves[unit.w] for unit in self.statement.units.values()}
        leaves.update(each.request.leaf for each in solutions)
        victim_queues = {queue for leaf in leaves for queue in leaf.chain}
        had = [placed_amounts(each.statement.placements) for each in solutions]

        def is_allowed() -> bool:
            """Whether limits, quotas and affinity allow the victims beside the preemptors."""
            return not any(map(candidates.is_over_limit, victim_queues)) and all(
                each.fits_affinity() and each.may_hold(before)
                for each, before in zip(solutions, had, strict=True)
            )

        others = [each.statement for each in beside]
        FillBack(self.request, self.statement, self.context.fullness, is_allowed, others).review()

    def is_valid(self) -> bool:
        """Whether the rule allows the solution, which has a victim if the rule needs one."""
        statement = self.statement
        is_free = not statement.units and not statement.moving
        if is_free and self.rule.needs_victims and not self.request.pending.is_behind:
            return False
        return self.is_allowed()

    def is_allowed(self) -> bool:
        """Whether the rule and pod affinity allow the solution in its current state."""
        return self.rule.validate(self.request, self.statement) and self.fits_affinity()

    def fits_affinity(self) -> bool:
        """Whether pod affinity and anti-affinity hold for its pods and those placed before."""
        statement, beside = self.statement, self.context.session.places.pod_affinity
        if not beside:
            return True
        placed = (*statement.placements, *(place for place in statement.moving.values() if place))
        do_all_fit = all(beside.can_stay(p.pod, statement.ix_of(p.node), "later") for p in placed)
        return do_all_fit and not beside.leaves_unsatisfied(self._unsatisfied)

    def may_hold(self, had: Amounts) -> bool:
        """Whether non-preemptible quotas allow what the solution holds in excess of `had`."""
        has, workload = placed_amounts(self.statement.placements), self.request.pending.workload
        more = [r for r in RESOURCES if has[r] > had[r]]
        return (
            workload.is_preemptible
            or not more
            or all(
                queue.allocated_np[r] <= queue.np_quota[r]
                for queue in self.request.leaf.chain
                for r in more
            )
        )
