"""Backfill reservations: idle cards kept for a blocked workload, so that smaller workloads cannot
starve it.

Each node pool reserves cards for at most one blocked workload that requests more than one GPU and
stays within what its queue deserves. The cards are those on which it can start earliest: after the
stated ends of the next four hours, or in a drain period after the ends of recently started
preemptible pods. Another workload may use the cards if it states an earlier end, if it would
preempt the blocked workload, or if the blocked workload could take them back by reclaim or
preemption. It may not if a held-off workload of its own project would preempt it at once. Unless it
ends in time, it takes other free cards first.

A workload of its own project that may not use these cards starts on others, free or taken back,
only if the project then still deserves what the blocked workload needs. In turn no more cards are
reserved than the project deserves beside what it holds. Where pods name users, work within its
user's part is not kept back for another user's blocked workload.

A drain period begins when the workload has waited for 4, 8, 16, ... hours, and lasts for a quarter
of that time. In it no other project uses the reserved cards: what the blocked workload could take
back, others could take before.

A workload larger than its queue's share may have a reservation too, if it has waited long, its
queue held less than its share lately, and the quotas in use leave what it requests.

In pools whose autoscaler reads pods, cards are also kept for an ungated pending workload: those
that its pods could use on the existing nodes, until all its nodes have joined. Workloads of other
projects may use them within their quotas, and so may workloads that would preempt it. Otherwise a
borrowing workload would take its first node, and the autoscaler would add another one.

Cards are held in both tables of the simulation but not in its log, so a rollback keeps them.
Reservations are made anew in every cycle.
"""

from bisect import bisect_left
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
from extender.policy.queues.queue import Queue
from extender.policy.workloads.first_kinds import FIRST_KINDS, FirstKinds
from extender.policy.workloads.larger_than_share import is_deserved, may_exceed_share
from extender.policy.workloads.pending import Pending, pending_since
from extender.state.model import GPU, WorkloadView

#: Seconds for which cards may be idle before a known start, and the waiting time in seconds before
#: the first drain period. Four hours: the length of many trainings, and long compared with small
#: workloads.
LONGEST_S: Final = 4 * 3600
#: A drain period lasts for the waiting time at its beginning divided by this.
DRAIN_PART: Final = 4
#: Searches for an earliest start per pool and cycle. Each costs a pass over the pods of the pool:
#: 170 ms where 8,000 run on 1,000 nodes.
_MOST_SEARCHES: Final = 4


@dataclass(slots=True, frozen=True)
class BackfillReservation:
    """`cards`, by node ix, are kept idle until workload `key` starts at `start_s` (None: unknown).

    `take_back` says what it could take back then. `awaits_nodes`: it starts once an autoscaler has
    added nodes.
    """

    key: str
    start_s: int | None
    cards: Sequence[tuple[int, Cards]]
    take_back: TakeBack
    awaits_nodes: bool = False


@dataclass(slots=True)
class Reservations:
    """At most one reservation per node pool.

    `_held_off` has workloads that would fit on kept cards only: the one with the highest priority
    by pool, project, and whether its kind precedes training. With each is how many of its pods this
    cycle had placed by then: more of them may have been held off than placed before.
    """

    future: Future
    settings: Settings
    firsts: FirstKinds
    _held_off: dict[tuple[str, Queue, bool], tuple[TakeBack, int]] = field(default_factory=dict)
    _kept: dict[str, BackfillReservation] = field(default_factory=dict)
    _n_searches: dict[str, int] = field(default_factory=dict)

    def in_pool(self, pool: str) -> BackfillReservation | None:
        """The pool's reservation; None if there is none or it is lifted."""
        return self._kept.get(pool)

    def in_drain_period(self, waiting: Iterable[Pending]) -> list[Pending]:
        """The workloads in a drain period, which are tried first; the longest waiting ones lead."""
        now_s = self.future.snapshot.now_s
        found = [
            (pending_since(pending.workload), pending.workload.key, pending)
            for pending in waiting
            if pending.need()[GPU] > MILLI_PER_GPU
            and drain_window(now_s - pending_since(pending.workload)) is not None
        ]
        return [pending for _, _, pending in sorted(found)]

    def await_nodes(self, waiting: Sequence[Pending]) -> None:
        """In each pool whose autoscaler reads pods, keep cards on the existing nodes for the first
        workload that the autoscaler adds nodes for."""
        for pool, view in self.future.snapshot.pools.items():
            if view.elastic is None or not view.elastic.reads_pods:
                continue
            seen = [each for each in waiting if pool in each.workload.pools and _is_ungated(each)]
            first = min(seen, default=None)
            leaf = self.future.queues[pool].leaf_of(first.workload) if first else None
            if first is not None and leaf is not None:
                self._keep(pool, self._until_nodes_join(leaf, first, pool))

    def reserve(self, leaf: Queue, pending: Pending, pool: str) -> None:
        """Make the pool's reservation for the workload, which does not fit, unless there is one."""
        now_s = self.future.snapshot.now_s
        if pool in self._kept or not self._may_reserve(leaf, pending, pool):
            return
        ends = self.future.stated_ends(pool, now_s + LONGEST_S)
        found = self._find(leaf, pending, pool, ends)
        if found is None and (drained := self._drain_range(leaf, pending, pool)) is not None:
            draining = self.future.pods_to_drain(pool, *drained)
            in_period = drain_window(now_s - pending_since(pending.workload)) is not None
            found = self._find(leaf, pending, pool, draining, may_be_due=in_period)
        if found is not None:
            self._keep(pool, found)

    def bars(self, pending: Pending, pool: str) -> bool:
        """Whether the workload may start nowhere in the pool: the reservation is not for it, and it
        would use the part of its project's share that the blocked workload needs."""
        kept = self._kept.get(pool)
        if kept is None or kept.awaits_nodes or not kept.take_back.is_entitled:
            return False
        is_incomplete = pending.live and not pending.is_surplus
        if pending.workload.key == kept.key or is_incomplete:
            # A gang that lost a pod is completed first.
            return False
        leaf = self.future.queues[pool].leaf_of(pending.workload)
        if leaf is None or leaf.project is not kept.take_back.leaf.project:
            return False
        if leaf is not kept.take_back.leaf and leaf.has_room(pending.need(), leaf.deserves):
            # Another user's blocked workload has no claim to the part of this one.
            return False
        # In a drain period work that has just started counts among the pods that may end.
        is_known = kept.start_s is not None
        if kept.take_back.leaves_room(leaf, pending.need(), counts_freed=is_known):
            return False
        return not self._may_use(kept, pending, pool)

    def takes_others_first(self, pending: Pending, pool: str) -> bool:
        """Whether the workload may take kept cards, but other free ones first: the reservation is
        not for it, and it does not end before the blocked workload starts."""
        kept = self._kept.get(pool)
        return (
            kept is not None
            and pending.workload.key != kept.key
            and not self._ends_in_time(kept, pending.workload)
            and self._may_use(kept, pending, pool)
        )

    @contextmanager
    def lifted_for(self, pending: Pending, pool: str) -> Iterator[None]:
        """Inside the context, kept cards count as free if the workload may use them."""
        kept = self._kept.get(pool)
        if kept is None or not self._may_use(kept, pending, pool):
            yield
        else:
            with self._lifted(kept, pool):
                yield

    def holds_off(self, pending: Pending, pool: str) -> bool:
        """Whether the workload fits now, but only on cards kept for another.

        It is then remembered, so that no workload it would preempt gets these cards.
        """
        kept = self._kept.get(pool)
        if kept is None or self._may_use(kept, pending, pool):
            return False
        with self._lifted(kept, pool):
            has_place = self.future.places.has_place(pending, pool, "now")
        if has_place:
            self._remember_held_off(pending, pool)
        return has_place

    def take_back(self, leaf: Queue, pending: Pending, pool: str, ended: Sequence[End]) -> TakeBack:
        """What the workload could take back once these pods have ended and it starts."""
        view = self.future.snapshot.pools[pool]
        gone = [(end.leaf, end.pod) for end in ended if end.leaf is not None]
        return TakeBack.of(pending, leaf, gone, view, self.settings, self.firsts)

    def _keep(self, pool: str, found: BackfillReservation) -> None:
        self._kept[pool] = found
        self._hold(found, 1)

    def _until_nodes_join(self, leaf: Queue, pending: Pending, pool: str) -> BackfillReservation:
        """A reservation of the cards that the workload's pods, one by one, fit on now."""
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
            # Above its share it would be evicted again: it waits until work of its queues ends.
            owner = kept.take_back
            is_deserved = owner.leaf.has_room(owner.need, owner.leaf.deserves)
            return kept.awaits_nodes or not owner.is_entitled or is_deserved
        leaf = self.future.queues[pool].leaf_of(workload)
        if leaf is None or self._would_be_preempted(leaf, workload, pool):
            return False
        if self._would_preempt(leaf, pending, kept, pool):
            return True
        if kept.awaits_nodes and leaf.project is not kept.take_back.leaf.project:
            return all(each.has_room(pending.need(), each.quota) for each in leaf.project.chain)
        if kept.start_s is None:
            # From another project, others might take the cards first.
            is_protected = preempt_minimum_s(leaf) > 0
            return not is_protected and kept.take_back.could_preempt(leaf, workload)
        after_s, need = kept.start_s - self.future.snapshot.now_s, pending.need()
        is_short = self._ends_in_time(kept, workload)
        return is_short or kept.take_back.could_take(leaf, workload, need, after_s)

    def _ends_in_time(self, kept: BackfillReservation, workload: WorkloadView) -> bool:
        """Whether the workload, if it starts now, ends before the known start of the blocked one,
        as far as it states."""
        run_s, start_s = workload.expected_run_s, kept.start_s
        if run_s is None or start_s is None:
            return False
        return self.future.snapshot.now_s + run_s <= start_s

    def _would_preempt(
        self, leaf: Queue, pending: Pending, kept: BackfillReservation, pool: str
    ) -> bool:
        """Whether the workload would preempt the owner of the reservation."""
        owner = kept.take_back
        if leaf.project is not owner.leaf.project:
            return False
        return self.take_back(leaf, pending, pool, ()).could_preempt(owner.leaf, owner.workload)

    def _remember_held_off(self, pending: Pending, pool: str) -> None:
        workload, leaf = pending.workload, self.future.queues[pool].leaf_of(pending.workload)
        if leaf is not None:
            key = pool, leaf.project, workload.kind in FIRST_KINDS
            known = self._held_off.get(key)
            if known is None or known[0].workload.priority < workload.priority:
                n_placed = len(self.future.draft.placed_of(workload.key))
                self._held_off[key] = self.take_back(leaf, pending, pool, ()), n_placed

    def _would_be_preempted(self, leaf: Queue, workload: WorkloadView, pool: str) -> bool:
        """Whether a held-off workload that has not been placed since would preempt this one at
        once."""
        if preempt_minimum_s(leaf):
            return False
        held_off = (self._held_off.get((pool, leaf.project, first)) for first in (True, False))
        return any(
            take_back.could_preempt(leaf, workload)
            and len(self.future.draft.placed_of(take_back.workload.key)) == n_placed
            for take_back, n_placed in filter(None, held_off)
        )

    def _find(
        self,
        leaf: Queue,
        pending: Pending,
        pool: str,
        ends: Sequence[End],
        *,
        may_be_due: bool = False,
    ) -> BackfillReservation | None:
        """A reservation of the cards on which the workload can start after the fewest `ends`. It
        starts there once its queues deserve it, which may be later.

        If none has to end, it could start at once by taking cards back. Then there is a reservation
        only if it `may_be_due`.
        """
        n_searches = self._n_searches.get(pool, 0)
        if not (ends or may_be_due) or n_searches == _MOST_SEARCHES:
            return None
        self._n_searches[pool] = n_searches + 1
        future = self.future
        all_ended = self.take_back(leaf, pending, pool, ends)
        evicted = future.running(pool, all_ended.could_take_running)
        uids = {end.pod.uid for end in evicted}
        ends = [end for end in ends if end.pod.uid not in uids]
        found = future.first_start(pending, pool, evicted, ends)
        if found is None:
            return None
        n_placed, placed = found
        own = [end for end in evicted if end.leaf is not None and end.leaf.project is leaf.project]
        may_exceed = self._may_exceed_share(leaf, pending, pool)

        def may_start(n_ended: int) -> bool:
            then = self.take_back(leaf, pending, pool, [*ends[:n_ended], *own])
            return then.is_allowed and (then.is_entitled or may_exceed)

        n_ended = bisect_left(range(len(ends) + 1), True, lo=n_placed, key=may_start)
        if n_ended > len(ends) or (n_ended == 0 and not may_be_due):
            return None
        take_back = self.take_back(leaf, pending, pool, [*ends[:n_ended], *own])
        start_s = ends[n_ended - 1].end_s if n_ended else None
        cards = _within_share(future.idle_of(placed), take_back)
        return BackfillReservation(pending.workload.key, start_s, cards, take_back)

    def _may_reserve(self, leaf: Queue, pending: Pending, pool: str) -> bool:
        """Whether the workload requests more than one GPU, and its queues deserve the request or
        may exceed their share for it."""
        if pending.need()[GPU] <= MILLI_PER_GPU or pending.is_surplus:
            return False
        is_within = all(is_deserved(queue, pending) for queue in leaf.chain)
        return is_within or self._may_exceed_share(leaf, pending, pool)

    def _drain_range(self, leaf: Queue, pending: Pending, pool: str) -> tuple[int, int] | None:
        """Arguments for `pods_to_drain`: the earliest start and the latest stated end of pods to
        wait for; None if none may be drained."""
        now_s, since_s = self.future.snapshot.now_s, pending_since(pending.workload)
        if (window := drain_window(now_s - since_s)) is not None:
            begin_s, length_s = since_s + window[0], window[1]
            return begin_s - length_s, begin_s + length_s
        if self._may_exceed_share(leaf, pending, pool):
            # Its queue held less than its share lately, so the idle cards count against that.
            return now_s - LONGEST_S, now_s + LONGEST_S
        return None

    def _may_exceed_share(self, leaf: Queue, pending: Pending, pool: str) -> bool:
        future = self.future
        return may_exceed_share(leaf, pending, future.queues[pool], future.snapshot.now_s)

    @contextmanager
    def _lifted(self, kept: BackfillReservation, pool: str) -> Iterator[None]:
        """Inside the context the pool has no reservation. It is not restored if its workload was
        placed meanwhile."""
        open_pools = self.future.places.open_pools
        del self._kept[pool]
        self._hold(kept, -1)
        open_pools.add(pool)
        try:
            yield
        finally:
            open_pools.discard(pool)
            if not self.future.draft.placed_of(kept.key):
                self._kept[pool] = kept
                self._hold(kept, 1)

    def _hold(self, kept: BackfillReservation, sign: int) -> None:
        sim = self.future.sim
        sim.touched.extend(ix for ix, _ in kept.cards)
        for table in (sim.now.cards, sim.later.cards):
            change = table.hold if sign > 0 else table.give_back
            for ix, cards in kept.cards:
                change(ix, cards)


def _within_share(
    idle: Sequence[tuple[int, Cards]], take_back: TakeBack
) -> Sequence[tuple[int, Cards]]:
    """The idle cards to keep: for a workload that its queues deserve, no more than they deserve.

    Other workloads may take cards from running pods: these end, and in a drain period no new ones
    start there that others could take the cards from.
    """
    if not take_back.is_entitled:
        return idle
    chain = take_back.leaf.chain
    return _up_to(min(queue.deserves[GPU] - queue.allocated[GPU] for queue in chain), idle)


def _up_to(milli: int, idle: Sequence[tuple[int, Cards]]) -> list[tuple[int, Cards]]:
    """As many of the cards, by node ix, as have this many milli-GPUs together."""
    found = []
    for ix, cards in idle:
        kept = []
        for card in cards:
            if card.milli <= milli:
                kept.append(card)
                milli -= card.milli
        if kept:
            found.append((ix, tuple(kept)))
    return found


def drain_window(waited_s: int) -> tuple[int, int] | None:
    """The drain period that a workload is in: its beginning, in seconds of waiting time, and its
    length in seconds; None outside of drain periods."""
    if waited_s < LONGEST_S:
        return None
    begin_s = LONGEST_S << ((waited_s // LONGEST_S).bit_length() - 1)
    length_s = begin_s // DRAIN_PART
    return (begin_s, length_s) if waited_s < begin_s + length_s else None


def _is_ungated(pending: Pending) -> bool:
    """Whether any pod of the next chunk is ungated, so that an autoscaler sees it."""
    return not all(pod.is_gated for pod in pending.chunk)
