"""What it costs to make room for one more pod on every node, kept up to date as pods come and go.

A cost that was computed stays a lower bound while only more is taken. So only nodes on which
something changed are computed again, and the cheapest one before it is used.
"""

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from extender.api.demand import Demand
from extender.kernels.node_victims import IMPOSSIBLE, NodeVictims
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility
from extender.state.nodes import NodeTable

#: Compares as the kernel's costs do; the cheaper is the smaller.
Cost = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class NodeCosts:
    """Costs of `node_ixs` (int32[m], node ix), in their order, for pods of one demand."""

    table: NodeTable
    candidates: Candidates
    eligibility: Eligibility
    demand: Demand
    node_ixs: "array[int]"
    epoch: int = -1
    _victims: NodeVictims = field(init=False)
    _n_seen: int = 0
    _confirmed: tuple[int, int] = (-1, 0)
    _excluded: set[int] = field(default_factory=set)
    _chosen: "array[int]" = field(init=False)
    _extra_free: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        n_kinds = len(self.demand.counted)
        self._chosen = array("i", bytes(4 * (self.candidates.most_pods + 1)))
        self._extra_free = array("q", bytes(8 * n_kinds * len(self.table)))
        self._victims = NodeVictims(
            self.table,
            self.node_ixs,
            self.candidates,
            self.eligibility,
            self.demand,
            array("q", [n for _, n in self.demand.counted]),
            self._extra_free,
            self._extra_held(),
        )

    def refresh(self, touched: Sequence[int], epoch: int, *, is_undone: bool = False) -> None:
        """Price again what has changed: nodes in `touched` that were not seen yet, or everything
        in a new epoch. What is excluded and has changed is offered again, unless all that
        happened to it was undone."""
        self._confirmed = -1, 0
        if epoch != self.epoch:
            self._excluded.clear()
            self._update_all()
        elif self._n_seen < len(touched):
            recent = set(touched[self._n_seen :])
            self._update(recent)
            if self._excluded:
                self._look_again(recent, is_undone=is_undone)
        self.epoch, self._n_seen = epoch, len(touched)

    def cheapest(self) -> int:
        """The position of the cheapest node, or -1 where room can be made on none.

        The pods that leave it are known then, if `choose` is called before anything else
        changes."""
        at = self._victims.cheapest()
        if at >= 0:
            if self.demand.counted:
                self._count(self.node_ixs[at])
            ix, known = self.node_ixs[at], self._victims.price(at)
            n = self._victims.choose(ix, self._chosen)
            if self._victims.price(at) == known:
                self._confirmed = ix, n
            else:
                # A queue has nothing to give any more, and that changes costs everywhere.
                self._update_all()
                for excluded in self._excluded:
                    self._victims.exclude(excluded)
                at = self._victims.cheapest()
        return at

    def cost(self, at: int) -> Cost:
        """The cost at a position."""
        return self._victims.price(at)

    def lowest(self, n: int) -> list[Cost]:
        """The n lowest costs; nodes are named more than once where there are fewer."""
        costs = sorted(map(self._victims.price, range(len(self.node_ixs))))[:n]
        return [costs[at % len(costs)] for at in range(n)] if costs else []

    def cheapest_nodes(self, n: int) -> frozenset[int]:
        """The n nodes (by ix) on which room costs least, as far as is known, or all on which there
        can be any; O(nodes)."""
        prices = ((self._victims.price(at), ix) for at, ix in enumerate(self.node_ixs))
        possible = (each for each in prices if each[0][0] < IMPOSSIBLE)
        return frozenset(ix for _, ix in nsmallest(n, possible))

    def exclude(self, at: int) -> None:
        """Don't offer this node again until something happens on it."""
        self._victims.exclude(at)
        self._excluded.add(at)

    def readmit(self) -> None:
        """Offer again what was excluded."""
        self._confirmed = -1, 0
        if self._excluded:
            self._update([self.node_ixs[at] for at in self._excluded])
            self._excluded.clear()

    def choose(self, ix: int) -> Sequence[int] | None:
        """The pods that would leave node `ix`, none where it has room; None where it is no use."""
        known, self._confirmed = self._confirmed, (-1, 0)
        if known[0] == ix:
            return self._chosen[: known[1]]
        if self.demand.counted:
            self._count(ix)
        n = self._victims.choose(ix, self._chosen)
        return None if n < 0 else self._chosen[:n]

    def capacity(self, most: int) -> int:
        """How many pods would fit in all if everything left that may, at most `most`."""
        if self.demand.counted:
            for ix in self.node_ixs:
                self._count(ix)
        return self._victims.capacity(most)

    def _look_again(self, nodes: Collection[int], *, is_undone: bool) -> None:
        """At what is excluded on these nodes, which have changed."""
        stale = {at for at in self._excluded if self.node_ixs[at] in nodes}
        if is_undone:
            for at in stale:
                self._victims.exclude(at)
        else:
            self._excluded -= stale

    def _update(self, nodes: Collection[int]) -> None:
        if self.demand.counted:
            for ix in nodes:
                self._count(ix)
        self._victims.update(array("i", nodes))

    def _update_all(self) -> None:
        if self.demand.counted:
            for ix in self.node_ixs:
                self._count(ix)
        self._victims.update(self.node_ixs)

    def _count(self, ix: int) -> None:
        """Take over what the node has of what is counted one by one."""
        free = self.table.free_counted[ix] or {}
        n_kinds = len(self.demand.counted)
        for at, (name, _) in enumerate(self.demand.counted):
            self._extra_free[ix * n_kinds + at] = free.get(name, 0)

    def _extra_held(self) -> "array[int]":
        """What every pod of the candidates holds of what is counted one by one."""
        names = [name for name, _ in self.demand.counted]
        held = array("q")
        if names:
            for pod in self.candidates.pods:
                counted = dict(pod.demand.counted)
                held.extend(counted.get(name, 0) for name in names)
        return held
