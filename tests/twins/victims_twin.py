"""The Python twin of `victims.pyx`: a list of prices that `clearing_twin` works out."""

from array import array
from typing import TYPE_CHECKING, Final

from tests.twins.appraisal_twin import Price, price_of
from tests.twins.clearing_twin import Clearing

if TYPE_CHECKING:
    from extender.kernels.appraisal import Herd, Terms
    from extender.kernels.nodes import Need, Nodes

IMPOSSIBLE: Final = 2**63 - 1


class Room:
    """As `victims.Room`."""

    def __init__(  # noqa: PLR0917
        self,
        nodes: "Nodes",
        candidates: "array[int]",
        herd: "Herd",
        terms: "Terms",
        demand: "Need",
        extra_need: "array[int]",
        extra_free: "array[int]",
        extra_held: "array[int]",
    ) -> None:
        self._candidates = candidates
        self._clearing = Clearing(nodes, herd, terms, demand, extra_need, extra_free, extra_held)
        self._prices: list[Price] = [(0, 0, 0)] * len(candidates)

    def update(self, nodes: "array[int]") -> None:
        """As `Room.update`."""
        for at, ix in enumerate(self._candidates):
            if ix in nodes:
                units = self._clearing.draft(ix)
                self._prices[at] = (IMPOSSIBLE, 0, 0) if units is None else price_of(units)

    def update_all(self) -> None:
        """As `Room.update_all`."""
        self.update(self._candidates)

    def confirm(self, at: int, out: "array[int]") -> int:
        """As `Room.confirm`."""
        known, n = self._prices[at], self.choose(self._candidates[at], out)
        self.update(self._candidates[at : at + 1])
        return n if self._prices[at] == known else -1

    def price(self, at: int) -> Price:
        """As `Room.price`."""
        return self._prices[at]

    def exclude(self, at: int) -> None:
        """As `Room.exclude`."""
        self._prices[at] = IMPOSSIBLE, 0, 0

    def cheapest(self) -> int:
        """As `Room.cheapest`."""
        possible = [(p, at) for at, p in enumerate(self._prices) if p[0] != IMPOSSIBLE]
        return min(possible)[1] if possible else -1

    def choose(self, ix: int, out: "array[int]") -> int:
        """As `Room.choose`."""
        return self._clearing.choose(ix, out)

    def capacity(self, most: int) -> int:
        """As `Room.capacity`."""
        node = self._clearing.node
        rooms = [
            node.room(ix, array("i", self._clearing.removable(ix)), most) for ix in self._candidates
        ]
        return min(most, sum(rooms))
