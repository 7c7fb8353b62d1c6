"""Places a chunk in the topology domains of its workload's groups.

A group's pods must be in one domain of its required level. They should be in one domain of its
preferred level, or else of the next wider one. Domains are tried tightest first, by the number of
pods that their nodes could hold. Subgroups are placed inside their group's domain, each in its own.
Pods that already run fix the group's required domain.

A `DomainPlacer` places the pods inside a domain: `FreeCapacity` on free cards only, the search for
victims by evictions too.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Protocol

from extender.kernels.nodes import count_room
from extender.policy.placement.node_filter import WHOLE_POOL, NodeFilter, NodeSet
from extender.policy.placement.topology import TopologyDomains, TopologyLevel, is_by_label
from extender.policy.plan import Placement
from extender.policy.workloads.gangs import has_rule, leaves_below
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, shapes_of
from extender.state.model import GroupView, PodView, TopologyRule
from extender.state.nodes import NodeTable


class DomainPlacer(Protocol):
    """Places pods inside one frame."""

    def place_in(
        self, pods: Sequence[PodView], pool: str, frame: NodeSet
    ) -> list[Placement] | None:
        """Place every pod on the frame's nodes, or none and return None."""

    def cost(self, pods: Sequence[PodView], pool: str, frame: NodeSet) -> tuple[int, ...]:
        """The estimated cost of placing the pods in the frame; the cheapest is tried first."""

    def checkpoint(self) -> int:
        """A mark to roll back to."""

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`."""


@dataclass(slots=True)
class DomainSearch:
    """Places one chunk in the domains of its groups.

    `most_free` has the most that could become free on each node: the capacity of the domains.
    """

    topologies: TopologyDomains
    node_filter: NodeFilter
    pool: str
    placer: DomainPlacer
    most_free: NodeTable
    held_by_leaf: dict[str, list[int]] = field(default_factory=dict)
    _clipped: dict[tuple[NodeSet, NodeSet], NodeSet] = field(default_factory=dict)

    def run(
        self,
        pending: Pending,
        chunk: Sequence[PodView],
        tree: GroupView,
        frame: NodeSet = WHOLE_POOL,
    ) -> list[Placement] | None:
        """Place the whole chunk in the frame, group by group, or nothing and return None."""
        again = {pod.uid for pod in chunk}
        for pod in pending.live:
            if pod.uid in again:
                # The pod was placed before and is placed anew.
                continue
            ix = self.most_free.ix_of(pending.nodes.get(pod.uid) or pod.node)
            if ix is not None:
                self.held_by_leaf.setdefault(pod.group, []).append(ix)
        return self._place_group(tree, chunk, frame)

    def roomiest(self, shape: Shape, rule: TopologyRule) -> int | None:
        """How many pods of the shape the level's roomiest domain holds; None without a domain."""
        level = self.topologies.level(rule, self.pool, rule.required)
        if level is None or not level.frames:
            return None
        return max(self._capacities(shape, level, WHOLE_POOL).values())

    def _place_group(
        self, group: GroupView, pods: Sequence[PodView], within: NodeSet
    ) -> list[Placement] | None:
        mark = self.placer.checkpoint()
        for frame in self._candidate_frames(group, pods, within):
            placed = self._place_inside(group, pods, frame)
            if placed is not None:
                return placed
            self.placer.rollback(mark)
        return None

    def _place_inside(
        self, group: GroupView, pods: Sequence[PodView], frame: NodeSet
    ) -> list[Placement] | None:
        """Place each subgroup in its own domain inside `frame`, the largest first, then the other
        pods; if that fails, the other pods first."""
        parts: list[tuple[GroupView, list[PodView]]] = []
        rest = list(pods)
        for child in group.children:
            leaves = leaves_below(child)
            inside = [pod for pod in rest if pod.group in leaves]
            if inside and has_rule(child):
                parts.append((child, inside))
                rest = [pod for pod in rest if pod.group not in leaves]
        parts.sort(key=lambda part: -_size_of(part[1]))
        groups = [partial(self._place_group, child, inside, frame) for child, inside in parts]
        others = [partial(self._place_rest, group, rest, frame)] if rest else []
        placed = self._place_in_order([*groups, *others])
        if placed is None and groups and others:
            placed = self._place_in_order([*others, *groups])
        return placed

    def _place_in_order(
        self, attempts: Sequence[Callable[[], list[Placement] | None]]
    ) -> list[Placement] | None:
        """The placements of all attempts in order; None, with nothing placed, if one fails."""
        mark = self.placer.checkpoint()
        result: list[Placement] = []
        for attempt in attempts:
            placed = attempt()
            if placed is None:
                self.placer.rollback(mark)
                return None
            result += placed
        return result

    def _place_rest(
        self, group: GroupView, pods: Sequence[PodView], frame: NodeSet
    ) -> list[Placement] | None:
        """Place pods outside of subgroups, if possible in few domains of the preferred level."""
        rule = group.topology
        preferred = self.topologies.level(rule, self.pool, rule.preferred) if rule else None
        if preferred is not None and len(pods) > 1:
            mark = self.placer.checkpoint()
            placed = self._place_in_few_domains(pods, preferred, frame)
            if placed is not None:
                return placed
            self.placer.rollback(mark)
        return self.placer.place_in(pods, self.pool, frame)

    def _place_in_few_domains(
        self, pods: Sequence[PodView], level: TopologyLevel, within: NodeSet
    ) -> list[Placement] | None:
        """Place pods of one shape in few domains of `level`: fill the roomiest ones, then use the
        tightest domain that holds the remaining pods.

        Among equally roomy domains the last by name is filled, since workloads without a topology
        fill the first ones.
        """
        shapes = shapes_of(pods)
        domains = self._within(level, within)
        if len(shapes) > 1 or len(domains) < 2:
            return None
        rooms = self._capacities(shapes[0], level, within)
        result: list[Placement] = []
        left = list(pods)
        while left:
            enough = [frame for frame in domains if rooms[frame] >= len(left)]
            if enough:
                chosen = min(enough, key=rooms.__getitem__)
            else:
                chosen = max(reversed(domains), key=rooms.__getitem__)
            n_here = min(len(left), rooms.pop(chosen))
            domains.remove(chosen)
            inside = self._clip(chosen, within)
            placed = self.placer.place_in(left[:n_here], self.pool, inside) if n_here else None
            if placed is None:
                return None
            result += placed
            left = left[n_here:]
            if left and not domains:
                return None
        return result

    def _candidate_frames(
        self, group: GroupView, pods: Sequence[PodView], within: NodeSet
    ) -> Iterator[NodeSet]:
        """Frames for the group, best first; domains that are too small are left out."""
        rule = group.topology
        if rule is None:
            yield within
            return
        levels = self.topologies.levels(rule.topology, self.pool)
        labels = [level.label for level in levels]
        if rule.required and rule.required not in labels:
            return
        widest = labels.index(rule.required) if rule.required else 0
        nearest = labels.index(rule.preferred) if rule.preferred in labels else -1
        held = [ix for leaf in leaves_below(group) for ix in self.held_by_leaf.get(leaf, ())]
        if is_by_label(rule):
            yield from self._frames_of_label(levels[0], pods, held, within)
            return
        if rule.required:
            nearest = max(nearest, widest)
            within = self._clip(_occupied_domain(levels[widest], held), within)
        cost = partial(self.placer.cost, pods, self.pool)
        for level in reversed(levels[widest : nearest + 1]):
            yield from self._candidate_domains(level, pods, held, within, cost)
        if not rule.required:
            yield within

    def _frames_of_label(
        self, level: TopologyLevel, pods: Sequence[PodView], held: Sequence[int], within: NodeSet
    ) -> Iterator[NodeSet]:
        """The frames for pods that pod affinity puts into one domain, the cheapest first: the whole
        of `within`, where affinity alone usually leads to a suitable domain, and each domain. The
        domains are not compared if `within` needs no eviction.
        """
        cost = cache(partial(self.placer.cost, pods, self.pool))
        is_free = not any(cost(within))
        if is_free:
            yield within
        within_home = self._clip(_occupied_domain(level, held), within)
        domains = self._candidate_domains(level, pods, held, within_home, cost)
        yield from domains if is_free else sorted([within, *domains], key=cost)

    def _candidate_domains(
        self,
        level: TopologyLevel,
        pods: Sequence[PodView],
        held: Iterable[int],
        within: NodeSet,
        cost: Callable[[NodeSet], tuple[int, ...]],
    ) -> list[NodeSet]:
        """Domains of the level inside `within` that could hold all pods.

        Domains where the group already runs come first, then the cheapest, then those where no pod
        needs a node with a PreferNoSchedule taint, then the tightest.
        """
        shapes = shapes_of(pods)
        rooms = [self._capacities(shape, level, within) for shape in shapes]
        homes = {level.domains.get(ix) for ix in held}
        fitting = [
            frame
            for frame in self._within(level, within)
            if all(room[frame] >= shape.count for shape, room in zip(shapes, rooms, strict=True))
        ]
        avoided = self._avoided_domains(shapes, level, within)
        tightness = {frame: sum(room[frame] for room in rooms) for frame in fitting}
        clipped = {frame: self._clip(frame, within) for frame in fitting}
        fitting.sort(
            key=lambda frame: (
                frame not in homes,
                cost(clipped[frame]),
                frame in avoided,
                tightness[frame],
            )
        )
        return [clipped[frame] for frame in fitting]

    def _avoided_domains(
        self, shapes: Sequence[Shape], level: TopologyLevel, within: NodeSet
    ) -> set[NodeSet]:
        """Domains too small for the pods without nodes of an untolerated PreferNoSchedule taint."""
        found: set[NodeSet] = set()
        for shape in shapes if self.node_filter.has_avoided else ():
            rooms = self._capacities(shape, level, within, is_avoiding=True)
            found.update(frame for frame, room in rooms.items() if room < shape.count)
        return found

    def _within(self, level: TopologyLevel, within: NodeSet) -> list[NodeSet]:
        """The level's domains with nodes in `within`."""
        if within.nodes is None:
            return list(level.frames)
        return [f for f in level.frames if f.nodes and not f.nodes.isdisjoint(within.nodes)]

    def _clip(self, frame: NodeSet, within: NodeSet) -> NodeSet:
        """The intersection of the two; the same object for the same arguments."""
        if frame.nodes is None:
            return within
        if within.nodes is None or frame.nodes <= within.nodes:
            return frame
        if within.nodes <= frame.nodes:
            return within
        clipped = self._clipped.get((frame, within))
        if clipped is None:
            clipped = NodeSet(frame.name, frame.nodes & within.nodes)
            self._clipped[frame, within] = clipped
        return clipped

    def _capacities(
        self, shape: Shape, level: TopologyLevel, within: NodeSet, *, is_avoiding: bool = False
    ) -> dict[NodeSet, int]:
        """How many pods of the shape each domain could hold on its nodes in `within`.

        `is_avoiding` excludes nodes with a PreferNoSchedule taint that the pods do not tolerate.
        """
        candidates = self.node_filter.candidates(self.pool, shape.constraints)
        if is_avoiding:
            candidates = self.node_filter.unavoided(candidates, shape.constraints)
        counts = array("i", bytes(4 * len(candidates)))
        count_room(self.most_free, shape.demand, candidates, 1 << 20, counts)
        rooms = dict.fromkeys(level.frames, 0)
        for ix, count in zip(candidates, counts, strict=True):
            domain = level.domains.get(ix)
            if count and domain is not None and (within.nodes is None or ix in within.nodes):
                rooms[domain] += self._capped(ix, shape, count) if shape.demand.counted else count
        return rooms

    def _capped(self, ix: int, shape: Shape, count: int) -> int:
        """`count`, capped by the free counted resources of the node."""
        free = self.most_free.free_counted[ix] or {}
        return min(count, *(free.get(name, 0) // n for name, n in shape.demand.counted))


def _occupied_domain(level: TopologyLevel, held: Sequence[int]) -> NodeSet:
    """The domain on which most pods of the group already run; the whole pool if none does."""
    homes = [domain for ix in held if (domain := level.domains.get(ix)) is not None]
    if not homes:
        return WHOLE_POOL
    return max(sorted(set(homes), key=lambda frame: frame.name), key=homes.count)


def _size_of(pods: Iterable[PodView]) -> int:
    return sum(pod.demand.devices * (pod.demand.milli or 1) for pod in pods)
