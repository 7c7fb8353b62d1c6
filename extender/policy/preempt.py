"""Stage `preempt`: inside a project, work of a better priority takes from work of strictly worse.

Between projects there is no priority; what a project may hold at all is for reclaim to say, so no
fair share is looked at here, only limits and the quota of non-preemptible work. Each plan replaces
work by work of a better priority in the same project, so the project's priorities, counted from the
best down, strictly rise: nothing can go on for ever.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.policy.chunks import Pending
from extender.policy.herd import Herd
from extender.policy.queues import Queue, sum_amounts
from extender.policy.runtimes import protected_by
from extender.policy.session import Session
from extender.policy.solver import solver_of
from extender.policy.taking import Taking
from extender.policy.terms import Rule, Terms, TermsBuilder
from extender.policy.trial import Claim, Trial


def preempt(session: Session) -> None:
    """Serve every pool that allows preemption; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = _who_has_worse(session, pool)
            stage = _Preempt(session)
            Taking(session, pool, "preempt", stage.rules_of).serve(here)


def _who_has_worse(session: Session, pool: str) -> list[Pending]:
    """Those that wait and whose projects run anything of a worse priority."""
    here = [pending for pending in session.pending if pool in pending.pools]
    if not here:
        return []
    worst: dict[Queue, int] = {}
    herd = solver_of(session, pool).herd
    for leaf, priority in zip(herd.leaves, herd.priority, strict=True):
        project = leaf.project
        worst[project] = min(priority, worst.get(project, priority))
    found = []
    for pending in here:
        project = session.queue_of(pending.workload, pool).project
        if worst.get(project, pending.workload.priority) < pending.workload.priority:
            found.append(pending)
    return found


@dataclass(slots=True)
class _Preempt:
    session: Session
    _rules: dict[tuple[Queue, int], Rule] = field(default_factory=dict)

    def rules_of(self, claim: Claim) -> Sequence[Rule] | Refused:
        """The one rule, unless the project may not hold the claim whoever leaves."""
        leaf, workload = claim.leaf, claim.pending.workload
        refused = self.session.check_room(leaf, workload, claim.need, "later")
        if refused is not None and refused.reason is not Reason.OVER_LIMIT:
            return refused
        return (self._rule(leaf.project, workload.priority),)

    def _rule(self, project: Queue, priority: int) -> Rule:
        rule = self._rules.get((project, priority))
        if rule is None:
            rule = self._rules[project, priority] = Rule(
                reason=Reason.PREEMPTED,
                terms=lambda herd: self._terms(herd, project, priority),
                may_keep=self._may_keep,
                note=lambda claim, _: f"{claim.key} is of priority {priority} in {project.name}",
                max_moves=self.session.settings.max_moves,
            )
        return rule

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
