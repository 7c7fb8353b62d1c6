"""A what-if on a snapshot's nodes and queues, as an operation log that can be rolled back.

Two tables stand for two moments. `now`: every live pod holds its place. `later`: pods that are told
to leave have left. What fits now may be reserved; what fits only later must wait for victims and is
nominated. A new hold counts in both, so `now` may turn negative where victims still are; `later`
has at least as much free everywhere. A whole cycle runs on one Simulation: no try copies anything.

Steps get whole pods, not only their demands: where any pod of the snapshot has an affinity term,
`neighbours` is told of every step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from extender.api.kinds import CardShare
from extender.policy.queues.queue import Queue, add, subtract
from extender.state.model import Amounts, PodView
from extender.state.nodes import NodeTable

Cards = tuple[CardShare, ...]
#: Of the two tables.
Moment = Literal["now", "later"]
#: What undoes a step, and its arguments. A bound method would make the log refer to its owner.
_Place = tuple[Callable[["Simulation", int, PodView, Cards], None], int, PodView, Cards]
_Charge = tuple[Queue, Amounts, bool]


class Neighbours(Protocol):
    """Counts pods by node, now and later."""

    def change(self, ix: int, pod: PodView, now: int, later: int) -> None:
        """`pod` is there (1), is there no more (-1), or nothing changed (0), at each moment."""


@dataclass(slots=True)
class Simulation:
    """`now` is the snapshot's own table and is changed; `later` is a copy made here.

    `touched` has the node of every change of either table, undone ones included; code that changes
    a table without the log adds to it.
    """

    now: NodeTable
    neighbours: Neighbours | None = None
    touched: list[int] = field(default_factory=list)
    later: NodeTable = field(init=False)
    _log: list[_Place | _Charge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.later = self.now.copy()

    def table(self, moment: Moment) -> NodeTable:
        """The nodes at that moment."""
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
        """A pod takes its place."""
        self._hold(ix, pod, cards)
        self._log.append((Simulation._unhold, ix, pod, cards))

    def unhold(self, ix: int, pod: PodView, cards: Cards) -> None:
        """A place taken in this simulation is given up again."""
        self._unhold(ix, pod, cards)
        self._log.append((Simulation._hold, ix, pod, cards))

    def evict(self, ix: int, pod: PodView, cards: Cards) -> None:
        """A pod is told to leave: its place is free later."""
        self._evict(ix, pod, cards)
        self._log.append((Simulation._reinstate, ix, pod, cards))

    def reinstate(self, ix: int, pod: PodView, cards: Cards) -> None:
        """An evicted pod stays after all."""
        self._reinstate(ix, pod, cards)
        self._log.append((Simulation._evict, ix, pod, cards))

    def charge(self, leaf: Queue, amounts: Amounts, *, is_np: bool) -> None:
        """Add to what the queue and all above it hold."""
        for queue in leaf.chain:
            add(queue.allocated, amounts)
            if is_np:
                add(queue.allocated_np, amounts)
            self._log.append((queue, amounts, is_np))

    def discharge(self, leaf: Queue, amounts: Amounts, *, is_np: bool) -> None:
        """Take from what the queue and all above it hold."""
        self.charge(leaf, (-amounts[0], -amounts[1], -amounts[2]), is_np=is_np)

    def _hold(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.now.hold(ix, pod.demand, cards)
        self.later.hold(ix, pod.demand, cards)
        self._tell(ix, pod, 1, 1)

    def _unhold(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.now.give_back(ix, pod.demand, cards)
        self.later.give_back(ix, pod.demand, cards)
        self._tell(ix, pod, -1, -1)

    def _evict(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.later.give_back(ix, pod.demand, cards)
        self._tell(ix, pod, 0, -1)

    def _reinstate(self, ix: int, pod: PodView, cards: Cards) -> None:
        self.later.hold(ix, pod.demand, cards)
        self._tell(ix, pod, 0, 1)

    def _tell(self, ix: int, pod: PodView, now: int, later: int) -> None:
        self.touched.append(ix)
        if self.neighbours is not None:
            self.neighbours.change(ix, pod, now, later)
