"""Whether a workload could ever be placed: its pods against the empty ready nodes of a pool.

A workload that could never be placed gets no share and blocks no other workload. Examples: a pod
that requests 16 GPUs where nodes have 8, a selector that matches no node, a gang larger than every
domain of its required level, a gang with more pods that anti-affinity separates than there are
domains. The bound is optimistic: each shape, each group and each anti-affinity term of the workload
is checked alone, and pod affinity and other workloads are ignored.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.policy.placement.node_filter import NodeFilter, NodeSet
from extender.policy.placement.topology import TopologyDomains, TopologyLevel, required_rules
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, ShapesKey, key_of, shapes_of
from extender.state.model import Constraints, ElasticView, PodTerm, PodView, TopologyRule
from extender.state.nodes import NodeTable

#: Node pool, topology, level, and the shapes that must fit in one domain; or node pool, topology
#: key, "", and the shapes of which every pod needs a domain of its own.
_DomainKey = tuple[str, str, str, ShapesKey]


@dataclass(slots=True)
class CapacityBound:
    """Checks the pending workloads of one cycle; the result per shape is cached."""

    nodes: NodeTable
    node_filter: NodeFilter
    topologies: TopologyDomains
    _known: dict[tuple[str, Demand, int, int], tuple[Constraints, int]] = field(
        default_factory=dict
    )
    _known_domains: dict[_DomainKey, tuple[list[Shape], bool]] = field(default_factory=dict)

    def allows(self, pending: Pending, pool: str) -> bool:
        """Whether the empty ready nodes of the pool could hold the next chunk or an alternative."""
        if pending.is_single:
            # Nearly all work; it has no alternatives and no topology rule.
            return self._allows(pending.shapes[0], pool)
        return self._allows_chunk(pending, pending.chunk, pending.shapes, pool) or any(
            self._allows_chunk(pending, chunk, shapes_of(chunk), pool)
            for chunk in pending.other_chunks()
        )

    def allows_together(self, rule: TopologyRule, pods: Sequence[PodView], pool: str) -> bool:
        """Whether one domain of the rule's required level could hold these pods when empty."""
        where = pool, rule.topology, rule.required or ""
        return self._recall(where, pods, partial(self._has_domain, rule, pool))

    def _recall(
        self,
        where: tuple[str, str, str],
        pods: Sequence[PodView],
        judge: Callable[[Sequence[Shape]], bool],
    ) -> bool:
        """What `judge` says of the pods' shapes, asked once for each `where`."""
        shapes = shapes_of(pods)
        key = *where, key_of(shapes)
        known = self._known_domains.get(key)
        if known is None:
            known = self._known_domains[key] = shapes, judge(shapes)
        return known[1]

    def _has_domain(self, rule: TopologyRule, pool: str, shapes: Sequence[Shape]) -> bool:
        level = self.topologies.level(rule, pool, rule.required)
        if level is None:
            return False
        rooms = [self._domain_capacities(shape, level, pool) for shape in shapes]
        return any(
            all(room[frame] >= shape.count for shape, room in zip(shapes, rooms, strict=True))
            for frame in level.frames
        )

    def allows_each(self, pods: Sequence[PodView], pool: str) -> bool:
        """Whether each of the pods, taken alone, fits an empty ready node of the pool."""
        alone = (Shape(each.demand, each.constraints, 1) for each in shapes_of(pods))
        return all(self._allows(shape, pool) for shape in alone)

    def count(self, shape: Shape, pool: str) -> int:
        """How many of the shape's pods the pool's empty ready nodes hold; at most its count."""
        # Keeps the constraints alive, so that their id is not reused.
        key = pool, shape.demand, id(shape.constraints), shape.count
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = shape.constraints, self._count(shape, pool)
        return known[1]

    def _allows_chunk(
        self, pending: Pending, chunk: Sequence[PodView], shapes: Iterable[Shape], pool: str
    ) -> bool:
        if not all(self._allows(shape, pool) for shape in shapes):
            return False
        if len(chunk) > 1 and not all(
            self._allows_apart(key, pods, pool) for key, pods in _kept_apart(chunk)
        ):
            return False
        rules = required_rules(pending.workload, chunk)
        return all(self.allows_together(rule, pods, pool) for rule, pods in rules)

    def _allows_apart(self, label: str, pods: Sequence[PodView], pool: str) -> bool:
        """Whether there are enough domains of the label for one pod in each."""
        return self._recall((pool, label, ""), pods, partial(self._has_domains, label, pool))

    def _has_domains(self, label: str, pool: str, shapes: Sequence[Shape]) -> bool:
        found = set[str]()
        for shape in shapes:
            for ix in self.node_filter.candidates(pool, shape.constraints):
                if empty_capacity(self.nodes, ix, shape.demand):
                    domain = self.nodes.labels[ix].get(label)
                    if not domain:
                        # Nodes without the label keep no pods apart.
                        return True
                    found.add(domain)
        return len(found) >= sum(shape.count for shape in shapes)

    def _domain_capacities(
        self, shape: Shape, level: TopologyLevel, pool: str
    ) -> dict[NodeSet, int]:
        """How many of the shape's pods each domain holds when empty."""
        rooms = dict.fromkeys(level.frames, 0)
        for ix in self.node_filter.candidates(pool, shape.constraints):
            domain = level.domains.get(ix)
            if domain is not None:
                rooms[domain] += empty_capacity(self.nodes, ix, shape.demand)
        return rooms

    def _allows(self, shape: Shape, pool: str) -> bool:
        return self.count(shape, pool) == shape.count

    def _count(self, shape: Shape, pool: str) -> int:
        n_held = 0
        for ix in self.node_filter.candidates(pool, shape.constraints):
            n_held += empty_capacity(self.nodes, ix, shape.demand)
            if n_held >= shape.count:
                return shape.count
        return n_held


def fits_new_node(elastic: ElasticView, demand: Demand) -> bool:
    """Whether the cards, CPU and memory of a node that the pool may add hold such a pod."""
    return (
        demand.devices <= elastic.n_gpus
        and demand.gpu_memory_mib <= elastic.card_mib
        and demand.cpu_milli <= elastic.cpu_milli
        and demand.memory_mib <= elastic.memory_mib
    )


def _kept_apart(pods: Iterable[PodView]) -> Iterable[tuple[str, Sequence[PodView]]]:
    """Topology keys, each with pods of one workload that must be in different domains."""
    found: dict[PodTerm, list[PodView]] = {}
    for pod in pods:
        for term in pod.constraints.pod_anti_affinity:
            if term.matches(pod.labels):
                found.setdefault(term, []).append(pod)
    return [(term.topology_key, apart) for term, apart in found.items()]


def empty_capacity(nodes: NodeTable, ix: int, demand: Demand) -> int:
    """How many pods with this demand the empty node holds."""
    bounds = [
        capacity // request
        for capacity, request in (
            (nodes.cpu_milli[ix], demand.cpu_milli),
            (nodes.memory_mib[ix], demand.memory_mib),
        )
        if request
    ]
    bounds += (nodes.counted[ix].get(name, 0) // request for name, request in demand.counted)
    if demand.devices:
        mib = nodes.cards.card_mib[ix]
        milli = share_milli(demand.gpu_memory_mib, mib) if demand.gpu_memory_mib else demand.milli
        n_cards = nodes.cards.capacity_milli[ix] // MILLI_PER_GPU
        per_card = MILLI_PER_GPU // milli
        bounds.append(n_cards * per_card // demand.devices if n_cards >= demand.devices else 0)
    return min(bounds, default=1 << 20)
