"""Whether the next cycle would reclaim what a plan of reclaim takes.

A queue that the plan leaves below its quota may reclaim from queues above theirs. It will, if an
evicted or pending workload of its own fits into what it lacks and finds no room beside the plan. No
queue reclaims from one that is within its quota.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.policy.preemption.candidate_table import in_leaving_order
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.session import Session
from extender.policy.workloads.gangs import live_pods, next_chunks
from extender.state.model import Amounts


@dataclass(slots=True)
class CounterReclaim:
    """One plan, by which the request's queues get `amounts`. `short` are queues that fall below
    their quotas and may take something back, with the resources that they lack."""

    session: Session
    pool: str
    request: PreemptionRequest
    statement: Statement
    amounts: Amounts
    level_of: Mapping[Queue, int] = field(default_factory=dict)
    short: dict[Queue, list[int]] = field(default_factory=dict)

    def is_likely(self) -> bool:
        """Whether a victim queue would."""
        self.level_of = levels_of(self.request.leaf)
        candidates, units = self.statement.candidates, self.statement.units.values()
        for leaf in {candidates.leaves[unit.w] for unit in units}:
            for queue in self._robbed(leaf):
                before = self.statement.held_before(queue)
                lacks = [r for r in RESOURCES if queue.allocated[r] < queue.quota[r] <= before[r]]
                if lacks:
                    self.short[queue] = lacks
        if not self.short:
            return False
        return self._would_waiting_work() or any(map(self._would_return, {u.w for u in units}))

    def _robbed(self, victim_queue: Queue) -> Sequence[Queue]:
        """The victim queue's queues that are compared with the preemptor's, if it is above its
        quota then."""
        path, level = compared(victim_queue, self.level_of)
        if level < 0:
            return ()
        preemptor = self.request.leaf.chain[level]
        return () if preemptor.has_room(self.amounts, preemptor.quota) else path

    def _fits(self, leaf: Queue, need: Amounts) -> bool:
        """Whether work of the queue fits into what its queues lack, and is of what they lack."""
        path = self._robbed(leaf)
        is_lacking = any(need[r] for queue in path for r in self.short.get(queue, ()))
        return is_lacking and all(queue.has_room(need, queue.quota) for queue in path)

    def _would_return(self, w: int) -> bool:
        """Whether the evicted workload would, with what it needs to start again."""
        candidates, units = self.statement.candidates, self.statement.units.values()
        workload, evicted = candidates.workloads[w], [p for u in units if u.w == w for p in u.pods]
        p_of = {candidates.pods[p].uid: p for p in evicted}
        waiting = in_leaving_order(candidates.pods[p] for p in evicted)[::-1]
        live = [pod for pod in live_pods(workload) if pod.uid not in p_of]
        chunks = next_chunks(workload, live, waiting)
        needs = (candidates.amounts_of([p_of[pod.uid] for pod in chunk]) for chunk in chunks)
        return any(self._fits(candidates.leaves[w], need) for need in needs)

    def _would_waiting_work(self) -> bool:
        """Whether such work waits that has no room beside the plan."""
        session, pool = self.session, self.pool
        session.places.forget_failures(pool)
        for pending in (*session.pending, *session.deferred):
            leaf = session.queues[pool].leaf_of(pending.workload)
            if leaf is None or pool not in pending.pools or pending.only_holds_up:
                continue
            if pending is self.request.pending:
                continue
            is_fitting = self._fits(leaf, pending.need())
            if is_fitting and not session.places.has_place(pending, pool, "later"):
                return True
        return False
