"""Stage `consolidate`: moves running pods closer together, so that a pending workload fits that
fragmentation keeps out. No pod is evicted without a new placement in the same plan.

Only preemptible pods that have run the minimum run times of their queues are moved. The moved pods
together hold at most as many GPUs as the pending workload requests, since a move costs a restart
and the work since the last checkpoint.

In a pool whose GPU placement is `Spread`, pods with GPUs are apart on purpose, so no pending
workload with GPUs is served. The same holds for work without GPUs and CPU-only placement.

Each plan places a pending workload and evicts no pod for good, so the number of pending workloads
strictly falls, and without new work the stage comes to an end.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.kernels.sums import sum_idle
from extender.policy.actions.preemption_loop import PreemptionLoop
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility, EligibilityBuilder
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solver import Preemption
from extender.policy.preemption.statement import PreemptionRequest
from extender.policy.queues.min_runtime import move_minimum_s
from extender.policy.queues.room import check_room
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU


def consolidate(preemption: Preemption) -> None:
    """Serve every fair-share pool; the backlog keeps the workloads that do not fit."""
    session = preemption.session
    for pool in session.backlog.pools():
        view = session.snapshot.pools[pool]
        if view.policy != "fairshare":
            continue
        stage = _Consolidate(session, pool)
        here = session.backlog.in_pool(pool)
        servable = [pending for pending in here if stage.could_serve(pending)]
        # In strict order a workload that no move helps may hold up one that a move would help.
        is_strict = view.job_order == "strict-fifo"
        PreemptionLoop(preemption, pool, "consolidate", stage).serve(
            here if servable and is_strict else servable
        )


@dataclass(slots=True)
class _Consolidate:
    session: Session
    pool: str
    rule: "_ConsolidateRule" = field(init=False)
    idle: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.idle = _idle(self.session, self.pool)
        self.rule = _ConsolidateRule(self.session)

    def could_serve(self, pending: Pending) -> bool:
        """Whether the pool packs such work and has as much idle in total as the workload needs,
        since a move does not change the total."""
        (milli, cpu_milli, memory_mib), idle = pending.need(), self.idle
        view = self.session.snapshot.pools[self.pool]
        if cpu_milli > idle[1] or memory_mib > idle[2]:
            return False
        has_gpus = False
        for shape in pending.shapes:
            has_gpus = has_gpus or shape.demand.is_gpu_work
            # `idle` does not include MIG instances.
            milli -= shape.demand.counted_milli * shape.count
        placement = view.gpu_placement if has_gpus else view.cpu_placement
        return milli <= idle[0] and placement != "spread"

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The one rule, unless no move can help the workload or its queue has no room for it."""
        workload = request.pending.workload
        if not self.could_serve(request.pending):
            return Refused(Reason.INSUFFICIENT_GPU, f"{request.key}: no pod is moved for it")
        refused = check_room(request.leaf, workload, request.need, is_now=False)
        if refused is not None:
            return refused
        return (self.rule,)


@dataclass(slots=True, frozen=True, eq=False)
class _ConsolidateRule(PreemptionRule):
    reason = Reason.MOVED
    can_evict = False

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """Pods of every queue may be moved once they have run their minimum; no pod may be
        evicted."""
        eligibility = EligibilityBuilder(candidates)
        for _ in candidates.queues:
            eligibility.add(0, is_mobile=True)
        return eligibility.finish(protected_by(self.session, candidates, move_minimum_s))


def _idle(session: Session, pool: str) -> "array[int]":
    """The pool's total of free or reserved resources once terminating pods are gone."""
    idle = array("q", bytes(24))
    ready = array("i", session.places.node_filter.ready(pool))
    sum_idle(session.sim.later, ready, idle)
    kept = session.reservations.in_pool(pool)
    for _, cards in kept.cards if kept else ():
        idle[GPU] += sum(card.milli for card in cards)
    queues = session.queues[pool]
    if queues.has_unequal_cards:
        # A pod that requests memory, moved to a larger card, leaves a larger fraction of it idle.
        idle[GPU] = queues.capacity[GPU]
    return idle
