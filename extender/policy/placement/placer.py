"""Places the pods of one chunk on nodes and cards, either all of them or none.

Pods of one shape are placed in bulk. A shape that does not fit is remembered, and no chunk that
requests as much or more is tried until something is released. So a queue of identical pods that do
not fit costs one search.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from extender.api.demand import Demand
from extender.kernels import nodes as kernel
from extender.policy.placement.domain_search import DomainPlacer, DomainSearch
from extender.policy.placement.fragmentation import Fragmentation
from extender.policy.placement.near_cards import pick_near
from extender.policy.placement.node_filter import WHOLE_POOL, NodeFilter, NodeSet
from extender.policy.placement.pod_affinity import PodAffinity
from extender.policy.placement.simulation import Cards, Moment, Simulation
from extender.policy.placement.topology import TopologyDomains, beside_one_another
from extender.policy.plan import Placement
from extender.policy.workloads.gangs import has_topology
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, alike, placing_orders, shapes_of
from extender.state.card_shares import card_shares
from extender.state.model import (
    GroupView,
    PlacementRule,
    PodView,
    PoolView,
    TopologyRule,
    WorkloadView,
)
from extender.state.nodes import NodeTable

T = TypeVar("T")

_RULES: Final[Mapping[PlacementRule, int]] = {
    "binpack": kernel.BINPACK,
    "spread": kernel.SPREAD,
    "best-fit": kernel.BEST_FIT,
    "first-fit": kernel.FIRST_FIT,
    # For several pods of one shape; single pods are placed by `fragmentation`.
    "fgd": kernel.BINPACK,
}


@dataclass(slots=True)
class Placer:
    """Searches for placements and holds them in the simulation.

    In `open_pools` the cards of the backfill reservation count as free for now. While
    `_is_packing`, bin-pack replaces the placement rules of the pools.
    """

    sim: Simulation
    node_filter: NodeFilter
    topologies: TopologyDomains
    pools: Mapping[str, PoolView]
    pod_affinity: PodAffinity
    fragmentation: Fragmentation
    open_pools: set[str] = field(default_factory=set)
    _failed: dict[tuple[str, Moment, bool], list[Shape]] = field(default_factory=dict)
    _is_packing: bool = False
    _shares: dict[tuple[int, Demand, tuple[int, ...]], Cards] = field(default_factory=dict)

    def place_chunk(
        self,
        pending: Pending,
        pool: str,
        moment: Moment,
        chunk: Sequence[PodView] | None = None,
        frame: NodeSet = WHOLE_POOL,
    ) -> list[Placement] | None:
        """Place every pod of the chunk in the simulation, or none and return None.

        `chunk` is the workload's next one unless another is given.
        """
        pods = pending.chunk if chunk is None else chunk
        if (tree := self.nearness(pending.workload, pods)) is not None:
            free = FreeCapacity(self, moment)
            return self.domains(pool, free, self.sim.table(moment)).run(pending, pods, tree, frame)
        if frame is not WHOLE_POOL:
            return self.place_in(pods, pool, moment, frame)
        shapes = pending.shapes if pods is pending.chunk else shapes_of(pods)
        if self._failed and self._has_failed(shapes, pool, moment):
            return None
        placed: list[Placement] | None
        if len(pods) == 1:
            one = self.place_pod(pods[0], pool, moment)
            placed = None if one is None else [one]
        else:
            placed = self.place_in(pods, pool, moment)
        if placed is None and not self.pod_affinity.concerns(pods):
            self._remember_failure(shapes, pool, moment)
        return placed

    def has_place(
        self, pending: Pending, pool: str, moment: Moment, chunk: Sequence[PodView] | None = None
    ) -> bool:
        """Whether `place_chunk` succeeds; nothing stays held."""
        mark = self.sim.checkpoint()
        placed = self.place_chunk(pending, pool, moment, chunk)
        self.sim.rollback(mark)
        return placed is not None

    def domains(self, pool: str, placer: DomainPlacer, most_free: NodeTable) -> DomainSearch:
        """The search through topology domains; `placer` holds the placements.

        `most_free` has the most that could become free on each node.
        """
        return DomainSearch(self.topologies, self.node_filter, pool, placer, most_free)

    def nearness(self, workload: WorkloadView, chunk: Sequence[PodView]) -> GroupView | None:
        """The tree of groups that confines the chunk to topology domains; None if nothing does."""
        if label := self.pod_affinity.together(chunk):
            return beside_one_another(workload, label)
        return workload.tree if has_topology(workload) else None

    def place_in(
        self, pods: Sequence[PodView], pool: str, moment: Moment, frame: NodeSet = WHOLE_POOL
    ) -> list[Placement] | None:
        """Place every pod within the frame, or none and return None."""
        mark = self.sim.checkpoint()

        def place_all(in_order: Sequence[PodView]) -> list[Placement] | None:
            placed = self._place_all(in_order, pool, moment, frame)
            if placed is None:
                self.sim.rollback(mark)
            return placed

        return self.try_orders(pods, pool, place_all)

    def try_orders(
        self, pods: Sequence[PodView], pool: str, place_all: Callable[[Sequence[PodView]], T | None]
    ) -> T | None:
        """The first result of `place_all` for an order of the pods; None if all orders fail.

        `place_all` undoes what it placed if it returns None. For pods of several shapes, all orders
        are tried again with bin-pack in place of the pools' placement rules.
        """
        candidates = self.node_filter.candidates
        in_orders = list(placing_orders(pods, lambda p: len(candidates(pool, p.constraints))))
        placed = _first_result(place_all, in_orders)
        if placed is not None or self._is_packed(pods, pool) or len(shapes_of(pods)) == 1:
            return placed
        self._is_packing = True
        try:
            return _first_result(place_all, in_orders)
        finally:
            self._is_packing = False

    def place_pod(
        self,
        pod: PodView,
        pool: str,
        moment: Moment,
        frame: NodeSet = WHOLE_POOL,
        *,
        avoided: frozenset[int] = frozenset(),
    ) -> Placement | None:
        """Place one pod on its best node in the simulation; None if it does not fit.

        Nodes in `avoided` (by ix) and nodes with a PreferNoSchedule taint that the pod does not
        tolerate are used only if no other node has room.
        """
        everywhere = self.candidates(pod, pool, moment, frame)
        unavoided = self.node_filter.unavoided(everywhere, pod.constraints)
        best = array("i", [ix for ix in unavoided if ix not in avoided]) if avoided else unavoided
        ix, card = self._best_node(pod, pool, moment, best)
        for wider, last in ((unavoided, best), (everywhere, unavoided)):
            if ix < 0 and len(last) < len(wider):
                ix, card = self._best_node(pod, pool, moment, wider)
        return None if ix < 0 else self.place_on(pod, ix, pool, moment, card)

    def _best_node(
        self, pod: PodView, pool: str, moment: Moment, candidates: "array[int]"
    ) -> tuple[int, int]:
        """The best node and its card (-1 if the rule names none); -1, -1 if no node has room."""
        demand, rule, table = pod.demand, self._rule(pod, pool), self.sim.table(moment)
        if self._is_fgd(pod, pool):
            return self.fragmentation.best_place(demand, candidates, pool, moment)
        if demand.counted and not demand.wants_gpu:
            candidates, rule = _sorted_by_instances(table, candidates, rule), kernel.FIRST_FIT
        elif not demand.wants_gpu:
            candidates = self._prefer_plain_nodes(pod, moment, candidates)
        return kernel.best_node(table, demand, candidates, rule), -1

    def place_on(
        self, pod: PodView, ix: int, pool: str, moment: Moment, card: int = -1
    ) -> Placement:
        """Place the pod on node `ix`, which must have room, and on `card` if one is given."""
        table = self.sim.table(moment)
        indices: tuple[int, ...] = (card,)
        if pod.constraints.delivery == "share":
            # kube-scheduler allocates the card, by first fit.
            indices = tuple(kernel.pick_cards(table.cards, ix, pod.demand, kernel.FIRST_FIT))
        elif card < 0:
            indices = tuple(pick_near(table, ix, pod.demand, self._rule(pod, pool)))
        shares = self.shares(ix, pod.demand, indices)
        self.sim.hold(ix, pod, shares)
        return Placement(pod, table.cards.names[ix], shares)

    def shares(self, ix: int, demand: Demand, indices: tuple[int, ...]) -> Cards:
        """The share of these cards of node `ix` that a pod with this demand gets."""
        key = self.sim.later.cards.card_mib[ix], demand, indices
        known = self._shares.get(key)
        if known is None:
            known = self._shares[key] = card_shares(demand, key[0], indices)
        return known

    def roomiest(self, pod: PodView, pool: str, rule: TopologyRule) -> int | None:
        """How many such pods the level's roomiest domain holds now; None if it has no domain."""
        search = self.domains(pool, FreeCapacity(self, "now"), self.sim.now)
        return search.roomiest(Shape(pod.demand, pod.constraints, 1), rule)

    def candidates(
        self, pod: PodView, pool: str, moment: Moment, frame: NodeSet = WHOLE_POOL
    ) -> "array[int]":
        """Nodes of the frame that the pod's constraints and pod affinity allow, and that have
        enough free counted resources."""
        found = self.node_filter.candidates(pool, pod.constraints, frame)
        demand = pod.demand
        if demand.counted:
            table = self.sim.table(moment)
            found = array("i", [ix for ix in found if table.fits_counted(ix, demand)])
        return self.pod_affinity.allowed(pod, found, moment)

    def forget_failures(self, pool: str) -> None:
        """Something in the pool was released, so shapes that failed for `later` may fit."""
        for is_open in (False, True):
            self._failed.pop((pool, "later", is_open), None)

    def _place_all(
        self, in_order: Sequence[PodView], pool: str, moment: Moment, frame: NodeSet
    ) -> list[Placement] | None:
        """Place every pod in this order, or return None; the caller then undoes what was placed."""
        placed: list[Placement] = []
        for group in alike(in_order):
            has_counted = bool(group[0].demand.counted)
            if len(group) > 1 and not has_counted and not self.pod_affinity.concerns(group):
                more = self._place_same_shape(group, pool, moment, frame)
            else:
                more = self._place_one_by_one(group, pool, moment, frame)
            if more is None:
                return None
            placed += more
        return placed

    def _place_one_by_one(
        self, pods: Sequence[PodView], pool: str, moment: Moment, frame: NodeSet
    ) -> list[Placement] | None:
        placed = []
        for pod in pods:
            placement = self.place_pod(pod, pool, moment, frame)
            if placement is None:
                return None
            placed.append(placement)
        return placed

    def _place_same_shape(
        self, pods: Sequence[PodView], pool: str, moment: Moment, frame: NodeSet
    ) -> list[Placement] | None:
        """Place pods of one shape, for GPUs under best-fit and fgd on as few nodes as possible."""
        first, table = pods[0], self.sim.table(moment)
        candidates = self.node_filter.candidates(pool, first.constraints, frame)
        if len(self.node_filter.unavoided(candidates, first.constraints)) < len(candidates):
            return self._place_one_by_one(pods, pool, moment, frame)
        counts = array("i", bytes(4 * len(candidates)))
        kernel.count_room(table, first.demand, candidates, len(pods), counts)
        if sum(counts) < len(pods):
            return None
        rule = self._rule(first, pool)
        is_fgd = self._is_fgd(first, pool)
        if first.demand.wants_gpu and (rule == kernel.BEST_FIT or is_fgd):
            return self._place_on_fewest_nodes(
                pods, pool, moment, dict(zip(candidates, counts, strict=True))
            )
        placed = []
        for pod in pods:
            ix = kernel.best_node(table, pod.demand, candidates, rule)
            if ix < 0:
                return None
            placed.append(self.place_on(pod, ix, pool, moment))
        return placed

    def _place_on_fewest_nodes(
        self, pods: Sequence[PodView], pool: str, moment: Moment, rooms: dict[int, int]
    ) -> list[Placement] | None:
        """Place the pods on as few nodes as possible; `rooms` is how many pods each node holds.

        While no node holds all remaining pods, the roomiest one is filled. The remaining pods then
        go to the node that they fit most tightly.
        """
        table, demand, rule = self.sim.table(moment), pods[0].demand, self._rule(pods[0], pool)
        placed: list[Placement] = []
        while (n_left := len(pods) - len(placed)) and any(rooms.values()):
            enough = [room for room in rooms.values() if room >= n_left]
            room = min(enough) if enough else max(rooms.values())
            same_room = array("i", [ix for ix in rooms if rooms[ix] == room])
            ix = kernel.best_node(table, demand, same_room, rule)
            rooms[ix] = 0
            for pod in pods[len(placed) : len(placed) + room]:
                if not kernel.pick_cards(table.cards, ix, demand, rule):
                    break
                placed.append(self.place_on(pod, ix, pool, moment))
        return placed if len(placed) == len(pods) else None

    def _prefer_plain_nodes(
        self, pod: PodView, moment: Moment, candidates: "array[int]"
    ) -> "array[int]":
        """The candidates for a pod without GPUs: nodes with MIG instances only as a last resort."""
        plain = self.node_filter.without_instances(candidates)
        if len(plain) == len(candidates):
            return candidates
        ix = kernel.best_node(self.sim.table(moment), pod.demand, plain, kernel.FIRST_FIT)
        return candidates if ix < 0 else plain

    def _is_fgd(self, pod: PodView, pool: str) -> bool:
        view, demand = self.pools[pool], pod.demand
        placement = view.gpu_placement if demand.wants_gpu else view.cpu_placement
        return placement == "fgd" and not demand.counted and not self._is_packing

    def _is_packed(self, pods: Iterable[PodView], pool: str) -> bool:
        return all(
            self._rule(pod, pool) == kernel.BINPACK and not self._is_fgd(pod, pool) for pod in pods
        )

    def _rule(self, pod: PodView, pool: str) -> int:
        view = self.pools[pool]
        rule = view.gpu_placement if pod.demand.is_gpu_work else view.cpu_placement
        return kernel.BINPACK if self._is_packing else _RULES[rule]

    def _has_failed(self, shapes: Iterable[Shape], pool: str, moment: Moment) -> bool:
        """Whether a shape as easy to place as one of these has already failed."""
        for known in self._failed.get((pool, moment, pool in self.open_pools), ()):
            for shape in shapes:
                if shape.is_no_easier_than(known):
                    return True
        return False

    def _remember_failure(self, shapes: Sequence[Shape], pool: str, moment: Moment) -> None:
        # For a chunk of several shapes it is not known which one failed.
        if len(shapes) != 1:
            return
        failed = self._failed.setdefault((pool, moment, pool in self.open_pools), [])
        failed[:] = [known for known in failed if not known.is_no_easier_than(shapes[0])]
        failed.append(shapes[0])


@dataclass(slots=True)
class FreeCapacity:
    """A DomainPlacer that uses only what is free at one moment."""

    places: Placer
    moment: Moment

    def place_in(
        self, pods: Sequence[PodView], pool: str, frame: NodeSet
    ) -> list[Placement] | None:
        """As `Placer.place_in`."""
        return self.places.place_in(pods, pool, self.moment, frame)

    def cost(self, pods: Sequence[PodView], pool: str, frame: NodeSet) -> tuple[int, ...]:
        """No evictions are needed, so the cost is the same everywhere."""
        return ()

    def checkpoint(self) -> int:
        """A mark in the simulation."""
        return self.places.sim.checkpoint()

    def rollback(self, mark: int) -> None:
        """Roll the simulation back."""
        self.places.sim.rollback(mark)


def _first_result(
    place_all: Callable[[Sequence[PodView]], T | None], in_orders: Iterable[Sequence[PodView]]
) -> T | None:
    return next((found for each in in_orders if (found := place_all(each)) is not None), None)


def _sorted_by_instances(table: NodeTable, candidates: "array[int]", rule: int) -> "array[int]":
    """The candidates by free counted resources: fewest first, under spread most first; stable."""
    sign = -1 if rule == kernel.SPREAD else 1
    left = {ix: sign * sum((table.free_counted[ix] or {}).values()) for ix in candidates}
    return array("i", sorted(candidates, key=left.__getitem__))
