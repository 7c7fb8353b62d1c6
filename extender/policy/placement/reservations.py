"""Backfill reservations: idle cards kept for a blocked workload, so that smaller work cannot starve
it.

In each node pool one blocked workload that asks for more than one GPU, and stays within what its
queue deserves, has the places at which it can start first: after the ends that users stated for the
next four hours, or in its drain periods after the ends of the preemptible pods that started lately.
Other work starts on these cards if it states that it ends before, if it would preempt the blocked
workload, or if the blocked workload could take them back by reclaim or preemption, unless work of
its project that may not use them precedes it: that would preempt it, and have the cards after all.

A drain period begins when the workload has waited for 4, 8, 16, ... hours, and lasts for a quarter
of that time. Work that is larger than its queue's share has one in its turn, unless the quotas that
others use leave less than it asks for.

Where an autoscaler reads pods, cards are kept as well for a workload that waits without the gate:
those that its pods could use on the nodes that are there, until it has all of its nodes. Work of
other projects that stays within its quotas may use them, and what would preempt it. Else the first
of its nodes would go to work that borrows, and the autoscaler would add another one for it.

Cards are held in both tables of the simulation, beside its log: a rollback does not touch them.
Reservations are made anew in every cycle; nothing of them is remembered.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from extender.api.units import MILLI_PER_GPU
from extender.policy.placement.earliest_start import End, Future
from extender.policy.placement.simulation import Cards
from extender.policy.placement.take_back import TakeBack
from extender.policy.plan import Settings
from extender.policy.queues.min_runtime import preempt_minimum_s
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.queues.tree import PoolQueues
from extender.policy.workloads.first_kinds import FIRST_KINDS
from extender.policy.workloads.pending import Pending, has_waited_long
from extender.state.model import GPU, WorkloadView

#: Seconds before a stated start in which cards may stand idle for a workload, and seconds that one
#: has waited before they do without a stated start. Four hours: the length of many trainings, and
#: long beside the time in which small work comes and goes.
LONGEST_S: Final = 4 * 3600
#: The part of its waiting time for which cards stand idle for a workload without a stated start.
DRAIN_PART: Final = 4
#: Workloads of a pool for which a start is looked for in one cycle. Each costs a pass over the pods
#: of the pool: 170 ms where 8,000 run on 1,000 nodes.
_MOST_SEARCHES: Final = 4


@dataclass(slots=True, frozen=True)
class BackfillReservation:
    """Workload `key` can start at `start_s` (None: at an unknown time). `cards`, by node ix, are
    idle until then. `take_back` is what it could take back from others by then. `awaits_nodes`: it
    starts once an autoscaler has added nodes."""

    key: str
    start_s: int | None
    cards: Sequence[tuple[int, Cards]]
    take_back: TakeBack
    awaits_nodes: bool = False


@dataclass(slots=True)
class Reservations:
    """At most one in each node pool. `_held_off` are workloads for which only kept cards were free:
    by pool, project and whether they precede training, the one of the highest priority."""

    future: Future
    settings: Settings
    _held_off: dict[tuple[str, Queue, bool], TakeBack] = field(default_factory=dict)
    _kept: dict[str, BackfillReservation] = field(default_factory=dict)
    _n_searches: dict[str, int] = field(default_factory=dict)

    def in_pool(self, pool: str) -> BackfillReservation | None:
        """The pool's reservation, or None; it does not count while it is lifted."""
        return self._kept.get(pool)

    def in_drain_period(self, waiting: Iterable[Pending]) -> list[Pending]:
        """The workloads that have their turn before all others, those that have waited longest
        first."""
        now_s = self.future.snapshot.now_s
        found = [
            (_waits_since(pending), pending.workload.key, pending)
            for pending in waiting
            if pending.need()[GPU] > MILLI_PER_GPU
            and drain_window(now_s - _waits_since(pending)) is not None
        ]
        return [pending for _, _, pending in sorted(found)]

    def await_nodes(self, waiting: Sequence[Pending]) -> None:
        """In each pool whose autoscaler reads pods, keep what the first workload that it adds nodes
        for can use of those that are there."""
        for pool, view in self.future.snapshot.pools.items():
            if view.elastic is None or not view.elastic.reads_pods:
                continue
            seen = [each for each in waiting if pool in each.workload.pools and _is_seen(each)]
            first = min(seen, default=None)
            leaf = self.future.queues[pool].leaf_of(first.workload) if first else None
            if first is not None and leaf is not None:
                self._keep(pool, self._until_nodes_come(leaf, first, pool))

    def reserve(self, leaf: Queue, pending: Pending, pool: str) -> None:
        """The workload has no place now: keep one for it, if it is the first that may have that."""
        now_s = self.future.snapshot.now_s
        if pool in self._kept or not self._may_reserve(leaf, pending, pool):
            return
        ends = self.future.stated_ends(pool, now_s + LONGEST_S)
        found = self._find(leaf, pending, pool, ends)
        if found is None and (drained := self._drained(leaf, pending, pool)) is not None:
            found = self._find(leaf, pending, pool, self.future.pods_to_drain(pool, *drained))
        if found is not None:
            self._keep(pool, found)

    @contextmanager
    def lifted_for(self, pending: Pending, pool: str) -> Iterator[None]:
        """Kept cards count as free within, if the workload may use them."""
        kept = self._kept.get(pool)
        if kept is None or not self._may_use(kept, pending, pool):
            yield
        else:
            with self._lifted(kept, pool):
                yield

    def holds_off(self, pending: Pending, pool: str) -> bool:
        """Whether the workload would have a place now, were none kept for another; remembered, so
        that the place goes to no work that it would preempt."""
        kept = self._kept.get(pool)
        if kept is None or self._may_use(kept, pending, pool):
            return False
        with self._lifted(kept, pool):
            has_place = self.future.places.has_place(pending, pool, "now")
        if has_place:
            self._remember(pending, pool)
        return has_place

    def take_back(self, leaf: Queue, pending: Pending, pool: str, ended: Sequence[End]) -> TakeBack:
        """What the workload could take back once these have ended and it starts."""
        view = self.future.snapshot.pools[pool]
        gone = [(end.leaf, end.pod) for end in ended if end.leaf is not None]
        return TakeBack.of(pending, leaf, gone, view, self.settings)

    def _keep(self, pool: str, found: BackfillReservation) -> None:
        self._kept[pool] = found
        self._hold(found, 1)

    def _until_nodes_come(self, leaf: Queue, pending: Pending, pool: str) -> BackfillReservation:
        """What the workload's pods, one by one, could use of the nodes that are there."""
        sim, places = self.future.sim, self.future.places
        mark = sim.checkpoint()
        tried = [places.place_pod(pod, pool, "now") for pod in pending.chunk]
        sim.rollback(mark)
        ix_of = sim.now.cards.ix
        cards = [(ix_of[each.node], each.cards) for each in tried if each is not None]
        taken = replace(
            self.take_back(leaf, pending, pool, ()), can_reclaim=False, can_preempt=False
        )
        return BackfillReservation(pending.workload.key, None, cards, taken, awaits_nodes=True)

    def _may_use(self, kept: BackfillReservation, pending: Pending, pool: str) -> bool:
        workload = pending.workload
        if workload.key == kept.key:
            return True
        leaf = self.future.queues[pool].leaf_of(workload)
        if leaf is None or self._is_preceded(leaf, workload, pool):
            return False
        if self._would_preempt(leaf, pending, kept, pool):
            return True
        if kept.awaits_nodes and leaf.project is not kept.take_back.leaf.project:
            return all(each.has_room(pending.need(), each.quota) for each in leaf.project.chain)
        now_s, run_s = self.future.snapshot.now_s, workload.expected_run_s
        if kept.start_s is not None and run_s is not None and now_s + run_s <= kept.start_s:
            return True
        after_s = 0 if kept.start_s is None else kept.start_s - now_s
        return kept.take_back.could_take(leaf, workload, pending.need(), after_s)

    def _would_preempt(
        self, leaf: Queue, pending: Pending, kept: BackfillReservation, pool: str
    ) -> bool:
        """Whether the workload would preempt the one that the cards are kept for."""
        big = kept.take_back
        if leaf.project is not big.leaf.project:
            return False
        return self.take_back(leaf, pending, pool, ()).could_preempt(big.leaf, big.workload)

    def _remember(self, pending: Pending, pool: str) -> None:
        workload, leaf = pending.workload, self.future.queues[pool].leaf_of(pending.workload)
        if leaf is not None:
            key = pool, leaf.project, workload.kind in FIRST_KINDS
            known = self._held_off.get(key)
            if known is None or known.workload.priority < workload.priority:
                self._held_off[key] = self.take_back(leaf, pending, pool, ())

    def _is_preceded(self, leaf: Queue, workload: WorkloadView, pool: str) -> bool:
        """Whether one that was held off would preempt the workload at once."""
        if preempt_minimum_s(leaf):
            return False
        held_off = (self._held_off.get((pool, leaf.project, first)) for first in (True, False))
        return any(
            each is not None
            and each.could_preempt(leaf, workload)
            and not self.future.is_served(each.workload.key)
            for each in held_off
        )

    def _find(
        self, leaf: Queue, pending: Pending, pool: str, ends: Sequence[End]
    ) -> BackfillReservation | None:
        """The places at which the workload can start after as few of `ends` as possible."""
        n_searches = self._n_searches.get(pool, 0)
        if not ends or n_searches == _MOST_SEARCHES:
            return None
        self._n_searches[pool] = n_searches + 1
        future = self.future
        could = self.take_back(leaf, pending, pool, ends)
        evicted = future.running(pool, could.could_take_running)
        uids = {end.pod.uid for end in evicted}
        ends = [end for end in ends if end.pod.uid not in uids]
        found = future.first_start(pending, pool, evicted, ends)
        if found is None:
            return None
        n_ended, placed = found
        could = self.take_back(leaf, pending, pool, ends[:n_ended])
        if not could.is_allowed or not (
            could.is_entitled or self._is_turn_of_larger(leaf, pending, pool)
        ):
            return None
        # What other pods hold may be taken from them by any workload that is entitled to it: that
        # comes to an end, unlike a stream of new work.
        cards = future.idle_of(placed)
        return BackfillReservation(pending.workload.key, ends[n_ended - 1].end_s, cards, could)

    def _may_reserve(self, leaf: Queue, pending: Pending, pool: str) -> bool:
        """Whether it is big, and no bigger than what its queues may have, or it is the turn of what
        is."""
        if pending.need()[GPU] <= MILLI_PER_GPU or pending.is_surplus:
            return False
        is_within = all(_could_hold(queue, pending) for queue in leaf.chain)
        return is_within or self._is_turn_of_larger(leaf, pending, pool)

    def _drained(self, leaf: Queue, pending: Pending, pool: str) -> tuple[int, int] | None:
        """Pods are waited for that started since the first of these times, or end until the
        second."""
        now_s, since_s = self.future.snapshot.now_s, _waits_since(pending)
        if (window := drain_window(now_s - since_s)) is not None:
            begin_s, length_s = since_s + window[0], window[1]
            return begin_s - length_s, begin_s + length_s
        if self._is_turn_of_larger(leaf, pending, pool):
            # Its queue held less than its share lately: what idles is part of that.
            return now_s - LONGEST_S, now_s + LONGEST_S
        return None

    def _is_turn_of_larger(self, leaf: Queue, pending: Pending, pool: str) -> bool:
        """Whether the workload is larger than the share of any of its queues, has waited long, and
        each such queue held less than its share lately and finds enough beside the quotas that
        others use: work within quota has its turn first."""
        need = pending.need()
        larger = [queue for queue in leaf.chain if not _could_hold(queue, pending)]
        if not larger or not has_waited_long(pending.workload, self.future.snapshot.now_s):
            return False
        queues = self.future.queues[pool]
        return all(
            queue.may_exceed_share(need) and need[GPU] <= _left_by_quotas(queues, queue, larger)
            for queue in larger
        )

    @contextmanager
    def _lifted(self, kept: BackfillReservation, pool: str) -> Iterator[None]:
        """Within, the pool has no reservation; nor afterwards if its workload was given places."""
        open_pools = self.future.places.open_pools
        del self._kept[pool]
        self._hold(kept, -1)
        open_pools.add(pool)
        try:
            yield
        finally:
            open_pools.discard(pool)
            if not self.future.is_served(kept.key):
                self._kept[pool] = kept
                self._hold(kept, 1)

    def _hold(self, kept: BackfillReservation, sign: int) -> None:
        sim = self.future.sim
        sim.touched.extend(ix for ix, _ in kept.cards)
        for table in (sim.now.cards, sim.later.cards):
            change = table.hold if sign > 0 else table.give_back
            for ix, cards in kept.cards:
                change(ix, cards)


def drain_window(waited_s: int) -> tuple[int, int] | None:
    """When, in seconds of a workload's waiting, its drain period began, and how long it lasts; None
    outside of these periods."""
    if waited_s < LONGEST_S:
        return None
    begin_s = LONGEST_S << ((waited_s // LONGEST_S).bit_length() - 1)
    length_s = begin_s // DRAIN_PART
    return (begin_s, length_s) if waited_s < begin_s + length_s else None


def _is_seen(pending: Pending) -> bool:
    """Whether an autoscaler that reads pods sees some of what is placed next."""
    return not all(pod.is_gated for pod in pending.chunk)


def _waits_since(pending: Pending) -> int:
    return max(pending.workload.created_at, pending.workload.waits_since)


def _left_by_quotas(queues: PoolQueues, queue: Queue, larger: Sequence[Queue]) -> int:
    """The milli-GPUs that the quotas of the queues beside it leave, as far as these use them. Of
    the queues `larger` each may have what is left to it, all others what they deserve."""
    parent = queue.parent
    if parent is None:
        whole, beside = queues.capacity[GPU], queues.roots
    else:
        is_larger, beside = parent in larger, parent.children
        whole = _left_by_quotas(queues, parent, larger) if is_larger else parent.deserves[GPU]
    return whole - sum(
        min(each.quota[GPU], each.share[GPU]) for each in beside if each is not queue
    )


def _could_hold(queue: Queue, pending: Pending) -> bool:
    """Whether what the queue may have is enough for the next chunk."""
    need = pending.need()
    return all(need[r] <= queue.deserves[r] for r in RESOURCES if need[r])
