"""Backfill reservations: places kept for a big workload that is blocked, so that smaller work
cannot starve it for ever.

In each node pool one blocked workload may have one, if it asks for more than one GPU and for no
more than its queue's share:

- Each time when a workload's waiting time has doubled, from `LONGEST_S` on, places are kept for it
  for a quarter of the time that it has waited by then, before any workload has its turn. Only
  preemptible pods that have run no longer than that quarter are waited for. Of several such
  workloads the one that has waited longest has the reservation.
- Otherwise it belongs to the first workload in the order of turns that can start within
  `LONGEST_S`, as the run times show that users stated for running pods: the places at which it can
  start first are kept until then.

Other work takes a place that is kept if its user states that it ends before the reservation starts,
or if the blocked workload could take the place back by reclaim or preemption. So cards stand idle
only against work that the blocked workload could not take back; behind pods without a stated end
for two fifths of its waiting time at most, and never behind non-preemptible ones.

Kept places are held in both tables of the simulation, beside its log: a rollback does not touch
them. Reservations are made anew in every cycle; nothing of them is remembered.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.policy.placement.earliest_start import End, Future
from extender.policy.placement.simulation import Cards
from extender.policy.placement.take_back import TakeBack, take_back_of
from extender.policy.plan import Placement, Settings
from extender.policy.queues.tree import RESOURCES, Queue, add, held_amounts, subtract
from extender.policy.workloads.pending import Pending, has_waited_long
from extender.state.model import GPU, Amounts

#: Seconds before a stated start in which cards may stand idle for a workload, and seconds that one
#: has waited before they do without a stated start. Four hours: the length of many trainings, and
#: long beside the time in which small work comes and goes.
LONGEST_S: Final = 4 * 3600
#: The part of its waiting time for which cards stand idle for a workload without a stated start.
DRAIN_PART: Final = 4
#: Workloads of a pool for which a start is looked for in one cycle. Each costs a pass over the pods
#: of the pool: 170 ms where 8,000 run on 1,000 nodes.
_MOST_SEARCHES: Final = 4


@dataclass(slots=True)
class BackfillReservation:
    """Places at which workload `key` can start at `start_s` (None: at an unknown time): node, what
    is asked of it, cards. Where nothing is asked, only the cards are kept. `take_back` is what the
    workload could take back from others by then; None if it can start now. `above_share` is its
    queue if it lifts that above what it deserves, although it is not the turn of work larger than
    the share."""

    key: str
    start_s: int | None
    places: list[tuple[int, Demand | None, Cards]]
    take_back: TakeBack | None
    above_share: Queue | None = None


@dataclass(slots=True)
class Reservations:
    """At most one in each node pool."""

    future: Future
    settings: Settings
    _kept: dict[str, BackfillReservation] = field(default_factory=dict)
    _is_lifted: set[str] = field(default_factory=set)
    _n_searches: dict[str, int] = field(default_factory=dict)

    def in_pool(self, pool: str) -> BackfillReservation | None:
        """The pool's reservation, or None."""
        return self._kept.get(pool)

    def reserve(self, leaf: Queue, pending: Pending, pool: str) -> None:
        """The workload has no place now: keep one for it, if it is the first that may have that."""
        now_s = self.future.snapshot.now_s
        if pool in self._kept or not _is_entitled(leaf, pending, now_s):
            return
        ends = self.future.stated_ends(pool, now_s + LONGEST_S)
        found = self._reserve(leaf, pending, pool, ends)
        if found is None and is_turn_of_larger(leaf, pending, now_s):
            # Its queue held less than its share lately: what idles is part of that.
            ends = self.future.pods_to_drain(pool, now_s - LONGEST_S, now_s + LONGEST_S)
            found = self._reserve(leaf, pending, pool, ends)
        self._keep(pool, found)

    def overdue(self, waiting: Iterable[Pending]) -> list[Pending]:
        """The workloads for which places are kept without a stated start, those that have waited
        longest first."""
        now_s = self.future.snapshot.now_s
        found = [
            (_waits_since(pending), pending.workload.key, pending)
            for pending in waiting
            if now_s - _waits_since(pending) >= LONGEST_S
            and pending.need()[GPU] > MILLI_PER_GPU
            and drain_window(now_s - _waits_since(pending)) is not None
        ]
        return [pending for _, _, pending in sorted(found)]

    def reserve_overdue(self, leaf: Queue, pending: Pending, pool: str) -> None:
        """Keep places for one of these, before any workload has its turn."""
        now_s, since_s = self.future.snapshot.now_s, _waits_since(pending)
        window = drain_window(now_s - since_s)
        if window is None or pool in self._kept or not _is_entitled(leaf, pending, now_s):
            return
        placed = self._free_now(leaf, pending, pool)
        if placed:
            places, above = self._listed(placed), leaf if self._is_above(leaf, pending) else None
            self._keep(pool, BackfillReservation(pending.workload.key, None, places, None, above))
            return
        begin_s, length_s = since_s + window[0], window[1]
        ends = self.future.pods_to_drain(pool, begin_s - length_s, begin_s + length_s)
        self._keep(pool, self._reserve(leaf, pending, pool, ends))

    @contextmanager
    def lifted_for(self, pending: Pending, pool: str) -> Iterator[None]:
        """Kept places count as free within, if the workload may use them."""
        kept = self._kept.get(pool)
        if kept is None or pool in self._is_lifted or not self._may_use(kept, pending, pool):
            yield
            return
        places = self.future.places
        self._is_lifted.add(pool)
        self._hold(kept, -1)
        places.set_open(pool, is_open=True)
        try:
            yield
        finally:
            places.set_open(pool, is_open=False)
            self._is_lifted.discard(pool)
            if pool in self._kept:
                self._hold(kept, 1)

    def blocks(self, pending: Pending, pool: str) -> bool:
        """Whether the workload would have a place now, were none kept for another."""
        kept = self._kept.get(pool)
        if kept is None or self._may_use(kept, pending, pool):
            return False
        sim = self.future.sim
        mark = sim.checkpoint()
        self._hold(kept, -1)
        self.future.places.set_open(pool, is_open=True)
        placed = self.future.places.place_chunk(pending, pool, "now")
        self.future.places.set_open(pool, is_open=False)
        sim.rollback(mark)
        self._hold(kept, 1)
        return placed is not None

    def shrink_to_idle(self) -> None:
        """Keep the idle cards only. What other pods hold may be taken from them by any workload
        that is entitled to it: that comes to an end, unlike a stream of new work."""
        cards = self.future.sim.later.cards
        for kept in self._kept.values():
            self._hold(kept, -1)
            idle: list[tuple[int, Demand | None, Cards]] = []
            for ix, _, shares in kept.places:
                free = cards.free_of(ix)
                some = tuple(share for share in shares if free[share.index] >= share.milli)
                if some:
                    idle.append((ix, None, some))
                    cards.hold(ix, some)
            for ix, _, some in idle:
                cards.give_back(ix, some)
            kept.places = idle
            self._hold(kept, 1)

    def close(self, key: str, pool: str) -> None:
        """The workload has its places; inside `open_to` they simply are not kept again."""
        kept = self._kept.get(pool)
        if kept is not None and kept.key == key:
            del self._kept[pool]
            if pool not in self._is_lifted:
                self._hold(kept, -1)

    def _may_use(self, kept: BackfillReservation, pending: Pending, pool: str) -> bool:
        workload = pending.workload
        if workload.key == kept.key:
            return True
        now_s, run_s = self.future.snapshot.now_s, workload.expected_run_s
        if kept.start_s is not None and run_s is not None and now_s + run_s <= kept.start_s:
            return True
        leaf = self.future.queues[pool].leaf_of(workload)
        if (
            leaf is not None
            and kept.above_share not in (None, leaf)
            and _is_deserved(leaf, pending)
        ):
            # Reclaim would take the place back for it.
            return True
        after_s = 0 if kept.start_s is None else kept.start_s - now_s
        return (
            leaf is not None
            and kept.take_back is not None
            and kept.take_back.could_take(leaf, workload, pending.need(), after_s)
        )

    def _is_above(self, leaf: Queue, pending: Pending) -> bool:
        now_s = self.future.snapshot.now_s
        return not _is_deserved(leaf, pending) and not is_turn_of_larger(leaf, pending, now_s)

    def _keep(self, pool: str, found: BackfillReservation | None) -> None:
        if found is not None:
            self._kept[pool] = found
            self._hold(found, 1)

    def _free_now(self, leaf: Queue, pending: Pending, pool: str) -> Sequence[Placement]:
        """Places that the workload would have if it were its turn, unless that comes after reclaim
        only."""
        workload, need = pending.workload, pending.need()
        may_hold = leaf.may_hold(need, is_np=not workload.is_preemptible)
        if not may_hold or not leaf.has_room(need, leaf.deserves):
            return ()
        sim = self.future.sim
        mark = sim.checkpoint()
        placed = self.future.places.place_chunk(pending, pool, "now")
        sim.rollback(mark)
        return placed or ()

    def _listed(self, placed: Sequence[Placement]) -> list[tuple[int, Demand | None, Cards]]:
        ix_of = self.future.sim.now.cards.ix
        return [(ix_of[each.node], each.pod.demand, each.cards) for each in placed]

    def _reserve(
        self, leaf: Queue, pending: Pending, pool: str, ends: Sequence[End]
    ) -> BackfillReservation | None:
        """Keep the places at which the workload can start after as few of `ends` as possible."""
        n_searches = self._n_searches.get(pool, 0)
        if not ends or n_searches == _MOST_SEARCHES:
            return None
        self._n_searches[pool] = n_searches + 1
        future = self.future
        could = self.take_back(leaf, pending, pool, ends)
        freed = future.running(pool, could.could_take_running)
        found = future.first_start(pending, pool, freed, ends)
        if found is None:
            return None
        n_ended, placed = found
        if not _is_allowed(leaf, pending, _held_at_start(leaf, pending, ends[:n_ended])):
            return None
        return BackfillReservation(
            pending.workload.key,
            ends[n_ended - 1].end_s,
            self._listed(placed),
            self.take_back(leaf, pending, pool, ends[:n_ended]),
            leaf if self._is_above(leaf, pending) else None,
        )

    def take_back(self, leaf: Queue, pending: Pending, pool: str, ended: Sequence[End]) -> TakeBack:
        """What the workload could take back once these have ended and it starts."""
        at_start = _held_at_start(leaf, pending, ended)
        view = self.future.snapshot.pools[pool]
        return take_back_of(pending.workload, leaf, at_start, view, self.settings)

    def _hold(self, kept: BackfillReservation, sign: int) -> None:
        sim = self.future.sim
        sim.touched.extend(ix for ix, _, _ in kept.places)
        for table in (sim.now, sim.later):
            for ix, demand, cards in kept.places:
                if demand is None:
                    change = table.cards.hold if sign > 0 else table.cards.give_back
                    change(ix, cards)
                elif sign > 0:
                    table.hold(ix, demand, cards)
                else:
                    table.give_back(ix, demand, cards)


def drain_window(waited_s: int) -> tuple[int, int] | None:
    """When, in seconds of its waiting, the period began in which places are kept for a workload
    that has no stated start, and how long it lasts; None outside of these periods."""
    if waited_s < LONGEST_S:
        return None
    begin_s = LONGEST_S << ((waited_s // LONGEST_S).bit_length() - 1)
    length_s = begin_s // DRAIN_PART
    return (begin_s, length_s) if waited_s < begin_s + length_s else None


def _held_at_start(leaf: Queue, pending: Pending, ended: Sequence[End]) -> dict[Queue, list[int]]:
    """What the workload's queues hold once these pods have ended and it has started."""
    at_start = {queue: queue.allocated[:] for queue in leaf.chain}
    need = pending.need()
    for queue, held in at_start.items():
        add(held, need)
        for end in ended:
            if end.leaf is not None and queue in end.leaf.chain:
                subtract(held, held_amounts(end.pod, 0))
    return at_start


def _is_allowed(leaf: Queue, pending: Pending, at_start: Mapping[Queue, Sequence[int]]) -> bool:
    """Whether limits, and quotas for non-preemptible work, allow the start."""
    need = pending.need()
    if not all(at_start[queue][r] <= queue.limit[r] for queue in leaf.chain for r in RESOURCES):
        return False
    return pending.workload.is_preemptible or all(
        queue.allocated_np[r] + need[r] <= queue.np_quota[r]
        for queue in leaf.chain
        for r in RESOURCES
        if need[r]
    )


def _waits_since(pending: Pending) -> int:
    return max(pending.workload.created_at, pending.workload.waits_since)


def _is_entitled(leaf: Queue, pending: Pending, now_s: int) -> bool:
    """Whether it is big, and no bigger than what its queues may have, or it is the turn of what
    is."""
    need = pending.need()
    if need[GPU] <= MILLI_PER_GPU or pending.is_surplus:
        return False
    if all(_holds(queue, need) for queue in leaf.chain):
        return True
    return is_turn_of_larger(leaf, pending, now_s)


def is_turn_of_larger(leaf: Queue, pending: Pending, now_s: int) -> bool:
    """Whether the workload is larger than the share of a queue of its, has waited long, and each
    such queue held less than its share lately."""
    need = pending.need()
    larger = [queue for queue in leaf.chain if not _holds(queue, need)]
    if not larger or not has_waited_long(pending.workload, now_s):
        return False
    return all(queue.is_owed_more_than_its_share(need) for queue in larger)


def _is_deserved(leaf: Queue, pending: Pending) -> bool:
    """Whether its queues deserve what they hold together with the next chunk."""
    return all(queue.has_room(pending.need(), queue.deserves) for queue in leaf.chain)


def _holds(queue: Queue, need: Amounts) -> bool:
    """Whether what the queue may have is enough for it."""
    return all(need[r] <= max(queue.share[r], queue.quota[r]) for r in RESOURCES if need[r])
