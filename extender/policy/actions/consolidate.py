"""Stage `consolidate`: running work moves together, so that what waits for want of one whole place
has it. Nobody stops: every moved pod has its new place in the same plan.

Only preemptible work is moved, and only for preemptible work that waits. What is moved holds no
more GPUs than what is placed, for moving costs the work done since the last checkpoint; nobody is
moved for work above its fair share before reclaim has served the work that waits within its own.
Where a pool spreads its pods they are apart on purpose, and none are moved.

Each plan places work that waited and takes no place from anybody, so what waits strictly falls, and
with nothing new it ends.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.kernels.sums import sum_idle
from extender.policy.actions.preemption_loop import DESERVES, Taking, first_over
from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.eligibility import Rule, Terms, TermsBuilder
from extender.policy.preemption.entitled import Deserving
from extender.policy.preemption.statement import Claim, Trial
from extender.policy.queues.tree import sum_amounts
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU


def consolidate(session: Session) -> None:
    """Serve every pool that packs; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.policy != "fairshare" or "spread" in (view.gpu_placement, view.cpu_placement):
            continue
        stage = _Consolidate(session, pool)
        here = [pending for pending in session.pending if pool in pending.pools]
        could = [pending for pending in here if stage.could_serve(pending)]
        # In strict order those for whom nobody can be moved may be before those for whom some can.
        is_strict = view.job_order == "strict-fifo"
        Taking(session, pool, "consolidate", stage.rules_of).serve(
            here if could and is_strict else could
        )


@dataclass(slots=True)
class _Consolidate:
    session: Session
    pool: str
    rule: Rule = field(init=False)
    deserving: Deserving = field(init=False)
    idle: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.idle = _idle(self.session, self.pool)
        self.deserving = Deserving(self.session, self.pool)
        self.rule = Rule(
            reason=Reason.MOVED,
            terms=_nobody_stops,
            may_keep=self._may_keep,
            note=lambda _claim, _giver: "",
            can_stop=False,
            max_moves=self.session.settings.max_moves,
            is_move_bounded=True,
        )

    def could_serve(self, pending: Pending) -> bool:
        """Whether it may have others moved, and needs no more than is idle: moving makes nothing
        idle that is not."""
        if not pending.workload.is_preemptible:
            return False
        need = pending.need()
        # Idle instances are not summed up.
        milli = need[0] - sum(pod.demand.counted_milli for pod in pending.chunk)
        return milli <= self.idle[0] and need[1] <= self.idle[1] and need[2] <= self.idle[2]

    def rules_of(self, claim: Claim) -> Sequence[Rule] | Refused:
        """The one rule, unless the queue may not hold the claim, or others go first."""
        session, workload = self.session, claim.pending.workload
        if not self.could_serve(claim.pending):
            return Refused(Reason.INSUFFICIENT_GPU, f"{claim.key}: nobody is moved for it")
        refused = session.check_room(claim.leaf, workload, claim.need, "later")
        if refused is not None:
            return refused
        if first_over(claim, DESERVES) is not None and self._is_reclaim_first():
            session.is_reclaim_awaited = True
            return Refused(
                Reason.OVER_FAIR_SHARE,
                f"{claim.key}: nobody is moved for it while others wait within their shares",
            )
        return (self.rule,)

    def _is_reclaim_first(self) -> bool:
        """Whether reclaim has yet to serve work that waits within its share."""
        session = self.session
        if session.has_reclaimed or "reclaim" not in session.settings.stages:
            return False
        return session.snapshot.pools[self.pool].has_preemption and self.deserving.is_there_any()

    def _may_keep(self, claim: Claim, trial: Trial) -> bool:
        amounts = sum_amounts(placement.amounts for placement in trial.placements)
        workload = claim.pending.workload
        return self.session.check_room(claim.leaf, workload, amounts, "later") is None


def _idle(session: Session, pool: str) -> "array[int]":
    """What the pool's nodes have free together, or kept, once those that leave have left."""
    idle = array("q", bytes(24))
    ready = array("i", session.places.matcher.ready(pool))
    sum_idle(session.sim.later, ready, idle)
    kept = session.reservations.in_pool(pool)
    for _, _, cards in kept.places if kept else ():
        idle[GPU] += sum(card.milli for card in cards)
    return idle


def _nobody_stops(herd: Herd) -> Terms:
    terms = TermsBuilder(herd)
    for _ in herd.queues:
        terms.add(0, is_mobile=True)
    return terms.finish(herd.nobody)
