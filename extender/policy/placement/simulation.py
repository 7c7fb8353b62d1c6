"""A simulation on a snapshot's nodes and queues: an operation log that can be rolled back.

Two tables represent two moments. In `now` every live pod holds its cards; in `later` terminating
and evicted pods are gone. A workload that fits now may be reserved; one that fits only later is
nominated and waits for the victims. A hold counts in both tables, so `now` may be negative where
victims still run; `later` has at least as much free everywhere. A whole cycle runs on one
Simulation, and no attempt copies a table.

Steps take whole pods, not only demands. If any pod of the snapshot has an affinity term, every step
is reported to `neighbours`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.policy.queues.queue import Queue, add, subtract
from extender.state.model import Amounts, PodView
from extender.state.nodes import NodeTable

Cards = tuple[CardShare, ...]
#: One of the two tables.
Moment = Literal["now", "later"]
MOMENTS: Final[tuple[Moment, ...]] = ("now", "later")
#: The function that undoes a step, and its arguments. Unbound, since a bound method would make the
#: log refer to its owner.
_Place = tuple[Callable[["Simulation", int, PodView, Cards], None], int, PodView, Cards]
_Charge = tuple[Queue, Amounts, bool]


class Neighbours(Protocol):
    """Counts pods by node, now and later."""

    def change(self, ix: int, pod: PodView, now: int, later: int) -> None:
        """`pod` was added (1) or removed (-1), or nothing changed (0), at each moment."""


@dataclass(slots=True)
class Simulation:
    """`now` is the snapshot's own table and is changed; `later` is a copy made here.

    `touched` has the node of every change to either table, rollbacks included. Code that changes a
    table without the log has to append to it.
    """

    now: NodeTable
    neighbours: Neighbours | None = None
    touched: list[int] = field(default_factory=list)
    later: NodeTable = field(init=False)
    _log: list[_Place | _Charge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.later = self.now.copy()

    def table(self, moment: Moment) -> NodeTable:
        """The table of that moment."""
        return self.now if moment == "now" else self.later

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, newest first."""
        while len(self._log) > mark:
            entry = self._log.pop()
            if len(entry) == 3:
                queue, amounts, is_np = entry
                subtract(queue.allocated, amounts)
                if is_np:
                    subtract(queue.allocated_np, amounts)
            else:
                undo, ix, pod, cards = entry
                undo(self, ix, pod, cards)

    def hold(self, ix: int, pod: PodView, cards: Cards) -> None:
        """Place a pod on these cards, at both moments."""
        self._hold(ix, pod, cards)
        self._log.append((Simulation._unhold, ix, pod, cards))

    def unhold(self, ix: int, pod: PodView, cards: Cards) -> None:
        """Remove a pod that was placed in this simulation, at both moments."""
        self._unhold(ix, pod, cards)
        self._log.append((Simulation._hold, ix, pod, cards))

    def evict(self, ix: int, pod: PodView, cards: Cards) -> None:
        """Evict a pod: its cards become free in `later`."""
        self._evict(ix, pod, cards)
        self._log.append((Simulation._reinstate, ix, pod, cards))

    def reinstate(self, ix: int, pod: PodView, cards: Cards) -> None:
        """Undo the eviction of a pod."""
        self._reinstate(ix, pod, cards)
        self._log.append((Simulation._evict, ix, pod, cards))

    def charge(self, leaf: Queue, amounts: Amounts, *, is_np: bool) -> None:
        """Add to the allocation of the queue and of its ancestors."""
        for queue in leaf.chain:
            add(queue.allocated, amounts)
            if is_np:
                add(queue.allocated_np, amounts)
            self._log.append((queue, amounts, is_np))

    def discharge(self, leaf: Queue, amounts: Amounts, *, is_np: bool) -> None:
        """Subtract from the allocation of the queue and of its ancestors."""
        self.charge(leaf, (-amounts[0], -amounts[1], -amounts[2]), is_np=is_np)

    def _hold(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.now.hold(ix, pod.demand, cards)
        self.later.hold(ix, pod.demand, cards)
        self._report(ix, pod, 1, 1)

    def _unhold(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.now.give_back(ix, pod.demand, cards)
        self.later.give_back(ix, pod.demand, cards)
        self._report(ix, pod, -1, -1)

    def _evict(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.later.give_back(ix, pod.demand, cards)
        self._report(ix, pod, 0, -1)

    def _reinstate(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.later.hold(ix, pod.demand, cards)
        self._report(ix, pod, 0, 1)

    def _report(self, ix: int, pod: PodView, now: int, later: int) -> None:
        self.touched.append(ix)
        if self.neighbours is not None:
            self.neighbours.change(ix, pod, now, later)


def has_room(table: NodeTable, ix: int, pod: PodView, cards: Cards) -> bool:
    """Whether exactly these cards, and all else that the pod requests, are free on the node."""
    at, n_cards, demand = ix * table.cards.stride, table.cards.n_cards[ix], pod.demand
    return (
        all(c.index < n_cards and table.cards.card_free[at + c.index] >= c.milli for c in cards)
        and fits_host(table, ix, demand)
        and table.fits_counted(ix, demand)
    )


def fits_host(table: NodeTable, ix: int, demand: Demand) -> bool:
    """Whether the node has enough free CPU and memory, and a free pod slot."""
    return (
        table.free_pods[ix] > 0
        and (demand.cpu_milli == 0 or table.free_cpu_milli[ix] >= demand.cpu_milli)
        and (demand.memory_mib == 0 or table.free_memory_mib[ix] >= demand.memory_mib)
    )
