"""Stage `allocate`: places pending workloads on free resources, within quotas and limits.

No pod is evicted. A workload that fits only after terminating pods are gone is nominated, so that
no more victims are selected for it. Cards may be reserved for a large blocked workload (see
`reservations`).

While a workload within its share is blocked, workloads above their share are deferred until after
`reclaim` (`allocate_deferred`): otherwise they would start on cards that are reclaimed a cycle
later. Likewise, while a workload is blocked that a later stage can serve, work that comes after it
yields until after `preempt` (`yield_to_blocked`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU
from extender.policy.actions.chunk_grant import grant_chunk, has_place_in
from extender.policy.actions.yield_to_blocked import YieldToBlocked
from extender.policy.preemption.solver import Preemption
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.backlog import pools_in_order
from extender.policy.workloads.job_order import Turns
from extender.policy.workloads.pending import Pending, why_behind
from extender.state.model import GPU, PodView

#: Reasons of a workload that quotas and limits allow, but that fits on no node.
_LACKS_PLACE = (
    Reason.INSUFFICIENT_GPU,
    Reason.INSUFFICIENT_NODE_RESOURCES,
    Reason.NO_TOPOLOGY_DOMAIN,
    Reason.POD_AFFINITY_UNMET,
)

#: Reasons of a workload that reclaim or preemption may serve; its department may be at its limit.
_SERVED_BY_EVICTION = (*_LACKS_PLACE, Reason.OVER_LIMIT, Reason.OVER_BUDGET)

#: Workloads of a project, highest priority first, that are considered before one that drains cards.
_MOST_PRECEDING = 16


def allocate(session: Session) -> None:
    """Place what fits, pool after pool; leaves the rest in the backlog: as pending, or as deferred
    or yielding, to be served after reclaim or preempt."""
    session.backlog.pending = _allocate(session, session.backlog.pending)


def allocate_deferred(preemption: Preemption) -> None:
    """Serve the deferred workloads after reclaim, or the yielding ones after preemption; those that
    do not fit are pending again."""
    session = preemption.session
    deferred = session.backlog.take_deferred(with_yielding=session.has_preempted)
    preemption.count_leaving()
    session.backlog.pending += _allocate(session, deferred, may_defer=False)
    # A workload that grows in this cycle loses no pods in it.
    preemption.bar(session.draft.served())
    if session.places.pod_affinity:
        # A started pod may satisfy the affinity of nominated pods, which then need fewer victims.
        preemption.review(is_changed=True)


def _allocate(
    session: Session, pending_now: Sequence[Pending], *, may_defer: bool = True
) -> list[Pending]:
    waiting: dict[str, list[Pending]] = {}
    blocked: list[Pending] = []

    def queue_up(pending: Pending, pools: Iterable[str]) -> None:
        """Queue the workload for the first fair-share pool in `pools`, or else as blocked."""
        fair = (pool for pool in pools if session.snapshot.pools[pool].policy == "fairshare")
        pool = next(fair, None)
        (blocked if pool is None else waiting.setdefault(pool, [])).append(pending)

    order = pools_in_order(pending_now)
    for pending in pending_now:
        # A workload that loses pods in this cycle does not grow in it.
        queue_up(pending, () if session.draft.has_victims(pending.workload.key) else pending.pools)
    while waiting:
        pool = min(waiting, key=order.index)
        is_deferring = may_defer and session.may_evict_later("reclaim", pool)
        round_ = _Round(session, pool, is_deferring)
        for pending in round_.serve(waiting.pop(pool)):
            queue_up(pending, pending.pools[pending.pools.index(pool) + 1 :])
    return blocked


@dataclass(slots=True)
class _Round:
    """Serves the workloads of one pool. `has_blocked_work`: reclaim may serve a blocked one.
    `spreads`: the pool spreads work with GPUs. `may_preempt`: stage `preempt` is to come. `blocked`
    has those that a stage to come may serve."""

    session: Session
    pool: str
    may_defer: bool
    has_blocked_work: bool = False
    spreads: bool = False
    may_preempt: bool = False
    blocked: YieldToBlocked | None = None

    def __post_init__(self) -> None:
        session, pool = self.session, self.pool
        self.spreads = session.snapshot.pools[pool].gpu_placement == "spread"
        self.may_preempt = not session.has_preempted and session.may_evict_later("preempt", pool)
        if self.may_preempt or self.may_defer:
            self.blocked = YieldToBlocked(session, pool)

    def serve(self, waiting: list[Pending]) -> list[Pending]:
        """Serve the workloads in turn until nothing more fits; returns those that do not fit."""
        session = self.session
        turns = session.take_turns(self.pool, self._serve_draining(waiting))
        blocked = []
        while (turn := turns.pop()) is not None:
            leaf, pending = turn
            key = pending.workload.key
            session.note_turns((pending,))
            is_above = self._is_above(leaf, pending)
            if (served_later := self._served_later(leaf, pending, is_above=is_above)) is not None:
                holds_up = session.holds_up_queue(pending, self.pool)
                behind = turns.pass_over(holds_up=holds_up)
                session.note_turns(behind)
                served_later += [pending, *behind]
                continue
            is_fraction = pending.need()[GPU] % MILLI_PER_GPU > 0
            placed = self._try(leaf, pending)
            if isinstance(placed, Refused):
                self._record_refusal(leaf, pending, placed, is_above=is_above)
                holds_up = session.holds_up_queue(pending, self.pool)
                alike = [] if holds_up else self._refuse_alike(turns, leaf, pending, placed)
                behind = turns.pass_over(holds_up=holds_up)
                session.note_turns([*alike, *behind])
                blocked += [pending, *alike, *behind]
                for passed in behind:
                    passed.is_behind = True
                    session.draft.waits.setdefault(passed.workload.key, why_behind(passed, key))
            else:
                turns.settle(placed)
                session.may_be_taken_back |= is_above or self.spreads or is_fraction
                if placed is None:
                    session.draft.waits.pop(key, None)
        return blocked

    def _record_refusal(
        self, leaf: Queue, pending: Pending, refused: Refused, *, is_above: bool
    ) -> None:
        """Record the refusal, which may make other workloads defer or yield."""
        # Users expect to read the reason of the first pool.
        self.session.draft.waits.setdefault(pending.workload.key, refused)
        if refused.reason not in _SERVED_BY_EVICTION or pending.only_holds_up:
            return
        self.has_blocked_work |= self.may_defer and not is_above
        if self.blocked is not None:
            self.blocked.add(leaf, pending)

    def _refuse_alike(
        self, turns: Turns, leaf: Queue, pending: Pending, refused: Refused
    ) -> list[Pending]:
        """Refuse the workloads next in line that are identical to the refused one; returns them."""
        session, alike = self.session, list[Pending]()
        if (pending.workload.key, self.pool) in session.shortages.hopeless:
            return alike
        is_above = self._is_above(leaf, pending)
        for other, why in session.refused_alike(turns, pending, refused, self.pool):
            reason = self._reserve_or_explain(leaf, other, why)
            self._record_refusal(leaf, other, reason, is_above=is_above)
            alike.append(other)
        return alike

    def _serve_draining(self, waiting: Sequence[Pending]) -> list[Pending]:
        """Serve workloads in a drain period first, within what their queues deserve, and just
        before each those that would preempt it. Returns what is still pending."""
        session, started = self.session, set[int]()
        by_project: dict[str, list[Pending]] = {}
        for pending in session.reservations.in_drain_period(waiting):
            leaf = session.queue_of(pending.workload, self.pool)
            if self._is_above(leaf, pending):
                session.reservations.reserve(leaf, pending, self.pool)
                continue
            if self.may_preempt and self._has_place(pending):
                # Sorted only if one fits, which is rare on a full cluster.
                by_project = by_project or _by_priority(waiting)
                preceding = by_project[pending.workload.project]
                self._serve_before(leaf, pending, preceding, started)
            if id(pending) not in started:
                self._start(leaf, pending, started)
        return [pending for pending in waiting if id(pending) not in started]

    def _serve_before(
        self, leaf: Queue, pending: Pending, preceding: Sequence[Pending], started: set[int]
    ) -> None:
        """Start what fits now and would preempt the draining workload in the next cycle."""
        for other in preceding[:_MOST_PRECEDING]:
            its_leaf = self.session.queue_of(other.workload, self.pool)
            if id(other) in started or self._is_above(its_leaf, other):
                continue
            could = self.session.reservations.take_back(its_leaf, other, self.pool, ())
            if could.could_preempt(leaf, pending.workload) and self._has_place(other):
                self._start(its_leaf, other, started)

    def _start(self, leaf: Queue, pending: Pending, started: set[int]) -> None:
        if self._try(leaf, pending) is None:
            started.add(id(pending))
            self.session.draft.waits.pop(pending.workload.key, None)

    def _has_place(self, pending: Pending) -> bool:
        with self.session.reservations.lifted_for(pending, self.pool):
            return has_place_in(self.session, pending, pending.chunk, (self.pool,), "now")

    def _served_later(
        self, leaf: Queue, pending: Pending, *, is_above: bool
    ) -> list[Pending] | None:
        """The list for the workload if it is to be served only after reclaim, or fits now but is to
        be served only after the last stage that evicts; None if it is to be served now."""
        session, backlog = self.session, self.session.backlog
        pools = (session.snapshot.pools[name] for name in pending.pools)
        # Pools of other policies are served only now.
        if any(pool.policy != "fairshare" for pool in pools):
            return None
        if self.has_blocked_work and is_above:
            return backlog.deferred
        if self.blocked is None:
            return None
        if not self.blocked.must_yield(leaf, pending, self._has_place, is_above=is_above):
            return None
        return backlog.yielding if self.may_preempt else backlog.deferred

    def _is_above(self, leaf: Queue, pending: Pending) -> bool:
        """Whether the workload lifts its queue above what it deserves, so that reclaim does not
        serve it, or is work without GPUs that GPU work within quota can reclaim from."""
        need = pending.need()
        return not leaf.has_room(need, leaf.deserves) or leaf.is_host_reclaimable(need)

    def _try(self, leaf: Queue, pending: Pending) -> Pending | Refused | None:
        """Admit the next chunk; returns what is still pending of the workload, or why it all is."""
        session, pool = self.session, self.pool
        key = pending.workload.key
        if session.is_spent():
            session.draft.cut(key, "allocate")
            return Refused(Reason.WAITING_FOR_TURN, f"{key}: the cycle had no time left for it")
        if (barred := session.why_barred(pending, pool)) is not None:
            session.reservations.holds_off(pending, pool)
            return barred
        result = self._try_chunks(pending)
        if isinstance(result, Refused):
            return self._reserve_or_explain(leaf, pending, result)
        return result

    def _try_chunks(self, pending: Pending) -> Pending | Refused | None:
        """Admit the first chunk that fits; otherwise returns why the first of all was refused."""
        first = self._try_chunk(pending, pending.chunk)
        if not isinstance(first, Refused) or len(pending.waiting) == 1:
            return first
        for chunk in pending.other_chunks():
            placed = self._try_chunk(pending, chunk)
            if not isinstance(placed, Refused):
                return placed
        return first

    def _reserve_or_explain(self, leaf: Queue, pending: Pending, refused: Refused) -> Refused:
        """Reserve cards for a workload that fits on no node; returns `refused`, or that another
        reservation keeps the workload out."""
        if refused.reason not in _LACKS_PLACE:
            return refused
        session, pool = self.session, self.pool
        if session.reservations.in_pool(pool) is None:
            session.reservations.reserve(leaf, pending, pool)
        elif session.reservations.holds_off(pending, pool):
            return session.why_kept(pending, pool) or refused
        return refused

    def _try_chunk(self, pending: Pending, chunk: Sequence[PodView]) -> Pending | Refused | None:
        """Admit the chunk on free resources, or else on those of terminating pods; or why not."""
        session, pool = self.session, self.pool
        if session.reservations.takes_others_first(pending, pool):
            unreserved = grant_chunk(session, pending, chunk, (pool, "now"))
            if not isinstance(unreserved, Refused):
                return unreserved
        with session.reservations.lifted_for(pending, pool):
            now = grant_chunk(session, pending, chunk, (pool, "now"))
            is_any_terminating = pool in session.leaving_pools and isinstance(now, Refused)
            if not is_any_terminating or self._may_start_elsewhere(pending, chunk):
                return now
            later = grant_chunk(session, pending, chunk, (pool, "later"))
            return now if isinstance(later, Refused) else later

    def _may_start_elsewhere(self, pending: Pending, chunk: Sequence[PodView]) -> bool:
        """Whether the chunk fits now in a later pool of the workload."""
        following = pending.pools[pending.pools.index(self.pool) + 1 :]
        return has_place_in(self.session, pending, chunk, following, "now")


def _by_priority(waiting: Sequence[Pending]) -> dict[str, list[Pending]]:
    found: dict[str, list[Pending]] = {}
    for pending in sorted(waiting, key=lambda each: -each.workload.priority):
        found.setdefault(pending.workload.project, []).append(pending)
    return found
