"""Stage `preempt`: inside a project, a pending workload evicts running ones of strictly lower
priority.

Inference, interactive and build work that fits its project's quota with all its pods precedes
training, whatever the priorities: it evicts training of any priority, and training evicts none of
it. Against that quota counts what these kinds and non-preemptible work hold, the highest priority
first, but no preemptible training. Beyond the quota priority alone decides.

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
from extender.policy.actions.preemption_loop import PreemptionLoop
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import (
    ANY_PRIORITY,
    NOTHING,
    Eligibility,
    EligibilityBuilder,
)
from extender.policy.preemption.entitled import EntitledWork
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solver import Preemption
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.tree import RESOURCES, Queue, larger, sum_amounts
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.first_kinds import FIRST_KINDS, size_of
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts


def preempt(preemption: Preemption) -> None:
    """Serve every pool that allows preemption; `session.pending` is left with what still waits."""
    session = preemption.session
    for pool in session.pools_in_order():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = _with_victims(preemption, pool)
            if here:
                candidates = preemption.solver_of(pool).candidates
                stage = _Preempt(session, candidates, EntitledWork(session, pool))
                PreemptionLoop(preemption, pool, "preempt", stage).serve(here)


def _with_victims(preemption: Preemption, pool: str) -> list[Pending]:
    """The pending workloads with work that they precede in their project."""
    session = preemption.session
    here = [pending for pending in session.pending if pool in pending.pools]
    best = max((pending.workload.priority for pending in here), default=0)
    is_kind_first = any(pending.workload.kind in FIRST_KINDS for pending in here)
    # Without any work of lower priority there is no need to build the candidates.
    if not here or not (
        is_kind_first or any(w.priority < best for w in session.snapshot.workloads.values())
    ):
        return []
    worst: dict[Queue, int] = {}
    candidates = preemption.solver_of(pool).candidates
    for leaf, priority in zip(candidates.leaves, candidates.priority, strict=True):
        project = leaf.project
        worst[project] = min(priority, worst.get(project, priority))
    with_training = {
        leaf.project
        for leaf, workload in zip(candidates.leaves, candidates.workloads, strict=True)
        if workload.kind not in FIRST_KINDS
    }
    found = []
    for pending in here:
        project = session.queue_of(pending.workload, pool).project
        is_by_kind = pending.workload.kind in FIRST_KINDS and project in with_training
        is_by_priority = worst.get(project, best) < pending.workload.priority
        if is_by_kind or is_by_priority:
            found.append(pending)
    # In strict order a workload without candidates may come before one with some.
    is_strict = session.snapshot.pools[pool].job_order == "strict-fifo"
    return here if found and is_strict else found


@dataclass(slots=True)
class _Preempt:
    session: Session
    candidates: Candidates
    entitled: EntitledWork
    _rules: "dict[tuple[Queue, int, bool], _PreemptRule]" = field(default_factory=dict)

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The one rule, unless the project may not hold the request whatever is evicted."""
        leaf, workload = request.leaf, request.pending.workload
        refused = self.session.check_room(leaf, workload, request.need, "later")
        if refused is not None and refused.reason is not Reason.OVER_LIMIT:
            return refused
        return (self._rule(leaf.project, workload.priority, is_first=self._is_first(request)),)

    def _is_first(self, request: PreemptionRequest) -> bool:
        """Whether the workload precedes training: with all its pods it fits its project's quota
        beside those of the first kinds that are of no lower priority."""
        project, workload, candidates = (
            request.leaf.project,
            request.pending.workload,
            self.candidates,
        )
        if workload.kind not in FIRST_KINDS:
            return False
        before = size_of(workload)
        for w in candidates.of_first_kinds.get(project, ()):
            other = candidates.workloads[w]
            if (
                candidates.is_first[w]
                and other.priority >= workload.priority
                and other.key != request.key
            ):
                before = sum_amounts((before, size_of(other)))
        running = sum_amounts(
            candidates.amounts_of(candidates.members[w])
            for w in candidates.of_first_kinds.get(project, ())
        )
        started = placed_amounts(self.session.placed_now(request.key))
        held = self.session.firsts.held(project)
        return all(
            held[r] - running[r] - started[r] + before[r] <= project.quota[r] for r in RESOURCES
        )

    def _rule(self, project: Queue, priority: int, *, is_first: bool) -> "_PreemptRule":
        key = project, priority, is_first
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = _PreemptRule(
                self.session,
                self.entitled,
                project,
                priority,
                is_first,
                max_moves=self.session.settings.max_moves,
            )
        return rule


@dataclass(slots=True, frozen=True, eq=False)
class _PreemptRule:
    """For workloads of the project of this priority; `is_first`: they precede training."""

    session: Session
    entitled: EntitledWork
    project: Queue
    priority: int
    is_first: bool
    max_moves: int | None
    reason: Reason = Reason.PREEMPTED
    needs_victims: bool = True
    can_evict: bool = True
    can_move: bool = True
    is_move_bounded: bool = False

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """What the preemptor precedes may leave: work of lower priority, to one that `is_first`
        training of any priority."""
        project, priority, is_first = self.project, self.priority, self.is_first
        eligibility = EligibilityBuilder(candidates)
        for victim_queue in candidates.queues:
            is_own = victim_queue.project is project
            eligibility.add(int(is_own), is_mobile=is_own)
        is_safe = protected_by(self.session, candidates, _preempt_runtime)
        if any(candidates.is_first):
            is_safe = bytearray(
                NOTHING
                if candidates.is_first[w] and not (is_first and candidates.priority[w] < priority)
                else is_protected
                for w, is_protected in zip(candidates.owner, is_safe, strict=True)
            )
        return eligibility.finish(is_safe, ANY_PRIORITY if is_first else priority)

    def validate(self, request: PreemptionRequest, statement: Statement) -> bool:
        """As `PreemptionRule.validate`."""
        workload, project = request.pending.workload, request.leaf.project
        amounts = sum_amounts(placement.amounts for placement in statement.placements)
        if self.session.check_room(request.leaf, workload, amounts, "later") is not None:
            return False
        return not workload.is_preemptible or self._may_hold(project, amounts, statement)

    def explain(self, request: PreemptionRequest, victim_queue: Queue) -> str:
        """Nothing."""
        return ""

    def _may_hold(self, project: Queue, amounts: Amounts, statement: Statement) -> bool:
        """Whether no other project would reclaim at once what this one gets."""
        bound = larger(project.deserves, statement.held_before(project))
        return project.has_room(amounts, bound) or not self.entitled.is_waiting(outside=project)


def _preempt_runtime(queues: Iterable[Queue]) -> int:
    return max(queue.preempt_min_runtime_s for queue in queues)
