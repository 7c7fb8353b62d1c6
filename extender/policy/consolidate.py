"""Stage `consolidate`: running work moves together, so that what waits for want of one whole place
has it. Nobody stops: every moved pod has its new place in the same plan.

Only preemptible work is moved, and only for preemptible work that waits. What is moved holds no
more GPUs than what is placed, for moving costs the work done since the last checkpoint; nobody is
moved for work above its fair share while work within its own waits, which reclaim can help. Where a
pool spreads its pods they are apart on purpose, and none are moved.

Each plan places work that waited and takes no place from anybody, so what waits strictly falls, and
with nothing new it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.api.reasons import Reason, Refused
from extender.policy.chunks import Pending
from extender.policy.herd import Herd
from extender.policy.queues import sum_amounts
from extender.policy.reclaim import deserved
from extender.policy.session import Session
from extender.policy.taking import Claim, Taking, first_over
from extender.policy.terms import Rule, Terms, TermsBuilder
from extender.policy.trial import Trial
from extender.state.model import GPU


def consolidate(session: Session) -> None:
    """Serve every pool that packs; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.policy != "fairshare" or "spread" in (view.gpu_placement, view.cpu_placement):
            continue
        here = [
            pending
            for pending in session.pending
            if pool in pending.pools and pending.workload.is_preemptible
        ]
        Taking(session, pool, "consolidate", _Consolidate(session, pool).rules_of).serve(here)


@dataclass(slots=True)
class _Consolidate:
    session: Session
    pool: str

    def rules_of(self, claim: Claim) -> Sequence[Rule] | Refused:
        """The one rule, unless the queue may not hold the claim, or others go first."""
        session, workload = self.session, claim.pending.workload
        refused = session.check_room(claim.leaf, workload, claim.need, "later")
        if refused is not None:
            return refused
        if first_over(claim, deserved) is not None and self._does_anybody_deserve():
            return Refused(
                Reason.OVER_FAIR_SHARE,
                f"{workload.key}: nobody is moved for it while others wait within their shares",
            )
        return [self._rule(claim)]

    def _does_anybody_deserve(self) -> bool:
        """Whether reclaim could yet serve work that waits within its share."""
        session = self.session
        if "reclaim" not in session.settings.stages:
            return False
        return session.snapshot.pools[self.pool].has_preemption and any(
            self._is_deserving(pending) for pending in session.pending if self.pool in pending.pools
        )

    def _is_deserving(self, pending: Pending) -> bool:
        leaf = self.session.queue_of(pending.workload, self.pool)
        claim = Claim(leaf, pending, pending.chunk, pending.need())
        return first_over(claim, deserved) is None

    def _rule(self, claim: Claim) -> Rule:
        return Rule(
            key=("consolidate",),
            reason=Reason.MOVED,
            terms=self._terms,
            may_keep=lambda trial: self._may_keep(claim, trial),
            note=lambda giver: giver.name,
            can_stop=False,
            max_moves=self.session.settings.max_moves,
            most_moved_milli=claim.need[GPU],
        )

    def _terms(self, herd: Herd) -> Terms:
        terms = TermsBuilder(herd)
        for _ in herd.queues:
            terms.add(0, is_mobile=True)
        return terms.finish(herd.nobody)

    def _may_keep(self, claim: Claim, trial: Trial) -> bool:
        amounts = sum_amounts(placement.amounts for placement in trial.placements)
        workload = claim.pending.workload
        return self.session.check_room(claim.leaf, workload, amounts, "later") is None
