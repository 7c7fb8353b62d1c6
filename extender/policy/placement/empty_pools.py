"""Whether work could be placed if nothing else ran: where it cannot, no eviction will ever help.

A pod that fits no node (16 GPUs where nodes have 8, a selector that no node matches) must not hold
up other work. The answer speaks of the nodes that are ready now.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.policy.placement.fragmentation import Fragmentation
from extender.policy.placement.placer import Placer
from extender.policy.placement.pod_affinity import PodAffinity
from extender.policy.placement.simulation import Simulation
from extender.policy.workloads.gangs import has_topology
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, shapes_of
from extender.state.model import PodView, PoolView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot

_Key = tuple[str, tuple[tuple[Demand, int, int], ...]]


def empty_table(snapshot: Snapshot) -> NodeTable:
    """A copy of the snapshot's nodes on which none of its pods runs; costs one pass over them."""
    empty = snapshot.nodes.copy()
    for workload in snapshot.workloads.values():
        for pod in workload.pods:
            if pod.node and (ix := empty.ix_of(pod.node)) is not None:
                empty.give_back(ix, pod.demand, pod.cards)
            if pod.next_node and (ix := empty.ix_of(pod.next_node)) is not None:
                empty.give_back(ix, pod.demand, pod.next_cards)
    return empty


@dataclass(slots=True)
class EmptyPools:
    """Places pods on `table`, on which nothing runs, by the rules of `places`.

    Pod affinity is left out: the pods that it asks for may come.
    """

    table: NodeTable
    places: Placer
    _empty: Placer = field(init=False)
    _known: dict[_Key, tuple[Sequence[Shape], bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nothing = Snapshot(0, self.table, {}, {}, {})
        sim, of = Simulation(self.table), self.places
        pools = {name: PoolView(name) for name in of.pools}
        fragmentation = Fragmentation(nothing, sim)
        self._empty = Placer(
            sim, of.node_filter, of.topologies, pools, PodAffinity(nothing), fragmentation
        )

    def could_place(self, pending: Pending, pool: str) -> bool:
        """Whether the next chunk of the workload would have places beside its own live pods."""
        if pending.workload.tree is not None and has_topology(pending.workload):
            return self._try(pending, pool, pending.chunk)
        return self._could_place(pending, pool, pending.shapes, pending.chunk)

    def could_place_each(self, pending: Pending, pool: str) -> bool:
        """Whether every pod of the next chunk would have a place by itself."""
        first = {(pod.demand, id(pod.constraints)): pod for pod in pending.chunk}
        return all(self.could_place_pod(pending, pool, pod) for pod in first.values())

    def could_place_pod(self, pending: Pending, pool: str, pod: PodView) -> bool:
        """Whether this one pod of the workload would have a place."""
        pods = (pod,)
        return self._could_place(pending, pool, shapes_of(pods), pods)

    def _could_place(
        self, pending: Pending, pool: str, shapes: Sequence[Shape], pods: Sequence[PodView]
    ) -> bool:
        # Shapes are kept beside the ids of their constraints, so that an id is not used again.
        key = pool, tuple((each.demand, id(each.constraints), each.count) for each in shapes)
        if key not in self._known:
            self._known[key] = shapes, self._try(pending, pool, pods)
        return self._known[key][1]

    def _try(self, pending: Pending, pool: str, pods: Sequence[PodView]) -> bool:
        sim = self._empty.sim
        mark = sim.checkpoint()
        placed = self._empty.place_chunk(pending, pool, "now", pods)
        sim.rollback(mark)
        return placed is not None
