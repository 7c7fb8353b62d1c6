"""A solution: where the pods of a request go, and which pods are evicted or moved for it."""

from collections.abc import Collection
from dataclasses import dataclass

from extender.policy.preemption.fill_back import Victims
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.statement import Claim, Trial
from extender.policy.queues.tree import RESOURCES, Queue
from extender.policy.session import placed_amounts
from extender.state.model import Amounts


class Solution:
    """Of one request by one rule; `trial` has all of it."""

    def __init__(self, context: PoolContext, claim: Claim, rule: PreemptionRule) -> None:
        self.context = context
        self.claim = claim
        self.rule = rule
        self.trial = Trial(context.session, context.pool, context.herd, context.touched, claim)
        # Pods that lack the peers that their affinity asks for, whatever is done here.
        self._lonely = context.session.places.pod_affinity.unsatisfied()

    def review(self) -> None:
        """Keep the victims that are not needed any more, since places came free."""
        herd, trial = self.context.herd, self.trial
        leaves = {herd.leaves[unit.w] for unit in trial.units.values()} | {self.claim.leaf}
        givers = {queue for leaf in leaves for queue in leaf.chain}
        check = _ReviewCheck(self, givers, placed_amounts(trial.placements))
        self.fill_back(check, with_moves=True).review()

    def is_valid(self) -> bool:
        """Whether the rule allows the solution, which has a victim if the rule asks for one."""
        trial = self.trial
        is_free = not trial.units and not trial.moving
        if is_free and self.rule.needs_victims and not self.claim.pending.is_behind:
            return False
        return self.is_allowed()

    def is_allowed(self) -> bool:
        """Whether the rule allows the plan as it is, and all suit those beside whom they are, whom
        nobody leaves alone who was given a place before."""
        return self.rule.validate(self.claim, self.trial) and self.do_all_suit()

    def do_all_suit(self) -> bool:
        """Whether all who get places suit those beside whom they are."""
        trial, beside = self.trial, self.context.session.places.pod_affinity
        if not beside:
            return True
        placed = (*trial.placements, *(place for place in trial.moving.values() if place))
        do_all_stand = all(beside.stands(p.pod, trial.ix_of(p.node), "later") for p in placed)
        return do_all_stand and not beside.leaves_unsatisfied(self._lonely)

    def may_hold(self, had: Amounts) -> bool:
        """Whether its quotas allow what it holds, where that is more than it `had`."""
        has, workload = placed_amounts(self.trial.placements), self.claim.pending.workload
        more = [r for r in RESOURCES if has[r] > had[r]]
        return (
            workload.is_preemptible
            or not more
            or all(
                queue.allocated_np[r] <= queue.np_quota[r]
                for queue in self.claim.leaf.chain
                for r in more
            )
        )

    def fill_back(self, check: "Solution | _ReviewCheck", *, with_moves: bool) -> Victims:
        """What decides about the victims."""
        rule, context = self.rule, self.context
        return Victims(
            self.claim,
            self.trial,
            context.terms(rule, with_moves=with_moves),
            context.fullness,
            check,
            can_move=rule.can_move and rule.can_stop,
        )


@dataclass(slots=True)
class _ReviewCheck:
    """Whether a solution is allowed once it is part of the plan: victims that ran before may go on
    beside the preemptor, as far as limits allow it. `had` is what the preemptor held before."""

    solution: Solution
    givers: Collection[Queue]
    had: Amounts

    def is_allowed(self) -> bool:
        """As `Solution.is_allowed`."""
        herd, solution = self.solution.context.herd, self.solution
        return (
            not any(map(herd.is_over_limit, self.givers))
            and solution.do_all_suit()
            and solution.may_hold(self.had)
        )
