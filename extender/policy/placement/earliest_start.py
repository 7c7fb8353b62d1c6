"""The earliest start of a blocked workload, and its placements on the cards that are free by then.

Only the expected run times that users stated give known ends. Where these do not help,
`pods_to_drain` lists pods that may end in a drain period; see `reservations`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from msgspec import Struct

from extender.policy.placement.fragmentation import Fragmentation
from extender.policy.placement.placer import Placer
from extender.policy.placement.simulation import Cards, Simulation
from extender.policy.plan import Placement
from extender.policy.plan_draft import PlanDraft
from extender.policy.queues.queue import Queue
from extender.policy.queues.tree import PoolQueues, tally_of
from extender.policy.workloads.pending import Pending
from extender.state.model import PodView, WorkloadView
from extender.state.snapshot import Snapshot

#: States of pods that have a place.
_PLACED: Final = ("nominated", "reserved", "bound")


class End(Struct, gc=False):
    """The end of one pod of queue `leaf` at `end_s`; None: at an unknown time."""

    end_s: int | None
    ix: int
    pod: PodView
    cards: Cards
    leaf: Queue | None


@dataclass(slots=True)
class Future:
    """The state of the cycle: running pods, and in `draft` the placements so far and the pods that
    have lost their places: these are free already."""

    snapshot: Snapshot
    sim: Simulation
    places: Placer
    queues: Mapping[str, PoolQueues]
    draft: PlanDraft

    def stated_ends(self, pool: str, until_s: int) -> list[End]:
        """The pods with a stated end up to `until_s`, the earliest first.

        A pod that has run longer than stated no longer has a stated end.
        """
        snapshot, queues = self.snapshot, self.queues[pool]
        found = [
            end
            for key in tally_of(snapshot).timed
            for end in self._ends_of(snapshot.workloads[key], pool)
            if end.end_s is not None and end.end_s <= until_s
        ]
        ix_of, pool_of = self.sim.now.cards.ix, self.sim.now.pool
        for (key, state), placements in self.draft.placed.items():
            workload = snapshot.workloads[key]
            if state != "reserved" or workload.expected_run_s is None:
                continue
            end_s, leaf = snapshot.now_s + workload.expected_run_s, queues.leaf_of(workload)
            for placed in placements:
                ix, is_new = ix_of[placed.node], placed.pod.state != "nominated"
                if is_new and pool_of[ix] == pool and end_s <= until_s:
                    pod = placed.pod
                    found.append(End(end_s, ix, pod, placed.cards, leaf))
        found.sort(key=attrgetter("end_s", "pod.uid"))
        return found

    def pods_to_drain(self, pool: str, since_s: int, until_s: int) -> list[End]:
        """Pods that may end by `until_s`; nodes where such pods hold the least GPU come first.

        These are pods with a stated end up to `until_s`, and preemptible pods without a stated end
        that started at `since_s` or later.
        """
        found: list[End] = []
        n_busy: dict[int, int] = {}
        for workload in self.snapshot.workloads.values():
            for end in self._ends_of(workload, pool):
                if end.end_s is None:
                    is_young = not 0 < end.pod.started_at < since_s
                    may_end = workload.is_preemptible and is_young
                else:
                    may_end = end.end_s <= until_s
                if may_end:
                    end.end_s = None
                    found.append(end)
                    n_busy[end.ix] = n_busy.get(end.ix, 0) + end.pod.held_milli
        names = self.sim.now.cards.names
        found.sort(key=lambda end: (n_busy[end.ix], names[end.ix], end.pod.uid))
        return found

    def running(
        self,
        pool: str,
        is_selected: Callable[[Queue, WorkloadView], bool],
        among: Iterable[WorkloadView] | None = None,
    ) -> list[End]:
        """The pods of the pool whose queue and workload (one of `among`, if given) satisfy the
        predicate."""
        found: list[End] = []
        for workload in self.snapshot.workloads.values() if among is None else among:
            leaf = self.queues[pool].leaf_of(workload)
            if leaf is not None and is_selected(leaf, workload):
                found += self._ends_of(workload, pool)
        found.sort(key=attrgetter("pod.uid"))
        return found

    def first_start(
        self, pending: Pending, pool: str, freed: Sequence[End], ends: Sequence[End]
    ) -> tuple[int, list[Placement]] | None:
        """How many of `ends` the next chunk has to wait for, and its placements after them; None if
        all of them are not enough. The pods in `freed` count as gone from the start."""
        nodes = _FutureNodes(self, pending, pool, freed, ends)
        if nodes.place_after(len(ends)) is None:
            return None
        if (freed or not ends) and (placed := nodes.place_after(0)) is not None:
            return 0, placed
        n_ended = 1 + bisect_left(
            range(1, len(ends)), True, key=lambda n: nodes.place_after(n) is not None
        )
        placed = nodes.place_after(n_ended)
        return None if placed is None else (n_ended, placed)

    def has_place_without(self, pending: Pending, pool: str, gone: Sequence[End]) -> bool:
        """Whether the next chunk fits once these pods are gone."""
        return _FutureNodes(self, pending, pool, gone, ()).place_after(0) is not None

    def idle_of(self, placed: Iterable[Placement]) -> list[tuple[int, Cards]]:
        """The cards, by node ix, that these placements use and that are idle in table `later`."""
        cards, found = self.sim.later.cards, list[tuple[int, Cards]]()
        for each in placed:
            ix = cards.ix[each.node]
            free = cards.free_of(ix)
            idle = tuple(card for card in each.cards if free[card.index] >= card.milli)
            if idle:
                found.append((ix, idle))
                cards.hold(ix, idle)
        for ix, idle in found:
            cards.give_back(ix, idle)
        return found

    def _ends_of(self, workload: WorkloadView, pool: str) -> Iterator[End]:
        """The ends of the workload's pods in the pool that are to stay.

        A pod with a nomination counts as if it started now, as it does in the follow-up rounds of
        the cycle that nominates it. Otherwise a reservation that holds off victims in that cycle
        would be gone in the next one, and the victims would run again.
        """
        now_s, run_s = self.snapshot.now_s, workload.expected_run_s
        ix_of, pool_of = self.sim.now.cards.ix, self.sim.now.pool
        leaf = self.queues[pool].leaf_of(workload)
        for pod in workload.pods:
            if pod.is_terminating or pod.state not in _PLACED or pod.uid in self.draft.gone:
                continue
            ix = ix_of.get(pod.node)
            if ix is None or pool_of[ix] != pool:
                continue
            end_s = None if run_s is None else (pod.started_at or now_s) + run_s
            if end_s is not None and end_s <= now_s:
                end_s = None
            yield End(end_s, ix, pod, pod.cards, leaf)


class _FutureNodes:
    """A copy of the nodes on which pods end one after the other."""

    def __init__(
        self,
        future: Future,
        pending: Pending,
        pool: str,
        freed: Sequence[End],
        ends: Sequence[End],
    ) -> None:
        self._pending, self._pool = pending, pool
        self._places = future.places
        self._sim = Simulation(future.sim.later.copy())
        self._fragmentation = Fragmentation(future.snapshot, self._sim)
        self._ends = ends
        self._n_ended = 0
        for end in freed:
            self._free(end)

    def place_after(self, n_ended: int) -> list[Placement] | None:
        """Placements for the chunk after the first `n_ended` ends; nothing stays held."""
        while self._n_ended < n_ended:
            self._free(self._ends[self._n_ended])
            self._n_ended += 1
        while self._n_ended > n_ended:
            self._n_ended -= 1
            self._hold(self._ends[self._n_ended])
        # A new Placer each time, since failures cached for one moment do not hold for another.
        known = self._places
        places = Placer(
            self._sim,
            known.node_filter,
            known.topologies,
            known.pools,
            known.pod_affinity,
            self._fragmentation,
        )
        placed = places.place_chunk(self._pending, self._pool, "now")
        self._sim.rollback(0)
        return placed

    def _free(self, end: End) -> None:
        self._sim.now.give_back(end.ix, end.pod.demand, end.cards)
        self._sim.touched.append(end.ix)

    def _hold(self, end: End) -> None:
        self._sim.now.hold(end.ix, end.pod.demand, end.cards)
        self._sim.touched.append(end.ix)
