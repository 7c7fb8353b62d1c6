"""Node pools of policy `priority`: the best priority first over the whole pool, across queues.

Within a priority older workloads come first, and one that does not fit blocks none behind it. A
workload that does not fit blocks all workloads of worse priority; where the pool preempts,
preemptible ones are excepted. A workload with a pod that does not fit even an empty node blocks
none.

A workload that does not fit may evict workloads of worse priority: the worst first, then those that
lose the least work; only if it then fits, and only the victims it needs. It evicts none while it
fits in another pool that it may use. At its queue's limit it may replace workloads of that queue.
If that is not enough it stays pending and blocks no other. Workloads with and without GPUs are
served separately and do not block each other. Limits, and stated quotas for non-preemptible
workloads, apply as everywhere.

The rules are those of Determined's priority scheduler (`master/internal/rm/agentrm/priority.go`),
which evicts the newest of a priority first, and may evict more than it needs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from extender.api.reasons import Reason, Refused
from extender.policy.actions.chunk_grant import grant, has_place_in
from extender.policy.actions.preemption_loop import PreemptionLoop
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import NOTHING, Eligibility, EligibilityBuilder
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solver import Preemption
from extender.policy.preemption.statement import PreemptionRequest
from extender.policy.queues.min_runtime import preempt_minimum_s
from extender.policy.queues.queue import Queue
from extender.policy.queues.room import check_room
from extender.policy.session import Session
from extender.policy.workloads.first_kinds import by_priority
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU


def serve_by_priority(
    preemption: Preemption, pool: str, waiting: Iterable[Pending]
) -> list[Pending]:
    """Serve the pending workloads of the pool; returns those with pods left."""
    with_gpus: list[Pending] = []
    without: list[Pending] = []
    for pending in waiting:
        (with_gpus if pending.need()[GPU] else without).append(pending)
    return [
        *_PriorityLine(preemption, pool, has_gpu=True).serve(with_gpus),
        *_PriorityLine(preemption, pool, has_gpu=False).serve(without),
    ]


@dataclass(slots=True)
class _PriorityLine:
    """The pending workloads of the pool, either with or without GPUs.

    `is_blocked`: a workload of better priority does not fit. `first_evicted` is the sort key of the
    first victim in order, which will precede workloads behind it. `is_changed`: workloads were
    placed since the last search for victims.
    """

    preemption: Preemption
    pool: str
    has_gpu: bool
    is_blocked: bool = False
    is_changed: bool = True
    first_evicted: tuple[int, int, str] | None = None
    loop: PreemptionLoop = field(init=False)
    _rules: "dict[tuple[int, Queue | None], _PriorityRule]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loop = PreemptionLoop(self.preemption, self.pool, "preempt", self)

    @property
    def session(self) -> Session:
        """The cycle."""
        return self.preemption.session

    def serve(self, waiting: Sequence[Pending]) -> list[Pending]:
        """Serve priority by priority; returns workloads with pods left."""
        left: list[Pending] = []
        in_order = sorted(waiting, key=lambda pending: by_priority(pending.workload))
        for _, group in groupby(in_order, key=lambda pending: pending.workload.priority):
            # Workloads that start now must fit within the limits beside terminating pods.
            self.preemption.count_leaving()
            unplaced = [rest for pending in group if (rest := self._start(pending)) is not None]
            stuck = [rest for pending in unplaced if (rest := self._preempt(pending)) is not None]
            self.is_blocked = self.is_blocked or any(map(self._blocks_others, stuck))
            left += stuck
        self.loop.report_held_back(left)
        return left

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """As `RuleSource.rules_of`: the rule of its priority, unless it fits in another pool."""
        session, pending = self.session, request.pending
        refused = check_room(request.leaf, pending.workload, request.need, is_now=False)
        if refused is not None and refused.reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA:
            return refused
        others = [pool for pool in pending.pools if pool != self.pool]
        if has_place_in(session, pending, request.chunk, others, "later"):
            return session.shortages.explain(pending, self.pool)
        priority = pending.workload.priority
        # At a limit, a rule that finds no victims for one queue may find some for another.
        key = priority, None if refused is None else request.leaf
        if key not in self._rules:
            self._rules[key] = _PriorityRule(session, priority, self.has_gpu)
        return (self._rules[key],)

    def _start(self, pending: Pending) -> Pending | None:
        """Place chunks that fit now; returns the workload if pods remain."""
        rest: Pending | None = pending
        while rest is not None:
            if not self._may_try(rest):
                return rest
            given = grant(self.session, rest, self.pool, "now")
            if isinstance(given, Refused):
                self.session.draft.waits.setdefault(rest.workload.key, given)
                return rest
            self.is_changed = True
            rest = given
        self.session.draft.waits.pop(pending.workload.key, None)
        return None

    def _preempt(self, pending: Pending) -> Pending | None:
        """Place chunks that fit later, evicting if needed; returns the workload if pods remain."""
        session = self.session
        rest: Pending | None = pending
        while rest is not None:
            if not self._may_try(rest) or self._is_after_evicted(rest):
                return rest
            given = grant(session, rest, self.pool, "later")
            if not isinstance(given, Refused):
                self.is_changed = True
            elif given.reason is not Reason.NON_PREEMPTIBLE_OVER_QUOTA and self._may_evict():
                given = self._evict_for(rest)
            if isinstance(given, Refused):
                return rest
            rest = given
        session.draft.waits.pop(pending.workload.key, None)
        return None

    def _evict_for(self, pending: Pending) -> Pending | Refused | None:
        """Evict workloads of worse priority so that the next chunk fits; returns as `grant`."""
        solver = self.loop.solver
        if solver is not None and self.is_changed:
            solver.begin()
        given = self.loop.serve_one(self.session.queue_of(pending.workload, self.pool), pending)
        self.is_changed = False
        solver = self.loop.solver
        if not isinstance(given, Refused) and solver is not None:
            for workload in solver.committed.evicted_last():
                evicted = by_priority(workload)
                self.first_evicted = min(evicted, self.first_evicted or evicted)
        return given

    def _may_try(self, pending: Pending) -> bool:
        """Whether the workload may be tried; if better priorities block it, records the reason."""
        session, workload = self.session, pending.workload
        has_preemption = session.snapshot.pools[self.pool].has_preemption
        if session.is_spent():
            session.draft.cut(workload.key, "allocate")
            return False
        if session.draft.is_shrinking(workload.key):
            # A workload that loses pods starts none in the same cycle.
            return False
        if not self.is_blocked or (has_preemption and workload.is_preemptible):
            return True
        detail = f"{workload.key}: work of better priority waits for a place in pool {self.pool}"
        session.draft.waits.setdefault(workload.key, Refused(Reason.WAITING_FOR_TURN, detail))
        return False

    def _is_after_evicted(self, pending: Pending) -> bool:
        """Whether a victim of this cycle precedes the workload on the cards that become free."""
        return self.first_evicted is not None and self.first_evicted < by_priority(pending.workload)

    def _may_evict(self) -> bool:
        session = self.session
        has_preemption = session.snapshot.pools[self.pool].has_preemption
        return has_preemption and "preempt" in session.settings.stages

    def _blocks_others(self, pending: Pending) -> bool:
        """Whether the workload could ever start and is within its queue's limits and quotas."""
        leaf = self.session.queue_of(pending.workload, self.pool)
        refused = check_room(leaf, pending.workload, pending.need(), is_now=False)
        return refused is None and self.session.could_ever_start(pending, self.pool)


@dataclass(slots=True, frozen=True, eq=False)
class _PriorityRule(PreemptionRule):
    """Workloads may evict those of worse priority if both use GPUs or neither does."""

    priority: int
    has_gpu: bool
    reason = Reason.PREEMPTED

    @property
    def can_move(self) -> bool:
        """Whether pods may be moved."""
        return False

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """As `PreemptionRule.eligibility`; victims may belong to any queue."""
        eligibility = EligibilityBuilder(candidates)
        for _ in candidates.queues:
            eligibility.add(1, is_mobile=False)
        has_gpu = [
            any(candidates.amounts_of((p,))[GPU] > 0 for p in members)
            for members in candidates.members
        ]
        is_safe = bytearray(
            is_protected if has_gpu[w] is self.has_gpu else NOTHING
            for w, is_protected in zip(
                candidates.owner,
                protected_by(self.session, candidates, preempt_minimum_s),
                strict=True,
            )
        )
        return eligibility.finish(is_safe, self.priority)
