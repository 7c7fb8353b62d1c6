"""Places kept for a big workload that is blocked, so that smaller ones can't starve it for ever.

In each node pool the first big workload that finds no place, in the order of turns, and wants no
more than its queue's share, is given the places at which it could start earliest: those that are
free when the workloads before it have ended as they said they would. Others may use what it does
not need, and also what it needs, if they say that they end before it starts. So it is never
delayed by who passes it.

Where nobody says how long he runs, there is no such time. Then places are kept only for a workload
that has waited `PATIENCE_S`, and what runs is taken to run once more as long as it has run already.

Kept places are held in both tables of the simulation, beside its log: a rollback doesn't touch
them. Reservations are made anew in every cycle; nothing of them is remembered.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.policy.placement.fragmentation import Fragmentation
from extender.policy.placement.placer import Places
from extender.policy.placement.simulation import Cards, Simulation
from extender.policy.plan import Placement, State
from extender.policy.queues.tree import RESOURCES, Queue, tally_of
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU, PodView
from extender.state.snapshot import Snapshot

#: Seconds that a blocked workload must have waited before cards stand idle for it although nobody
#: says when those that it waits for will end. One hour: short beside the runs of trainings that
#: starve others, long beside the time in which small work comes and goes.
PATIENCE_S: Final = 3600


@dataclass(slots=True)
class Reservation:
    """Places at which `key` can start at `start_s`: node, what is asked of it, cards.

    Where nothing is asked, only the cards are kept.
    """

    key: str
    start_s: int
    places: list[tuple[int, Demand | None, Cards]]


@dataclass(slots=True)
class Reservations:
    """At most one in each node pool. `placed` are the places given in this cycle, by workload."""

    snapshot: Snapshot
    sim: Simulation
    places: Places
    placed: Mapping[tuple[str, State], Sequence[Placement]]
    _kept: dict[str, Reservation] = field(default_factory=dict)
    _is_lifted: set[str] = field(default_factory=set)

    def in_pool(self, pool: str) -> Reservation | None:
        """The pool's reservation, or None."""
        return self._kept.get(pool)

    def consider(self, leaf: Queue, pending: Pending, pool: str) -> None:
        """The workload has no place now: keep one for it, if it is the first that may have that."""
        if pool in self._kept or not _is_entitled(leaf, pending):
            return
        found = _earliest(self, pending, pool)
        if found is not None:
            self._kept[pool] = found
            self._hold(found, 1)

    @contextmanager
    def open_to(self, pending: Pending, pool: str) -> Iterator[None]:
        """Kept places count as free within, if the workload may use them."""
        kept = self._kept.get(pool)
        if kept is None or pool in self._is_lifted or not self._may_use(kept, pending):
            yield
            return
        places = self.places
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
        if kept is None or self._may_use(kept, pending):
            return False
        sim = self.sim
        mark = sim.checkpoint()
        self._hold(kept, -1)
        self.places.set_open(pool, is_open=True)
        placed = self.places.place_chunk(pending, pool, "now")
        self.places.set_open(pool, is_open=False)
        sim.rollback(mark)
        self._hold(kept, 1)
        return placed is not None

    def relax(self) -> None:
        """Cards that are idle stay kept, what others still hold does not: whoever is entitled to
        take that from them may do so, and that comes to an end, unlike a stream of new work."""
        cards = self.sim.later.cards
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

    def _may_use(self, kept: Reservation, pending: Pending) -> bool:
        if pending.workload.key == kept.key:
            return True
        run_s = pending.workload.expected_run_s
        return run_s is not None and self.snapshot.now_s + run_s <= kept.start_s

    def _hold(self, kept: Reservation, sign: int) -> None:
        sim = self.sim
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


def _is_entitled(leaf: Queue, pending: Pending) -> bool:
    """Whether it is big, and no bigger than what its queues may have."""
    need = pending.need()
    if need[GPU] <= MILLI_PER_GPU or pending.is_surplus:
        return False
    return all(
        need[r] <= max(queue.share[r], queue.quota[r])
        for queue in leaf.chain
        for r in RESOURCES
        if need[r]
    )


#: How many ends are looked at first, and how many times more if they are too few: a workload waits
#: for few others, and every end that is looked at costs a change of the table.
_FIRST_ENDS: Final = 64
_TIMES_MORE_ENDS: Final = 4

#: When a pod ends, its uid, its node, itself, its cards. Equal ends are sorted by uid.
_End = tuple[int, str, int, PodView, Cards]


def _earliest(cycle: Reservations, pending: Pending, pool: str) -> Reservation | None:
    """The first moment at which the chunk has places, and these; None when there is none."""
    now_s = cycle.snapshot.now_s
    workload = pending.workload
    found = _search(cycle, pending, pool, _stated_ends(cycle, pool))
    if found is None and now_s - max(workload.created_at, workload.waits_since) >= PATIENCE_S:
        found = _search(cycle, pending, pool, _guessed_ends(cycle, pool))
    if found is None:
        return None
    start_s, placed = found
    ix_of = cycle.sim.now.cards.ix
    return Reservation(
        workload.key, start_s, [(ix_of[p.node], p.pod.demand, p.cards) for p in placed]
    )


def _search(
    cycle: Reservations, pending: Pending, pool: str, ends: list[_End]
) -> tuple[int, list[Placement]] | None:
    """Halve the ends until it is known which is the first after which the chunk has places."""
    if not ends:
        return None
    trial = _Trial(cycle, pending, pool, ends)
    low, high = 0, min(_FIRST_ENDS, len(ends))
    placed = trial.place_after(high)
    while placed is None:
        if high == len(ends):
            return None
        low, high = high, min(_TIMES_MORE_ENDS * high, len(ends))
        placed = trial.place_after(high)
    # Invariant: with `low` ends there is no place, with `high` there is `placed`.
    while high - low > 1:
        middle = (low + high) // 2
        earlier = trial.place_after(middle)
        if earlier is None:
            low = middle
        else:
            high, placed = middle, earlier
    return ends[high - 1][0], placed


class _Trial:
    """The pool's nodes at any moment to come, on a table of its own."""

    def __init__(self, cycle: Reservations, pending: Pending, pool: str, ends: list[_End]) -> None:
        self._pending, self._pool, self._ends = pending, pool, ends
        self._places = cycle.places
        self._sim = Simulation(cycle.sim.later.copy())
        self._fragmentation = Fragmentation(cycle.snapshot, self._sim)
        self._n_ended = 0

    def place_after(self, n_ended: int) -> list[Placement] | None:
        """Places for the chunk when the first `n_ended` have ended; none is held afterwards."""
        table = self._sim.now
        while self._n_ended < n_ended:
            _, _, ix, pod, cards = self._ends[self._n_ended]
            table.give_back(ix, pod.demand, cards)
            self._sim.touched.append(ix)
            self._n_ended += 1
        while self._n_ended > n_ended:
            self._n_ended -= 1
            _, _, ix, pod, cards = self._ends[self._n_ended]
            table.hold(ix, pod.demand, cards)
            self._sim.touched.append(ix)
        # A new one each time: nothing that failed at one moment is remembered at another.
        known = self._places
        places = Places(
            self._sim,
            known.matcher,
            known.topologies,
            known.pools,
            known.beside,
            self._fragmentation,
        )
        placed = places.place_chunk(self._pending, self._pool, "now")
        self._sim.rollback(0)
        return placed


def _stated_ends(cycle: Reservations, pool: str) -> list[_End]:
    """When those leave who say how long they run, the first first."""
    return _ends(cycle, pool, tally_of(cycle.snapshot).timed)


def _guessed_ends(cycle: Reservations, pool: str) -> list[_End]:
    """The same for all; who doesn't say it runs once more as long as it has run."""
    return _ends(cycle, pool, cycle.snapshot.workloads)


def _ends(cycle: Reservations, pool: str, keys: Iterable[str]) -> list[_End]:
    workloads, nodes = cycle.snapshot.workloads, cycle.sim.now
    now_s, ix_of, pool_of = cycle.snapshot.now_s, nodes.cards.ix, nodes.pool
    found: list[_End] = []
    for key in keys:
        workload = workloads[key]
        run_s = workload.expected_run_s
        for pod in workload.pods:
            if pod.is_terminating or pod.state not in ("bound", "reserved"):
                continue
            ix = ix_of.get(pod.node)
            if ix is None or pool_of[ix] != pool:
                continue
            started_s = pod.started_at or now_s
            end_s = started_s + run_s if run_s is not None else now_s + (now_s - started_s)
            found.append((end_s if end_s > now_s else now_s, pod.uid, ix, pod, pod.cards))
    for (key, state), placements in cycle.placed.items():
        run_s = workloads[key].expected_run_s
        if state != "reserved" or run_s is None:
            continue
        for placed in placements:
            ix = ix_of[placed.node]
            if pool_of[ix] == pool:
                found.append((now_s + run_s, placed.pod.uid, ix, placed.pod, placed.cards))
    found.sort(key=itemgetter(0, 1))
    return found
