"""What room for one more pod costs on every node, kept up to date while pods come and go.

A price that was worked out stays a lower bound while only more is taken; so only nodes on which
something happened are priced again, and the cheapest before it is believed.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.kernels import victims as kernel
from extender.policy.herd import Herd
from extender.policy.terms import Terms
from extender.state.nodes import NodeTable

#: Compares as the kernel's costs do; the cheaper is the smaller.
Price = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Offers:
    """Prices of `candidates` (int32[m], node ix), in their order, for pods of one demand."""

    table: NodeTable
    herd: Herd
    terms: Terms
    demand: Demand
    candidates: "array[int]"
    room: kernel.Room = field(init=False)
    n_seen: int = 0
    epoch: int = -1
    _high: "array[int]" = field(init=False)
    _moved: "array[int]" = field(init=False)
    _low: "array[int]" = field(init=False)
    _all: "array[int]" = field(init=False)
    _position: dict[int, int] = field(init=False)
    _excluded: set[int] = field(default_factory=set)
    _extra_free: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        n, n_kinds = len(self.candidates), len(self.demand.counted)
        self._high, self._moved, self._low = (array("q", bytes(8 * n)) for _ in range(3))
        self._all = array("i", range(n))
        self._position = {ix: at for at, ix in enumerate(self.candidates)}
        self._extra_free = array("q", bytes(8 * n_kinds * len(self.table)))
        self.room = kernel.Room(
            self.table,
            self.herd,
            self.terms,
            self.demand,
            array("q", [n for _, n in self.demand.counted]),
            self._extra_free,
            self._extra_held(),
        )

    def refresh(self, touched: Sequence[int], epoch: int) -> None:
        """Price again what has changed: nodes in `touched` that were not seen yet, or everything
        in a new epoch."""
        if epoch != self.epoch:
            self._price(self._all)
            self._excluded.clear()
        elif self.n_seen < len(touched):
            stale = {self._position.get(ix, -1) for ix in touched[self.n_seen :]} - {-1}
            self._excluded -= stale
            self._price(array("i", stale))
        self.epoch, self.n_seen = epoch, len(touched)

    def cheapest(self) -> int:
        """The position of the cheapest node, or -1 where room can be made on none."""
        at = self._look()
        if at >= 0:
            known = self.price(at)
            self._price(array("i", [at]))
            if self.price(at) != known:
                # A queue has nothing to give any more, and that changes prices everywhere.
                self._price(self._all)
                for excluded in self._excluded:
                    self._high[excluded] = kernel.IMPOSSIBLE
                at = self._look()
        return at

    def price(self, at: int) -> Price:
        """The price at a position."""
        return self._high[at], self._moved[at], self._low[at]

    def lowest(self, n: int) -> list[Price]:
        """The n lowest prices; nodes are named more than once where there are fewer."""
        prices = sorted(zip(self._high, self._moved, self._low, strict=True))[:n]
        return [prices[at % len(prices)] for at in range(n)] if prices else []

    def exclude(self, at: int) -> None:
        """Don't offer this node again until something happens on it."""
        self._high[at] = kernel.IMPOSSIBLE
        self._excluded.add(at)

    def readmit(self) -> None:
        """Offer again what was excluded."""
        if self._excluded:
            excluded = array("i", sorted(self._excluded))
            self._excluded.clear()
            self._price(excluded)

    def choose(self, ix: int) -> Sequence[int] | None:
        """The pods that would leave node `ix`, none where it has room; None where it is no use."""
        if self.demand.counted:
            self._count(ix)
        chosen = array("i", bytes(4 * (self.herd.most_pods + 1)))
        n = self.room.choose(ix, chosen)
        return None if n < 0 else chosen[:n]

    def capacity(self, most: int) -> int:
        """How many pods would fit in all if everything left that may, at most `most`."""
        if self.demand.counted:
            for ix in self.candidates:
                self._count(ix)
        return self.room.capacity(self.candidates, most)

    def _look(self) -> int:
        return kernel.cheapest(self._high, self._moved, self._low)

    def _price(self, positions: "array[int]") -> None:
        if self.demand.counted:
            for at in positions:
                self._count(self.candidates[at])
        self.room.costs(self.candidates, positions, self._high, self._moved, self._low)

    def _count(self, ix: int) -> None:
        """Take over what the node has of what is counted one by one."""
        free = self.table.free_counted[ix] or {}
        n_kinds = len(self.demand.counted)
        for at, (name, _) in enumerate(self.demand.counted):
            self._extra_free[ix * n_kinds + at] = free.get(name, 0)

    def _extra_held(self) -> "array[int]":
        """What every pod of the herd holds of what is counted one by one."""
        names = [name for name, _ in self.demand.counted]
        held = array("q")
        if names:
            for pod in self.herd.pods:
                counted = dict(pod.demand.counted)
                held.extend(counted.get(name, 0) for name in names)
        return held
