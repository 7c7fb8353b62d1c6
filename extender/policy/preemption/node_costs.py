"""The cost of making room for one more pod on every node, kept up to date as pods come and go.

While resources are only taken, a computed cost is a lower bound. So only changed nodes are computed
again, and the cheapest node once more before it is used.
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

#: Ordered as in the kernel: a smaller cost is cheaper.
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
        """Compute costs again for the nodes in `touched` not seen yet, or for all in a new epoch.
        Excluded nodes among them are offered again, unless all changes to them were undone."""
        self._confirmed = -1, 0
        if epoch != self.epoch:
            self._excluded.clear()
            self._update_all()
        elif self._n_seen < len(touched):
            recent = set(touched[self._n_seen :])
            self._update(recent)
            if self._excluded:
                self._readmit_changed(recent, is_undone=is_undone)
        self.epoch, self._n_seen = epoch, len(touched)

    def cheapest(self) -> int:
        """The position of the cheapest node, or -1 if room can be made on none.

        `choose` finds its victims cached if it is called before anything else changes.
        """
        at = self._victims.cheapest()
        if at >= 0:
            if self.demand.counted:
                self._count(self.node_ixs[at])
            ix, known = self.node_ixs[at], self._victims.cost(at)
            n = self._victims.choose(ix, self._chosen)
            if self._victims.cost(at) == known:
                self._confirmed = ix, n
            else:
                # A queue can give up no more work, which changes costs on all nodes.
                self._update_all()
                for excluded in self._excluded:
                    self._victims.exclude(excluded)
                at = self._victims.cheapest()
        return at

    def cost(self, at: int) -> Cost:
        """The cost at a position."""
        return self._victims.cost(at)

    def lowest(self, n: int) -> list[Cost]:
        """The n lowest costs; repeated if there are fewer nodes."""
        costs = sorted(map(self._victims.cost, range(len(self.node_ixs))))[:n]
        return [costs[at % len(costs)] for at in range(n)] if costs else []

    def cheapest_nodes(self, n: int) -> frozenset[int]:
        """The n nodes (by ix) with the lowest known costs, if room can be made there; O(nodes)."""
        costs = ((self._victims.cost(at), ix) for at, ix in enumerate(self.node_ixs))
        possible = (each for each in costs if each[0][0] < IMPOSSIBLE)
        return frozenset(ix for _, ix in nsmallest(n, possible))

    def exclude(self, at: int) -> None:
        """Do not offer this node again until something changes on it."""
        self._victims.exclude(at)
        self._excluded.add(at)

    def readmit(self) -> None:
        """Offer the excluded nodes again."""
        self._confirmed = -1, 0
        if self._excluded:
            self._update([self.node_ixs[at] for at in self._excluded])
            self._excluded.clear()

    def choose(self, ix: int) -> Sequence[int] | None:
        """The victims on node `ix`, none if it has room; None if room cannot be made."""
        known, self._confirmed = self._confirmed, (-1, 0)
        if known[0] == ix:
            return self._chosen[: known[1]]
        if self.demand.counted:
            self._count(ix)
        n = self._victims.choose(ix, self._chosen)
        return None if n < 0 else self._chosen[:n]

    def capacity(self, most: int) -> int:
        """How many pods would fit if all eligible pods were gone, at most `most`."""
        if self.demand.counted:
            for ix in self.node_ixs:
                self._count(ix)
        return self._victims.capacity(most)

    def _readmit_changed(self, nodes: Collection[int], *, is_undone: bool) -> None:
        """Offer excluded nodes that changed again, unless the changes were undone."""
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
        """Copy the node's free counted resources, such as MIG instances, for the kernel."""
        free = self.table.free_counted[ix] or {}
        n_kinds = len(self.demand.counted)
        for at, (name, _) in enumerate(self.demand.counted):
            self._extra_free[ix * n_kinds + at] = free.get(name, 0)

    def _extra_held(self) -> "array[int]":
        """What every candidate holds of the counted resources."""
        names = [name for name, _ in self.demand.counted]
        held = array("q")
        if names:
            for pod in self.candidates.pods:
                counted = dict(pod.demand.counted)
                held.extend(counted.get(name, 0) for name in names)
        return held
