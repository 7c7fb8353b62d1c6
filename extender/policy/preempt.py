"""Stage `preempt`: inside a project, work of a better priority takes from work of strictly worse.

Between projects there is no priority; what a project may hold at all is for reclaim to say, so no
fair share is looked at here, only limits and the quota of non-preemptible work. Each plan replaces
work by work of a better priority in the same project, so the project's priorities, counted from the
best down, strictly rise: nothing can go on for ever.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.api.reasons import Reason, Refused
from extender.policy.herd import Herd
from extender.policy.queues import Queue, sum_amounts
from extender.policy.runtimes import protected_by
from extender.policy.session import Session
from extender.policy.taking import Claim, Taking
from extender.policy.terms import Rule, Terms, TermsBuilder
from extender.policy.trial import Trial


def preempt(session: Session) -> None:
    """Serve every pool that allows preemption; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = [pending for pending in session.pending if pool in pending.pools]
            stage = _Preempt(session)
            Taking(session, pool, "preempt", stage.rules_of).serve(here)


@dataclass(slots=True)
class _Preempt:
    session: Session

    def rules_of(self, claim: Claim) -> Sequence[Rule] | Refused:
        """The one rule, unless the project may not hold the claim whoever leaves."""
        leaf, workload = claim.leaf, claim.pending.workload
        refused = self.session.check_room(leaf, workload, claim.need, "later")
        if refused is not None and refused.reason is not Reason.OVER_LIMIT:
            return refused
        return [self._rule(claim)]

    def _rule(self, claim: Claim) -> Rule:
        project, priority = claim.leaf.project, claim.pending.workload.priority
        return Rule(
            key=("preempt", project, priority),
            reason=Reason.PREEMPTED,
            terms=lambda herd: self._terms(herd, project, priority),
            may_keep=lambda trial: self._may_keep(claim, trial),
            max_moves=self.session.settings.max_moves,
            note=lambda _: f"work of priority {priority} in {project.name} goes before it",
        )

    def _terms(self, herd: Herd, project: Queue, priority: int) -> Terms:
        terms = TermsBuilder(herd)
        for giver in herd.queues:
            is_own = giver.project is project
            terms.add(int(is_own), is_mobile=is_own)
        return terms.finish(protected_by(self.session, herd, _preempt_runtime), priority)

    def _may_keep(self, claim: Claim, trial: Trial) -> bool:
        amounts = sum_amounts(placement.amounts for placement in trial.placements)
        workload = claim.pending.workload
        return self.session.check_room(claim.leaf, workload, amounts, "later") is None


def _preempt_runtime(queues: Iterable[Queue]) -> int:
    return max(queue.preempt_min_runtime_s for queue in queues)
