"""Stage `preempt`: inside a project, a pending workload evicts running ones of strictly lower
priority.

While the project is within its quota, its inference, interactive and build workloads precede its
training whatever the priorities, as they do in the order of pending work: they may evict training
of any priority, and training evicts none of them.

Between projects there is no priority. What a project may hold is for reclaim to decide: limits
apply here, the quota of non-preemptible work, and preemptible work does not lift its project above
its fair share, or above what it held before, while work of other projects waits within theirs,
which would reclaim it.

Each plan replaces work by work that precedes it in the same project, so what the project runs,
counted from the first in order, strictly improves, and the stage comes to an end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.policy.actions.preemption_loop import Taking
from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.eligibility import NOTHING, Rule, Terms, TermsBuilder
from extender.policy.preemption.entitled import Deserving
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.solver import solver_of
from extender.policy.preemption.statement import Claim, Trial
from extender.policy.queues.tree import Queue, larger, sum_amounts
from extender.policy.session import Session
from extender.policy.workloads.job_order import FIRST_KINDS
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts


def preempt(session: Session) -> None:
    """Serve every pool that allows preemption; `session.pending` is left with what still waits."""
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = _who_has_worse(session, pool)
            stage = _Preempt(session, Deserving(session, pool))
            Taking(session, pool, "preempt", stage.rules_of).serve(here)


def _who_has_worse(session: Session, pool: str) -> list[Pending]:
    """Those that wait and whose projects run anything of a worse priority."""
    here = [pending for pending in session.pending if pool in pending.pools]
    best = max((pending.workload.priority for pending in here), default=0)
    is_kind_first = any(pending.workload.kind in FIRST_KINDS for pending in here)
    # Where nothing at all is of a worse priority, nobody is laid out to be searched.
    if not here or not (
        is_kind_first or any(w.priority < best for w in session.snapshot.workloads.values())
    ):
        return []
    worst: dict[Queue, int] = {}
    herd = solver_of(session, pool).herd
    for leaf, priority in zip(herd.leaves, herd.priority, strict=True):
        project = leaf.project
        worst[project] = min(priority, worst.get(project, priority))
    with_training = {
        leaf.project
        for leaf, workload in zip(herd.leaves, herd.workloads, strict=True)
        if workload.kind not in FIRST_KINDS
    }
    found = []
    for pending in here:
        project = session.queue_of(pending.workload, pool).project
        is_by_kind = pending.workload.kind in FIRST_KINDS and project in with_training
        is_by_priority = worst.get(project, best) < pending.workload.priority
        if is_by_kind or is_by_priority:
            found.append(pending)
    # In strict order those who have nobody worse may be before those who have.
    is_strict = session.snapshot.pools[pool].job_order == "strict-fifo"
    return here if found and is_strict else found


@dataclass(slots=True)
class _Preempt:
    session: Session
    deserving: Deserving
    _rules: dict[tuple[Queue, int, bool, bool], Rule] = field(default_factory=dict)

    def rules_of(self, claim: Claim) -> Sequence[Rule] | Refused:
        """By kind within quota, then by priority; none where the project may not hold the claim
        whatever is evicted."""
        leaf, workload = claim.leaf, claim.pending.workload
        refused = self.session.check_room(leaf, workload, claim.need, "later")
        if refused is not None and refused.reason is not Reason.OVER_LIMIT:
            return refused
        project = leaf.project
        if workload.kind in FIRST_KINDS:
            return (
                self._rule(project, workload.priority, is_by_kind=True),
                self._rule(project, workload.priority),
            )
        is_kind_safe = _holds_within(project, project.quota)
        return (self._rule(project, workload.priority, is_kind_safe=is_kind_safe),)

    def _rule(
        self,
        project: Queue,
        priority: int,
        *,
        is_kind_safe: bool = False,
        is_by_kind: bool = False,
    ) -> Rule:
        key = project, priority, is_kind_safe, is_by_kind
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = Rule(
                reason=Reason.PREEMPTED,
                terms=lambda herd: (
                    self._terms_by_kind(herd, project, priority)
                    if is_by_kind
                    else self._terms(herd, project, priority, is_kind_safe)
                ),
                may_keep=self._may_keep_by_kind if is_by_kind else self._may_keep,
                note=lambda _claim, _giver: "",
                max_moves=self.session.settings.max_moves,
            )
        return rule

    def _terms(self, herd: Herd, project: Queue, priority: int, is_kind_safe: bool) -> Terms:
        is_safe = protected_by(self.session, herd, _preempt_runtime)
        if is_kind_safe:
            is_safe = bytearray(
                NOTHING if herd.workloads[w].kind in FIRST_KINDS else is_protected
                for w, is_protected in zip(herd.owner, is_safe, strict=True)
            )
        return _own_work(herd, project).finish(is_safe, priority)

    def _terms_by_kind(self, herd: Herd, project: Queue, priority: int) -> Terms:
        """Training of any priority, and the kinds that precede it of a worse one."""
        is_safe = protected_by(self.session, herd, _preempt_runtime)
        is_safe = bytearray(
            NOTHING
            if herd.workloads[w].kind in FIRST_KINDS and herd.priority[w] >= priority
            else is_protected
            for w, is_protected in zip(herd.owner, is_safe, strict=True)
        )
        return _own_work(herd, project).finish(is_safe)

    def _may_keep_by_kind(self, claim: Claim, trial: Trial) -> bool:
        """The same as for a preemption by priority, and the project ends within its quota."""
        project = claim.leaf.project
        amounts = sum_amounts(placement.amounts for placement in trial.placements)
        return project.has_room(amounts, project.quota) and self._may_keep(claim, trial)

    def _may_keep(self, claim: Claim, trial: Trial) -> bool:
        workload, herd, project = claim.pending.workload, trial.herd, claim.leaf.project
        amounts = sum_amounts(placement.amounts for placement in trial.placements)
        if self.session.check_room(claim.leaf, workload, amounts, "later") is not None:
            return False
        if workload.is_preemptible and not self._may_hold(project, amounts, trial):
            return False
        if workload.kind in FIRST_KINDS:
            return True
        # Whoever goes before the taker once he waits again must not be stopped for it.
        return not any(
            herd.workloads[unit.w].kind in FIRST_KINDS
            and _holds_within(project, project.quota, herd.amounts_of(unit.pods))
            for unit in trial.units.values()
        )

    def _may_hold(self, project: Queue, amounts: Amounts, trial: Trial) -> bool:
        """Whether nobody outside would take back at once what the project gets."""
        bound = larger(project.deserves, trial.held_before(project))
        return project.has_room(amounts, bound) or not self.deserving.is_there_any(outside=project)


def _own_work(herd: Herd, project: Queue) -> TermsBuilder:
    """Work of the project may be evicted and moved, other work neither."""
    terms = TermsBuilder(herd)
    for giver in herd.queues:
        is_own = giver.project is project
        terms.add(int(is_own), is_mobile=is_own)
    return terms


def _holds_within(queue: Queue, bound: Amounts, more: Amounts = (0, 0, 0)) -> bool:
    return all(
        has + extra <= most for has, extra, most in zip(queue.allocated, more, bound, strict=True)
    )


def _preempt_runtime(queues: Iterable[Queue]) -> int:
    return max(queue.preempt_min_runtime_s for queue in queues)
