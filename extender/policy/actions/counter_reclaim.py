"""Whether the next cycle would reclaim back what a plan of `reclaim` takes.

A queue that the plan leaves below its quota will reclaim from queues above theirs if evicted or
pending work of its own fits within that quota but cannot be placed beside the plan. A queue within
its quota is never reclaimed from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.policy.preemption.candidate_table import in_eviction_order
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.session import Session
from extender.policy.workloads.gangs import live_pods, next_chunks
from extender.state.model import Amounts


@dataclass(slots=True)
class CounterReclaim:
    """Checks one plan, which gives `amounts` to the request's queues. `short` has the queues that
    fall below their quotas and may reclaim, with the resources that they lack."""

    session: Session
    pool: str
    request: PreemptionRequest
    statement: Statement
    amounts: Amounts
    level_of: Mapping[Queue, int] = field(default_factory=dict)
    short: dict[Queue, list[int]] = field(default_factory=dict)

    def is_likely(self) -> bool:
        """Whether a victim queue would reclaim."""
        self.level_of = levels_of(self.request.leaf)
        candidates, units = self.statement.candidates, self.statement.units.values()
        for leaf in {candidates.leaves[unit.w] for unit in units}:
            for queue in self._queues_at_loss(leaf):
                before = self.statement.held_before(queue)
                lacks = [r for r in RESOURCES if queue.allocated[r] < queue.quota[r] <= before[r]]
                if lacks:
                    self.short[queue] = lacks
        if not self.short:
            return False
        return self._would_pending() or any(map(self._would_evicted, {u.w for u in units}))

    def _queues_at_loss(self, victim_queue: Queue) -> Sequence[Queue]:
        """The queues from `victim_queue` up to the one compared with the preemptor's, which the
        plan may leave below quota; none if the preemptor's ends within its quota."""
        path, level = compared(victim_queue, self.level_of)
        if level < 0:
            return ()
        preemptor = self.request.leaf.chain[level]
        return () if preemptor.has_room(self.amounts, preemptor.quota) else path

    def _fits(self, leaf: Queue, need: Amounts) -> bool:
        """Whether work with this need requests something its queues lack, and fits their quotas."""
        path = self._queues_at_loss(leaf)
        is_lacking = any(need[r] for queue in path for r in self.short.get(queue, ()))
        return is_lacking and all(queue.has_room(need, queue.quota) for queue in path)

    def _would_evicted(self, w: int) -> bool:
        """Whether the evicted workload would reclaim what it needs to start again."""
        candidates, units = self.statement.candidates, self.statement.units.values()
        workload, evicted = candidates.workloads[w], [p for u in units if u.w == w for p in u.pods]
        p_of = {candidates.pods[p].uid: p for p in evicted}
        waiting = in_eviction_order(candidates.pods[p] for p in evicted)[::-1]
        live = [pod for pod in live_pods(workload) if pod.uid not in p_of]
        chunks = next_chunks(workload, live, waiting)
        needs = (candidates.amounts_of([p_of[pod.uid] for pod in chunk]) for chunk in chunks)
        return any(self._fits(candidates.leaves[w], need) for need in needs)

    def _would_pending(self) -> bool:
        """Whether a pending workload would reclaim, since it cannot be placed beside the plan."""
        session, pool = self.session, self.pool
        session.places.forget_failures(pool)
        for pending in (*session.backlog.pending, *session.backlog.deferred):
            leaf = session.queues[pool].leaf_of(pending.workload)
            if leaf is None or pool not in pending.pools or pending.only_holds_up:
                continue
            if pending is self.request.pending:
                continue
            is_fitting = self._fits(leaf, pending.need())
            if is_fitting and not session.places.has_place(pending, pool, "later"):
                return True
        return False
