"""A what-if on a snapshot's nodes and queues, as an operation log that can be rolled back.

Two tables stand for two moments. `now`: every live pod holds its place. `later`: pods that are told
to leave have left. What fits now may be reserved; what fits only later must wait for victims and is
nominated. A new hold counts in both, so `now` may turn negative where victims still are; `later`
has at least as much free everywhere. A whole cycle runs on one Simulation: no try copies anything.
"""

from dataclasses import dataclass, field
from typing import Literal

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.policy.queues import Queue, add, subtract
from extender.state.model import Amounts
from extender.state.nodes import NodeTable

Cards = tuple[CardShare, ...]
_Place = tuple[Literal["hold", "unhold", "evict", "reinstate"], int, Demand, Cards]
_Charge = tuple[Queue, Amounts, bool]


@dataclass(slots=True)
class Simulation:
    """`now` is the snapshot's own table and is changed; `later` is a copy made here."""

    now: NodeTable
    later: NodeTable = field(init=False)
    _log: list[_Place | _Charge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.later = self.now.copy()

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
                kind, ix, demand, cards = entry
                self._do(_OPPOSITE[kind], ix, demand, cards)

    def hold(self, ix: int, demand: Demand, cards: Cards) -> None:
        """A pod takes its place."""
        self._record("hold", ix, demand, cards)

    def unhold(self, ix: int, demand: Demand, cards: Cards) -> None:
        """A place taken in this simulation is given up again."""
        self._record("unhold", ix, demand, cards)

    def evict(self, ix: int, demand: Demand, cards: Cards) -> None:
        """A pod is told to leave: its place is free later."""
        self._record("evict", ix, demand, cards)

    def reinstate(self, ix: int, demand: Demand, cards: Cards) -> None:
        """An evicted pod stays after all."""
        self._record("reinstate", ix, demand, cards)

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

    def _record(
        self,
        kind: Literal["hold", "unhold", "evict", "reinstate"],
        ix: int,
        demand: Demand,
        cards: Cards,
    ) -> None:
        self._do(kind, ix, demand, cards)
        self._log.append((kind, ix, demand, cards))

    def _do(
        self,
        kind: Literal["hold", "unhold", "evict", "reinstate"],
        ix: int,
        demand: Demand,
        cards: Cards,
    ) -> None:
        if kind == "hold":
            self.now.hold(ix, demand, cards)
            self.later.hold(ix, demand, cards)
        elif kind == "unhold":
            self.now.give_back(ix, demand, cards)
            self.later.give_back(ix, demand, cards)
        elif kind == "evict":
            self.later.give_back(ix, demand, cards)
        else:
            self.later.hold(ix, demand, cards)


_OPPOSITE: dict[str, Literal["hold", "unhold", "evict", "reinstate"]] = {
    "hold": "unhold",
    "unhold": "hold",
    "evict": "reinstate",
    "reinstate": "evict",
}
