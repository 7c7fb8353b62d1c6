"""Stage `allocate`: pending work gets free places, turn by turn, within quotas and limits.

No pod is evicted. What only fits once pods that already leave have left is nominated, so that no
more victims are taken for it. Places may be kept for a big workload that is blocked (see
`reservations`).

While work within its share is blocked, what is above its share has its turn only after `reclaim`
had its own (`allocate_deferred`): else it would start on cards that are taken back a cycle later.
Likewise, while a workload is blocked that `preempt` can serve, work that it precedes in its project
has its turn after that stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.api.reasons import Reason, Refused
from extender.policy.actions.chunk_grant import grant_chunk, has_place_in
from extender.policy.actions.yield_to_preemption import YieldToPreemption, is_preempt_next
from extender.policy.preemption.solver import Preemption
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.job_order import Turns
from extender.policy.workloads.pending import Pending, why_behind
from extender.state.model import PodView

#: Reasons that say: it may run, but there is no place for it.
_LACKS_PLACE = (
    Reason.INSUFFICIENT_GPU,
    Reason.INSUFFICIENT_NODE_RESOURCES,
    Reason.NO_TOPOLOGY_DOMAIN,
    Reason.POD_AFFINITY_UNMET,
)

#: Workloads of a project, the highest priority first, that may start before a drained one.
_MOST_PRECEDING = 16


def allocate(session: Session) -> None:
    """Place what fits, pool after pool; `session.pending` is left with what does not, and
    `session.deferred` and `session.yielding` with what has its turn after reclaim or preempt."""
    session.pending = _allocate(session, session.pending)


def allocate_deferred(preemption: Preemption) -> None:
    """The turn of what was deferred, or after preemption of what yielded to it; what has no place
    is added to `session.pending`."""
    session = preemption.session
    if session.has_preempted:
        session.deferred += session.yielding
        session.yielding = []
    deferred, session.deferred = session.deferred, []
    preemption.count_leaving()
    # What shrank in this cycle does not grow in it.
    giving = [pending for pending in deferred if session.is_giving(pending.workload.key)]
    growing = [pending for pending in deferred if not session.is_giving(pending.workload.key)]
    left = _allocate(session, growing, may_defer=False)
    session.pending = [*session.pending, *giving, *left]
    # What grows in this cycle does not shrink in it.
    preemption.bar(session.served())
    if session.places.pod_affinity:
        # A pod that starts may be the peer of nominated pods, which need fewer victims then.
        preemption.review(is_changed=True)


def _allocate(
    session: Session, pending_now: Sequence[Pending], *, may_defer: bool = True
) -> list[Pending]:
    """Place what fits; returns what does not."""
    waiting: dict[str, list[Pending]] = {}
    blocked: list[Pending] = []
    order = session.pools_in_order(pending_now)
    for pending in pending_now:
        _queue_up(session, pending, pending.pools, (waiting, blocked))
    while waiting:
        pool = min(waiting, key=order.index)
        round_ = _Round(session, pool, may_defer=may_defer and _is_reclaim_next(session, pool))
        for pending in round_.serve(waiting.pop(pool)):
            following = pending.pools[pending.pools.index(pool) + 1 :]
            _queue_up(session, pending, following, (waiting, blocked))
    return blocked


def _is_reclaim_next(session: Session, pool: str) -> bool:
    """Whether a stage to come takes cards back for what is blocked in the pool."""
    stages = session.settings.stages
    if not session.snapshot.pools[pool].has_preemption or "reclaim" not in stages:
        return False
    return "allocate" in stages and stages.index("allocate") < stages.index("reclaim")


def _queue_up(
    session: Session,
    pending: Pending,
    pools: tuple[str, ...],
    lines: tuple[dict[str, list[Pending]], list[Pending]],
) -> None:
    """Let it wait for the first of `pools` that shares fairly, or else for the next stages."""
    waiting, blocked = lines
    for pool in pools:
        if session.snapshot.pools[pool].policy == "fairshare":
            waiting.setdefault(pool, []).append(pending)
            return
    blocked.append(pending)


@dataclass(slots=True)
class _Round:
    """One pool's turns. `has_blocked_work`: among those that reclaim may serve. `preempting`
    knows what blocked workloads preemption may serve, where that stage is still to come."""

    session: Session
    pool: str
    may_defer: bool
    has_blocked_work: bool = False
    preempting: YieldToPreemption | None = None

    def __post_init__(self) -> None:
        if is_preempt_next(self.session, self.pool):
            self.preempting = YieldToPreemption(self.session, self.pool)

    def serve(self, waiting: list[Pending]) -> list[Pending]:
        """Serve the pool until nothing more fits; returns what it has no place for."""
        session = self.session
        turns = session.take_turns(self.pool, self._serve_drained(waiting))
        blocked = []
        while (turn := turns.pop()) is not None:
            leaf, pending = turn
            key = pending.workload.key
            if self.has_blocked_work and self._may_wait(leaf, pending):
                holds_up = session.holds_up_queue(pending, self.pool)
                session.deferred += [pending, *turns.pass_over(holds_up=holds_up)]
                continue
            if self._must_yield(leaf, pending):
                holds_up = session.holds_up_queue(pending, self.pool)
                session.yielding += [pending, *turns.pass_over(holds_up=holds_up)]
                continue
            is_above = self._is_above(leaf, pending)
            placed = self._try(leaf, pending)
            if isinstance(placed, Refused):
                self._note_refused(leaf, pending, placed, is_above=is_above)
                holds_up = session.holds_up_queue(pending, self.pool)
                alike = [] if holds_up else self._refuse_alike(turns, leaf, pending, placed)
                behind = turns.pass_over(holds_up=holds_up)
                blocked += [pending, *alike, *behind]
                for passed in behind:
                    passed.is_behind = True
                    session.waits.setdefault(passed.workload.key, why_behind(passed, key))
            else:
                turns.settle(placed)
                session.is_any_above_share |= is_above
                if placed is None:
                    session.waits.pop(key, None)
        return blocked

    def _note_refused(
        self, leaf: Queue, pending: Pending, refused: Refused, *, is_above: bool
    ) -> None:
        """The workload has to wait; work that it precedes may have to wait for its turn."""
        # The first pool's reason is the one that its owner expects to read.
        self.session.waits.setdefault(pending.workload.key, refused)
        if refused.reason not in _LACKS_PLACE or pending.only_holds_up:
            return
        self.has_blocked_work |= self.may_defer and not is_above
        if self.preempting is not None:
            self.preempting.add(leaf, pending)

    def _refuse_alike(
        self, turns: Turns, leaf: Queue, pending: Pending, refused: Refused
    ) -> list[Pending]:
        """What is next in line behind the refused workload and like it has no place either."""
        session, alike = self.session, list[Pending]()
        if (pending.workload.key, self.pool) in session.shortages.hopeless:
            return alike
        is_above = self._is_above(leaf, pending)
        for other, why in session.refused_alike(turns, pending, refused, self.pool):
            told = self._keep_or_tell(leaf, other, why) if why.reason in _LACKS_PLACE else why
            self._note_refused(leaf, other, told, is_above=is_above)
            alike.append(other)
        return alike

    def _serve_drained(self, waiting: Sequence[Pending]) -> list[Pending]:
        """The workloads in a drain period have their turn before all others, within what their
        queues deserve, and right before them what would preempt them; returns what still waits."""
        session, started = self.session, set[int]()
        by_project: dict[str, list[Pending]] = {}
        for pending in session.reservations.in_drain_period(waiting):
            leaf = session.queue_of(pending.workload, self.pool)
            if self._is_above(leaf, pending):
                session.reservations.reserve(leaf, pending, self.pool)
                continue
            if self.preempting is not None and self._has_place(pending):
                # On a full cluster, where none has, nothing is sorted.
                by_project = by_project or _by_priority(waiting)
                preceding = by_project[pending.workload.project]
                self._serve_before(leaf, pending, preceding, started)
            if id(pending) not in started:
                self._start(leaf, pending, started)
        return [pending for pending in waiting if id(pending) not in started]

    def _serve_before(
        self, leaf: Queue, pending: Pending, preceding: Sequence[Pending], started: set[int]
    ) -> None:
        """Start what has a place and would preempt the drained workload in the next cycle."""
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
            self.session.waits.pop(pending.workload.key, None)

    def _has_place(self, pending: Pending) -> bool:
        with self.session.reservations.lifted_for(pending, self.pool):
            return has_place_in(self.session, pending, pending.chunk, (self.pool,), "now")

    def _may_wait(self, leaf: Queue, pending: Pending) -> bool:
        """Whether it has its turn after reclaim; pools of other policies have theirs only now."""
        return self._is_fair_everywhere(pending) and self._is_above(leaf, pending)

    def _is_fair_everywhere(self, pending: Pending) -> bool:
        pools = self.session.snapshot.pools
        return all(pools[name].policy == "fairshare" for name in pending.pools)

    def _must_yield(self, leaf: Queue, pending: Pending) -> bool:
        """Whether it has a place now, and its turn only after preemption."""
        if self.preempting is None or not self.preempting.must_yield(leaf, pending):
            return False
        return self._has_place(pending) and self._is_fair_everywhere(pending)

    def _is_above(self, leaf: Queue, pending: Pending) -> bool:
        """Whether it would lift its queue above what it deserves, so that reclaim is not for it, or
        is work without GPUs that GPU work within quota reclaims from."""
        need = pending.need()
        return not leaf.has_room(need, leaf.deserves) or leaf.owes_its_host(need)

    def _try(self, leaf: Queue, pending: Pending) -> Pending | Refused | None:
        """Admit what the workload may start next; returns what still waits of it, or why it all
        has to."""
        session, pool = self.session, self.pool
        key = pending.workload.key
        if session.is_spent():
            session.cut(key, "allocate")
            return Refused(Reason.WAITING_FOR_TURN, f"{key}: the cycle had no time left for it")
        with session.reservations.lifted_for(pending, pool):
            refused = self._try_chunks(pending)
        if isinstance(refused, Refused) and refused.reason in _LACKS_PLACE:
            return self._keep_or_tell(leaf, pending, refused)
        return refused

    def _try_chunks(self, pending: Pending) -> Pending | Refused | None:
        """Admit the first chunk that has a place; or why the very first has none."""
        first = self._try_chunk(pending, pending.chunk)
        if not isinstance(first, Refused) or len(pending.waiting) == 1:
            return first
        for chunk in pending.other_chunks():
            placed = self._try_chunk(pending, chunk)
            if not isinstance(placed, Refused):
                return placed
        return first

    def _keep_or_tell(self, leaf: Queue, pending: Pending, refused: Refused) -> Refused:
        """Keep a place for it, or name the workload for which its place is kept."""
        session, pool = self.session, self.pool
        kept = session.reservations.in_pool(pool)
        if kept is None:
            session.reservations.reserve(leaf, pending, pool)
        elif session.reservations.holds_off(pending, pool):
            first = session.snapshot.workloads[kept.key]
            # The names of other projects' workloads are not for its owner.
            is_own = first.project == pending.workload.project
            named = first.key if is_own else f"work of project {first.project}"
            return Refused(
                Reason.WAITING_FOR_TURN,
                f"{pending.workload.key}: its place is kept for {named}, which is blocked",
            )
        return refused

    def _try_chunk(self, pending: Pending, chunk: Sequence[PodView]) -> Pending | Refused | None:
        """Admit the chunk now, or else on places that are being left; or why it has to wait."""
        session, pool = self.session, self.pool
        now = grant_chunk(session, pending, chunk, (pool, "now"))
        is_any_leaving = pool in session.leaving_pools and isinstance(now, Refused)
        if not is_any_leaving or self._may_start_elsewhere(pending, chunk):
            return now
        later = grant_chunk(session, pending, chunk, (pool, "later"))
        return now if isinstance(later, Refused) else later

    def _may_start_elsewhere(self, pending: Pending, chunk: Sequence[PodView]) -> bool:
        """Whether a pool that it would use next has a place now: better than waiting here."""
        following = pending.pools[pending.pools.index(self.pool) + 1 :]
        return has_place_in(self.session, pending, chunk, following, "now")


def _by_priority(waiting: Sequence[Pending]) -> dict[str, list[Pending]]:
    """What waits, by project: the highest priority first."""
    found: dict[str, list[Pending]] = {}
    for pending in sorted(waiting, key=lambda each: -each.workload.priority):
        found.setdefault(pending.workload.project, []).append(pending)
    return found
