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
"""

from collections.abc import Sequence
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
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solver import Preemption
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.min_runtime import preempt_minimum_s
from extender.policy.queues.queue import Queue, larger
from extender.policy.queues.room import check_room
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.first_kinds import FIRST_KINDS
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts

#: Refusals that evictions inside the project can resolve.
_ROOM_BY_EVICTION = (Reason.OVER_LIMIT, Reason.OVER_BUDGET)


def preempt(preemption: Preemption) -> None:
    """Serve every pool that allows preemption; the backlog keeps what is still pending."""
    session = preemption.session
    for pool in session.backlog.pools():
        view = session.snapshot.pools[pool]
        if view.has_preemption and view.policy == "fairshare":
            here = _with_victims(session, pool)
            stage = _Preempt(session, _EntitledWork(session, pool))
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
    entitled: _EntitledWork
    _rules: "dict[tuple[Queue, int, bool], _PreemptRule]" = field(default_factory=dict)

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The one rule, unless no eviction inside the project can make room for the request."""
        leaf, workload = request.leaf, request.pending.workload
        refused = check_room(leaf, workload, request.need, is_now=False)
        if refused is not None and refused.reason not in _ROOM_BY_EVICTION:
            return refused
        is_first = self.session.firsts.is_first(workload, leaf.project)
        key = leaf.project, workload.priority, is_first
        if key not in self._rules:
            self._rules[key] = _PreemptRule(self.session, self.entitled, *key)
        return (self._rules[key],)


@dataclass(slots=True, frozen=True, eq=False)
class _PreemptRule(PreemptionRule):
    """Serves workloads of the project with this priority; `is_first`: they precede training."""

    entitled: _EntitledWork
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
        is_safe = protected_by(self.session, candidates, preempt_minimum_s)
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
