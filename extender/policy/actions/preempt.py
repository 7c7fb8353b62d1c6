"""Stage `preempt`: inside a project, a pending workload evicts running ones of strictly lower
priority.

Inference, interactive and build work whose pods all fit its project's quota precedes training,
whatever the priorities: it evicts training of any priority, and training never evicts it. What
counts against that quota is work of these kinds and non-preemptible work, highest priority first,
but no preemptible training. Beyond the quota, priority alone decides.

There is no priority between projects: reclaim decides what each may hold. So limits and the quota
of non-preemptible work apply here. While other projects have pending work within their shares,
which would reclaim, preemptible work does not lift its project above its share, or above what it
held before.

Each plan replaces work by work that precedes it in the same project. So what the project runs,
compared in order of precedence, strictly improves, and the stage comes to an end.

If no such plan is found, work that leaves its project within its quota may also take what other
projects hold above theirs, as in `reclaim`. Nothing is taken back later, since reclaim takes
nothing from a project within its quota.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import gt

from extender.api.reasons import Reason, Refused
from extender.policy.actions.preemption_loop import PreemptionLoop
from extender.policy.actions.reclaim import take_back_quota
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import (
    ANY_PRIORITY,
    NOTHING,
    Eligibility,
    EligibilityBuilder,
)
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solver import Preemption
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.min_runtime import preempt_minimum_s
from extender.policy.queues.queue import Queue, larger
from extender.policy.queues.room import check_room
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.first_kinds import FIRST_KINDS
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU, Amounts

#: Refusals that evictions inside the project can resolve.
_ROOM_BY_EVICTION = (Reason.OVER_LIMIT, Reason.OVER_BUDGET)


def preempt(preemption: Preemption) -> None:
    """Serve every pool that allows preemption; the backlog keeps what is still pending."""
    session = preemption.session
    for pool in session.backlog.pools():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = _with_victims(session, pool)
            stage = _Preempt(session, pool, _EntitledWork(session, pool), _Protected(session))
            PreemptionLoop(preemption, pool, "preempt", stage).serve(here)


def _with_victims(session: Session, pool: str) -> list[Pending]:
    """The pending workloads that may precede work of their project that runs or is nominated."""
    here = session.backlog.in_pool(pool)
    lowest: dict[str, int] = {}
    training: set[str] = set()
    for workload in session.snapshot.workloads.values() if here else ():
        project, priority = workload.project, workload.priority
        if lowest.get(project, ANY_PRIORITY) <= priority and project in training:
            continue
        if workload.is_preemptible and any(
            pod.state in ("bound", "nominated") for pod in workload.pods
        ):
            lowest[project] = min(priority, lowest.get(project, priority))
            leaf = None if project in training else session.queues[pool].leaf_of(workload)
            if leaf is not None and not session.firsts.is_first(workload, leaf.project):
                training.add(project)
    found = [
        pending
        for pending in here
        if lowest.get(pending.workload.project, ANY_PRIORITY) < pending.workload.priority
        or (pending.workload.kind in FIRST_KINDS and pending.workload.project in training)
    ]
    # In strict order a workload without victims may hold up one that has some.
    is_strict = session.snapshot.pools[pool].job_order == "strict-fifo"
    return here if found and is_strict else found


@dataclass(slots=True)
class _EntitledWork:
    """Pending work of the pool that is within what its queues deserve."""

    session: Session
    pool: str
    _waiting: "dict[tuple[Queue, Amounts], None] | None" = None

    def is_waiting(self, *, outside: Queue) -> bool:
        """Whether such work is pending in a project other than `outside`."""
        session, pool = self.session, self.pool
        if self._waiting is None:
            # Many pending workloads are alike, so each queue and size is checked once.
            self._waiting = dict.fromkeys(
                (session.queue_of(pending.workload, pool), pending.need())
                for pending in session.backlog.pending
                if pool in pending.pools and not pending.only_holds_up
            )
        return any(
            leaf.project is not outside
            and all(queue.has_room(need, queue.deserves) for queue in leaf.chain)
            for leaf, need in self._waiting
        )


@dataclass(slots=True)
class _Preempt:
    session: Session
    pool: str
    entitled: _EntitledWork
    protected: "_Protected"
    _rules: "dict[tuple[Queue, int, bool], _PreemptRule]" = field(default_factory=dict)
    _lent: "dict[tuple[object, ...], _Lent]" = field(default_factory=dict)
    _with_lent: "dict[tuple[_PreemptRule, _Lent], _PreemptAndReclaimRule]" = field(
        default_factory=dict
    )

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The rule for victims inside the project, and the one for victims in others, too, unless
        no eviction inside the project can make room for the request."""
        leaf, workload = request.leaf, request.pending.workload
        refused = check_room(leaf, workload, request.need, is_now=False)
        if refused is not None and refused.reason not in _ROOM_BY_EVICTION:
            return refused
        is_first = self.session.firsts.is_first(workload, leaf.project)
        key = leaf.project, workload.priority, is_first
        if key not in self._rules:
            self._rules[key] = _PreemptRule(self.session, self.entitled, self.protected, *key)
        own = self._rules[key]
        if any(map(gt, request.need, leaf.project.quota)):
            return (own,)
        both = own, self._lent_to(request)
        if both not in self._with_lent:
            self._with_lent[both] = _PreemptAndReclaimRule(self.session, *both)
        return own, self._with_lent[both]

    def _lent_to(self, request: PreemptionRequest) -> "_Lent":
        """What others borrowed: the same for all projects with this parent, except that a project
        above its quota is not its own victim, but that of others."""
        leaf, project = request.leaf, request.leaf.project
        is_above = any(map(gt, project.allocated, project.quota))
        own = project if is_above else None
        like = project.parent, own, leaf.is_user, request.need[GPU] > 0
        if like not in self._lent:
            self._lent[like] = _Lent(take_back_quota(self.session, request, self.pool))
        return self._lent[like]


@dataclass(slots=True)
class _Protected:
    """The pods that minimum run times protect, found once for all rules of the stage."""

    session: Session
    _found: bytearray | None = None

    def of(self, candidates: Candidates) -> bytearray:
        """As `protected_by`; do not change it."""
        if self._found is None:
            self._found = protected_by(self.session, candidates, preempt_minimum_s)
        return self._found


@dataclass(slots=True, frozen=True, eq=False)
class _PreemptRule(PreemptionRule):
    """Serves workloads of the project with this priority; `is_first`: they precede training."""

    entitled: _EntitledWork
    protected: _Protected
    project: Queue
    priority: int
    is_first: bool
    reason = Reason.PREEMPTED

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """Work of lower priority in the project; training of any priority if `is_first`."""
        project, priority, is_first = self.project, self.priority, self.is_first
        eligibility = EligibilityBuilder(candidates)
        for victim_queue in candidates.queues:
            is_own = victim_queue.project is project
            eligibility.add(int(is_own), is_mobile=is_own)
        is_safe = self.protected.of(candidates)
        if any(candidates.is_first):
            is_safe = bytearray(
                NOTHING
                if candidates.is_first[w] and not (is_first and candidates.priority[w] < priority)
                else is_protected
                for w, is_protected in zip(candidates.owner, is_safe, strict=True)
            )
        return eligibility.finish(is_safe, ANY_PRIORITY if is_first else priority)

    def validate(self, request: PreemptionRequest, statement: Statement) -> bool:
        """Whether limits allow the plan and no other project would reclaim it at once."""
        if not PreemptionRule.validate(self, request, statement):
            return False
        project = request.leaf.project
        bound = larger(project.deserves, statement.held_before(project))
        return (
            not request.pending.workload.is_preemptible
            or project.has_room(placed_amounts(statement.placements), bound)
            or not self.entitled.is_waiting(outside=project)
        )


@dataclass(slots=True, eq=False)
class _Lent:
    """What many projects may take from others, found once for all of them."""

    rule: PreemptionRule
    _found: Eligibility | None = None

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """As `PreemptionRule.eligibility`."""
        self._found = self._found or self.rule.eligibility(candidates)
        return self._found


@dataclass(slots=True, frozen=True, eq=False)
class _PreemptAndReclaimRule(PreemptionRule):
    """Victims of `own`, and besides them those of `lent`, while the project is within its quota."""

    own: _PreemptRule
    lent: _Lent

    @property
    def can_move(self) -> bool:
        """Whether pods may be moved: as in `reclaim`."""
        return self.lent.rule.can_move

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """As `PreemptionRule.eligibility`: the project's own work goes first."""
        own, lent = self.own.eligibility(candidates), self.lent.eligibility(candidates)
        return own.followed_by(lent, candidates)

    def validate(self, request: PreemptionRequest, statement: Statement) -> bool:
        """Whether the project ends within its quota, and so does each queue above it for which
        others give; the rest as in `reclaim`."""
        amounts, leaf = placed_amounts(statement.placements), request.leaf
        level_of = levels_of(leaf)
        victims = (statement.candidates.leaves[unit.w] for unit in statement.units.values())
        top = max((compared(victim, level_of)[1] for victim in victims), default=0)
        within = leaf.chain[int(leaf.is_user) : max(top, int(leaf.is_user)) + 1]
        return all(
            queue.has_room(amounts, queue.quota) for queue in within
        ) and self.lent.rule.validate(request, statement)

    def reason_for(self, victim_queue: Queue) -> Reason:
        """As `PreemptionRule.reason_for`."""
        return self._rule_for(victim_queue).reason

    def explain(self, request: PreemptionRequest, victim_queue: Queue) -> str:
        """As `PreemptionRule.explain`."""
        return self._rule_for(victim_queue).explain(request, victim_queue)

    def _rule_for(self, victim_queue: Queue) -> PreemptionRule:
        return self.own if victim_queue.project is self.own.project else self.lent.rule
