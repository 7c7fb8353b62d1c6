"""Work that does not start yet because a blocked workload comes first.

If stage `reclaim` or `preempt` can serve the blocked workload, free cards and the room in quotas
are left to it, so that it evicts no more pods than it needs. Work of its project that comes after
it, and work of other projects above their shares, is served after these stages: otherwise the
blocked workload would evict one more pod, evict that very work a cycle later, or wait.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Final

from extender.policy.placement.earliest_start import End
from extender.policy.placement.take_back import TakeBack
from extender.policy.queues.common_ancestor import levels_of
from extender.policy.queues.min_runtime import preempt_minimum_s, reclaim_minimum_s
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import PodView, WorkloadView

#: Blocked workloads that are considered per project, in the order in which they are served.
_MOST_BLOCKED: Final = 4


@dataclass(slots=True)
class _Blocked:
    """A workload and its `chunk` that does not fit; the others are computed on first use.

    `now` is what it may take, `own` are the pods of its project that it may evict, and `then` is
    what it may take once these are gone.
    """

    leaf: Queue
    pending: Pending
    chunk: Sequence[PodView]
    now: TakeBack | None = None
    own: list[End] = field(default_factory=list)
    then: TakeBack | None = None
    can_be_served: bool | None = None


@dataclass(slots=True)
class YieldToBlocked:
    """The blocked workloads of one pool, by project. `_before_others` has those that work of other
    projects may have to wait for. `_workloads` has what holds places in the cluster, by the project
    and the queue that it is charged to in this pool, once it was needed."""

    session: Session
    pool: str
    _by_project: dict[Queue, list[_Blocked]] = field(default_factory=dict)
    _before_others: list[_Blocked] = field(default_factory=list)
    _workloads: dict[Queue, dict[Queue, list[WorkloadView]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for leaf, pending, chunk in self.session.backlog.blocked.get(self.pool, ()):
            self._register(leaf, pending, chunk)

    def add(self, leaf: Queue, pending: Pending) -> None:
        """Add a workload; its next chunk does not fit."""
        chunk = pending.chunk
        if self._register(leaf, pending, chunk):
            self.session.backlog.blocked.setdefault(self.pool, []).append((leaf, pending, chunk))

    def _register(self, leaf: Queue, pending: Pending, chunk: Sequence[PodView]) -> bool:
        """Add the workload if its project has fewer than `_MOST_BLOCKED`; returns whether."""
        blocked = self._by_project.setdefault(leaf.project, [])
        if len(blocked) >= _MOST_BLOCKED:
            return False
        blocked.append(_Blocked(leaf, pending, chunk))
        self._before_others.append(blocked[-1])
        return True

    def must_yield(
        self, leaf: Queue, pending: Pending, has_place: Callable[[Pending], bool], *, is_above: bool
    ) -> bool:
        """Whether the workload, if it `has_place` now, is to be served after the stages that evict;
        it would lift its queue above its share if `is_above`."""
        own = [
            each
            for each in self._by_project.get(leaf.project, ())
            if each.can_be_served is not False and self._follows(leaf, pending, each)
        ]
        if not own and not (is_above and self._before_others):
            return False
        return has_place(pending) and (
            any(map(self._can_be_served, own)) or (is_above and self._is_before_others(leaf))
        )

    def _is_before_others(self, leaf: Queue) -> bool:
        """Whether work of this queue that is above its share waits for another project's. Drops
        those that no other project's work waits for."""
        own: list[_Blocked] = []
        for at, each in enumerate(self._before_others):
            if each.leaf.project is leaf.project:
                own.append(each)
            elif self._then(each).is_entitled and self._can_be_served(each):
                self._before_others = own + self._before_others[at:]
                return True
        self._before_others = own
        return False

    def _follows(self, leaf: Queue, pending: Pending, blocked: _Blocked) -> bool:
        """Whether the workload comes after the blocked one in the order of their project. Users at
        equal precedence do not wait for each other."""
        if self._now(blocked).precedes(leaf, pending.workload):
            return True
        is_no_higher = pending.workload.priority <= blocked.pending.workload.priority
        return leaf is blocked.leaf and pending is not blocked.pending and is_no_higher

    def _now(self, blocked: _Blocked) -> TakeBack:
        if blocked.now is None:
            take_back = self.session.reservations.take_back
            blocked.now = take_back(blocked.leaf, blocked.pending, self.pool, ())
        return blocked.now

    def _then(self, blocked: _Blocked) -> TakeBack:
        if blocked.then is None:
            now = self._now(blocked)
            queues = self._workloads_by_project().get(blocked.leaf.project, {})
            blocked.own = self._running(queues.values(), now.could_preempt, preempt_minimum_s)
            take_back, own = self.session.reservations.take_back, blocked.own
            then = take_back(blocked.leaf, blocked.pending, self.pool, own) if own else now
            blocked.then = then
        return blocked.then

    def _can_be_served(self, blocked: _Blocked) -> bool:
        """Whether the workload still waits, and would fit if all pods that it may evict were gone:
        those of its project, and beside them, within its quota, those that it could reclaim then;
        or those that it could reclaim now."""
        if not blocked.pending.waiting or blocked.pending.chunk is not blocked.chunk:
            return False
        if blocked.can_be_served is None:
            then = self._then(blocked)
            own = blocked.own
            beside = (
                [*own, *self._lent(then)] if then.is_in_quota else self._lent(self._now(blocked))
            )
            blocked.can_be_served = any(
                self._has_place_without(blocked, gone) for gone in (own, beside)
            )
        return blocked.can_be_served

    def _has_place_without(self, blocked: _Blocked, gone: Sequence[End]) -> bool:
        """Whether it fits once these pods are gone; false if there are none."""
        if not gone:
            return False
        reservations, pending = self.session.reservations, blocked.pending
        with reservations.lifted_for(pending, self.pool):
            return reservations.future.has_place_without(pending, self.pool, gone)

    def _lent(self, taker: TakeBack) -> list[End]:
        """The pods of other projects that it could reclaim."""
        if not (taker.can_reclaim and taker.n_entitled):
            return []
        level_of = levels_of(taker.leaf)
        lenders = [
            workloads
            for queues in self._workloads_by_project().values()
            for queue, workloads in queues.items()
            if taker.could_reclaim(queue)
        ]
        return self._running(
            lenders,
            lambda _, other: other.is_preemptible,
            lambda queue: reclaim_minimum_s(queue, level_of),
        )

    def _workloads_by_project(self) -> dict[Queue, dict[Queue, list[WorkloadView]]]:
        if not self._workloads:
            leaf_of = self.session.queues[self.pool].leaf_of
            for workload in self.session.snapshot.workloads.values():
                leaf = leaf_of(workload)
                if leaf is not None and any(pod.node for pod in workload.pods):
                    queues = self._workloads.setdefault(leaf.project, {})
                    queues.setdefault(leaf, []).append(workload)
        return self._workloads

    def _running(
        self,
        workloads: Iterable[Sequence[WorkloadView]],
        may_evict: Callable[[Queue, WorkloadView], bool],
        minimum_s: Callable[[Queue], int],
    ) -> list[End]:
        """The pods of these workloads that the predicate selects and that have run for their
        queue's minimum."""
        future, now_s = self.session.reservations.future, self.session.snapshot.now_s
        minimum_of = cache(minimum_s)
        return [
            end
            for end in future.running(self.pool, may_evict, chain.from_iterable(workloads))
            if end.leaf is not None and now_s - end.pod.started_at >= minimum_of(end.leaf)
        ]
