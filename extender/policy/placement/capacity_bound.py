"""What could ever be placed: pods against what the ready nodes have, whatever runs there.

A pod that fits no node (16 GPUs where nodes have 8, a selector that no node matches) has no part in
the shares and holds up no other work. The bound is optimistic: it looks at each kind of pod of a
workload alone, and leaves out topology and pod affinity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.policy.placement.node_filter import NodeFilter
from extender.policy.workloads.pod_classes import Shape, shapes_of
from extender.state.model import Constraints, PodView
from extender.state.nodes import NodeTable


@dataclass(slots=True)
class CapacityBound:
    """Asked for the waiting workloads of one cycle; remembers each kind of pod."""

    nodes: NodeTable
    node_filter: NodeFilter
    _known: dict[tuple[str, Demand, int, int], tuple[Constraints, int]] = field(
        default_factory=dict
    )

    def allows(self, shapes: Sequence[Shape], pool: str) -> bool:
        """Whether the ready nodes of the pool have what pods of these shapes need."""
        return all(self._allows(shape, pool) for shape in shapes)

    def allows_each(self, pods: Sequence[PodView], pool: str) -> bool:
        """Whether for each of the pods some ready node has what it needs by itself."""
        alone = (Shape(each.demand, each.constraints, 1) for each in shapes_of(pods))
        return all(self._allows(shape, pool) for shape in alone)

    def count(self, shape: Shape, pool: str) -> int:
        """How many of the shape's pods the ready nodes of the pool hold at most, when empty."""
        # Constraints are kept beside their id, so that the id is not used again.
        key = pool, shape.demand, id(shape.constraints), shape.count
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = shape.constraints, self._count(shape, pool)
        return known[1]

    def _allows(self, shape: Shape, pool: str) -> bool:
        return self.count(shape, pool) == shape.count

    def _count(self, shape: Shape, pool: str) -> int:
        n_held = 0
        for ix in self.node_filter.candidates(pool, shape.constraints):
            n_held += _most_on(self.nodes, ix, shape.demand)
            if n_held >= shape.count:
                return shape.count
        return n_held


def _most_on(nodes: NodeTable, ix: int, demand: Demand) -> int:
    """How many pods the empty node holds at most."""
    bounds = [
        has // asked
        for has, asked in (
            (nodes.cpu_milli[ix], demand.cpu_milli),
            (nodes.memory_mib[ix], demand.memory_mib),
        )
        if asked
    ]
    bounds += (nodes.counted[ix].get(name, 0) // asked for name, asked in demand.counted)
    if demand.devices:
        mib = nodes.cards.card_mib[ix]
        milli = share_milli(demand.gpu_memory_mib, mib) if demand.gpu_memory_mib else demand.milli
        n_cards = nodes.cards.capacity_milli[ix] // MILLI_PER_GPU
        per_card = MILLI_PER_GPU // milli
        bounds.append(n_cards * per_card // demand.devices if n_cards >= demand.devices else 0)
    return min(bounds, default=1 << 20)
