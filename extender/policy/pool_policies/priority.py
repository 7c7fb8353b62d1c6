"""Node pools of policy `priority`: the best priority first over the whole pool, whatever its queue.

Within a priority the older workload goes first, and one that does not fit holds up none behind it.
A workload without a place holds up all work of worse priority, but preemptible work where the pool
preempts. A workload with a pod that fits no node, even if that is empty, holds up nothing.

A workload without a place may have work of worse priorities evicted: the worst first, in it the
newest, only if it then fits, and none that it does not need; nothing while another pool that it may
use has a place for it. Work with GPUs and work without are served apart and do not hold each other
up. Limits, and quotas of non-preemptible work, hold as everywhere.

The rules are those of Determined's priority scheduler (`master/internal/rm/agentrm/priority.go`),
which may stop more than it needs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from extender.api.reasons import Reason, Refused
from extender.policy.actions.chunk_grant import grant, has_place_in
from extender.policy.pool_policies.displacement import Displacement, Taken
from extender.policy.pool_policies.eviction_units import Unit, stoppable, units_in
from extender.policy.pool_policies.priority_fill_back import spare_together
from extender.policy.queues.tree import add, subtract
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU, WorkloadView

#: Reasons that no victim can help against: who may not hold more is in nobody's way.
_OWN_FAULT = (Reason.OVER_LIMIT, Reason.NON_PREEMPTIBLE_OVER_QUOTA)


@dataclass(slots=True)
class PriorityPools:
    """All pools of the policy in one cycle; `stops` is what is evicted, and for what."""

    session: Session
    stops: list[Taken] = field(default_factory=list)

    def serve(self, pool: str, waiting: Iterable[Pending]) -> list[Pending]:
        """Decide what waits in the pool; returns what has no place."""
        with_gpus: list[Pending] = []
        without: list[Pending] = []
        for pending in waiting:
            (with_gpus if pending.need()[GPU] else without).append(pending)
        return [
            *_Line(self.session, pool, self.stops, has_gpu=True).serve(with_gpus),
            *_Line(self.session, pool, self.stops, has_gpu=False).serve(without),
        ]

    def review(self) -> None:
        """All pools are served: keep victims of work that has a place in another pool now, or that
        fits what work of the other sort, with GPUs or without, has left since of a host."""
        are_with_gpus = {unit.amounts[GPU] > 0 for unit, _ in self.stops}
        if len(are_with_gpus) > 1 or any(len(taker.pools) > 1 for _, taker in self.stops):
            self.session.spare({pod.uid for unit, _ in self.stops for pod in unit.pods})
            self.stops = _settle(self.session, self.stops)


def _settle(session: Session, taken: Sequence[Taken]) -> list[Taken]:
    """Put into the plan who has to leave after all; returns them."""
    leaving = spare_together(session, taken)
    going = {id(unit) for unit, _ in leaving}
    for unit, _ in taken:
        if id(unit) not in going:
            for queue in unit.leaf.chain:
                subtract(queue.leaving, unit.amounts)
    for unit, taker in leaving:
        unit.evict(session, Reason.PREEMPTED, taker.key, "")
    return leaving


@dataclass(slots=True)
class _Line:
    """Everything of one sort that waits in the pool. `is_blocked`: something better had no place.

    `units` is what may be stopped, the worst and newest first, once `search` has begun; of those
    `gone` are stopped, as all before `front` are. `hopeless` holds what had no place even with
    victims, and for which best priority. `taken` is who was stopped for whom, `giving` whose work;
    `first_stopped` comes first of them in order: it will wait before what is behind it.
    """

    session: Session
    pool: str
    stops: list[Taken]
    has_gpu: bool
    is_blocked: bool = False
    search: Displacement | None = None
    units: list[Unit] = field(default_factory=list)
    front: int = 0
    gone: set[int] = field(default_factory=set)
    hopeless: dict[object, int] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    giving: set[str] = field(default_factory=set)
    first_stopped: tuple[int, int, str] | None = None

    def serve(self, waiting: Sequence[Pending]) -> list[Pending]:
        """Priority after priority; returns what has no place."""
        left: list[Pending] = []
        in_order = sorted(waiting, key=lambda pending: _order(pending.workload))
        for _, group in groupby(in_order, key=lambda pending: pending.workload.priority):
            unplaced = [rest for pending in group if (rest := self._start(pending)) is not None]
            stuck = [rest for pending in unplaced if (rest := self._preempt(pending)) is not None]
            self.is_blocked = self.is_blocked or any(map(self._lacks_place, stuck))
            left += stuck
        self.stops += _settle(self.session, self.taken)
        return left

    def _start(self, pending: Pending) -> Pending | None:
        """Place what fits now, chunk by chunk; returns what is left."""
        rest: Pending | None = pending
        while rest is not None:
            if not self._may_try(rest):
                return rest
            given = grant(self.session, rest, self.pool, "now")
            if isinstance(given, Refused):
                self.session.waits.setdefault(rest.workload.key, given)
                return rest
            rest = given
        self.session.waits.pop(pending.workload.key, None)
        return None

    def _preempt(self, pending: Pending) -> Pending | None:
        """Place what fits once others have left, stopping them if need be; returns what is left."""
        session = self.session
        rest: Pending | None = pending
        while rest is not None:
            if not self._may_try(rest) or self._is_behind_stopped(rest):
                return rest
            given = grant(session, rest, self.pool, "later")
            if isinstance(given, Refused) and given.reason not in _OWN_FAULT:
                given = self._stop_others(rest) if self._may_stop(rest.workload) else given
            if isinstance(given, Refused):
                return rest
            rest = given
        session.waits.pop(pending.workload.key, None)
        return None

    def _may_try(self, pending: Pending) -> bool:
        """Whether it may start at all; what waits behind better work is told so."""
        session, workload = self.session, pending.workload
        has_preemption = session.snapshot.pools[self.pool].has_preemption
        if session.is_spent():
            session.cut(workload.key, "allocate")
            return False
        if workload.key in self.giving:
            # It grows no more in the cycle in which it shrinks.
            return False
        if not self.is_blocked or (has_preemption and workload.is_preemptible):
            return True
        detail = f"{workload.key}: work of better priority waits for a place in pool {self.pool}"
        session.waits.setdefault(workload.key, Refused(Reason.WAITING_FOR_TURN, detail))
        return False

    def _is_behind_stopped(self, pending: Pending) -> bool:
        """Whether work stopped in this cycle has the better claim on what is left later."""
        return self.first_stopped is not None and self.first_stopped < _order(pending.workload)

    def _may_stop(self, workload: WorkloadView) -> bool:
        """Whether it may stop others at all, and has waited for as long as it has to before."""
        snapshot, stages = self.session.snapshot, self.session.settings.stages
        has_waited = snapshot.now_s - workload.waits_since >= workload.preemption_delay_s
        if workload.doubt is not None:
            return False
        return "preempt" in stages and snapshot.pools[self.pool].has_preemption and has_waited

    def _lacks_place(self, pending: Pending) -> bool:
        """Whether it waits for a place that it could ever have, and not for its queue's bounds."""
        leaf = self.session.queue_of(pending.workload, self.pool)
        refused = self.session.check_room(leaf, pending.workload, pending.need(), "later")
        return refused is None and self.session.could_ever_start(pending, self.pool)

    def _stop_others(self, pending: Pending) -> Pending | Refused | None:
        """Stop what is worse so that as much of it fits as can; as `grant`."""
        session, workload = self.session, pending.workload
        refused = session.shortages.explain(pending, self.pool)
        shape = self._shape(pending)
        if workload.priority <= self.hopeless.get(shape, workload.priority - 1):
            return refused
        others = [pool for pool in pending.pools if pool != self.pool]
        if has_place_in(session, pending, pending.chunk, others, "later"):
            return refused
        if self.search is None:
            self.search = Displacement(session, self.pool)
            self.units = self._find_units()
        mark = session.sim.checkpoint()
        found = self.search.find(pending, self._worse_than(workload.priority))
        if found is None:
            session.sim.rollback(mark)
            self.hopeless[shape] = workload.priority
            return refused
        given = grant(session, pending, self.pool, "later", chunks=[found[0]])
        if isinstance(given, Refused):
            session.sim.rollback(mark)
            return given
        for unit in found[1]:
            self.gone.add(id(unit))
            self.search.gone.update(pod.uid for pod in unit.pods)
            self.taken.append((unit, workload))
            self.giving.add(unit.workload.key)
            # What starts at once has to leave room for it below the limits.
            for queue in unit.leaf.chain:
                add(queue.leaving, unit.amounts)
            stopped = _order(unit.workload)
            self.first_stopped = min(stopped, self.first_stopped or stopped)
        self.hopeless.clear()
        session.places.forget_failures(self.pool)
        return given

    def _worse_than(self, priority: int) -> Iterator[Unit]:
        """What may be stopped for work of this priority."""
        while self.front < len(self.units) and id(self.units[self.front]) in self.gone:
            self.front += 1
        split = self.search.split if self.search else ()
        for unit in islice(self.units, self.front, None):
            if unit.workload.priority >= priority:
                return
            # What is left of work that was split goes together or not at all.
            if id(unit) not in self.gone and unit.workload.key not in split:
                yield unit

    def _shape(self, pending: Pending) -> object:
        """What makes it alike to others: of whom some keep away is alike to nobody."""
        chunk = pending.chunk
        if self.session.places.beside.concerns(chunk):
            return pending.workload.key
        return frozenset((id(pod.constraints), pod.demand) for pod in chunk), len(chunk)

    def _find_units(self) -> list[Unit]:
        """What may be stopped, the worst priority first, in it the newest."""
        session = self.session
        workloads = stoppable(session, self.pool, Reason.PREEMPTED)
        workloads.sort(key=lambda w: (w.priority, -w.created_at, w.key))
        units = (unit for w in workloads for unit in units_in(session, self.pool, w))
        return [unit for unit in units if (unit.amounts[GPU] > 0) is self.has_gpu]


def _order(workload: WorkloadView) -> tuple[int, int, str]:
    return -workload.priority, workload.created_at, workload.key
