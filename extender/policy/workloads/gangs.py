"""Which of a workload's pods must start and be evicted together, by the minimums of its groups.

A set of pods is a legal state if it is empty, or if every group with any of them has its minimum.
Chunks to start and units to evict are the smallest steps from one legal state to another. Most
workloads are flat (one minimum, no tree) and use shortcuts.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, combinations, islice
from typing import Final

from extender.state import trees
from extender.state.model import GroupView, PodView, WorkloadView

#: Sets of subgroup kinds that are left out in turn: enough for all sets of five kinds.
_MOST_LEFT_OUT: Final = 31


def is_satisfied(workload: WorkloadView, pods: Collection[PodView]) -> bool:
    """Whether these pods alone are a legal state; costs one pass over them."""
    if not pods:
        return True
    if not has_groups(workload):
        return len(pods) >= workload.min_member
    assert workload.tree is not None
    return trees.is_satisfied(workload.tree, (pod.group for pod in pods))


def unit_of(workload: WorkloadView, live: Collection[PodView], pod: PodView) -> Collection[PodView]:
    """The pods to evict together with `pod`, so that the rest of `live` is a legal state.

    This is the pod alone if it is surplus, else its smallest enclosing group that may be evicted
    whole, else all of `live`.
    """
    if not has_groups(workload):
        return (pod,) if len(live) > workload.min_member else live
    root = _group_tree(workload, live, ())
    leaf = root.find(pod.group)
    candidates: Iterable[Collection[PodView]] = chain(
        ((pod,),), (tuple(group.held()) for group in leaf.path())
    )
    for leaving in candidates:
        uids = {left.uid for left in leaving}
        if is_satisfied(workload, [other for other in live if other.uid not in uids]):
            return leaving
    return live


def next_chunks(
    workload: WorkloadView, live: Collection[PodView], waiting: Sequence[PodView]
) -> Iterator[Sequence[PodView]]:
    """The pods to place next, all or none, followed by alternatives if they do not fit, best first.

    A chunk is what the minimums lack, or else one unit of surplus. There is none if no pod waits or
    the minimum is out of reach. `waiting` is in starting order; pods of the same `order` may pass
    one another. A started group grows by one pod, an empty one by its minimum; the group with the
    smallest part of its minimum comes first. If not all groups are needed, groups of one kind may
    be left out for others.
    """
    if not waiting:
        return
    if not has_groups(workload):
        yield from _flat_chunks(max(1, workload.min_member - len(live)), waiting)
        return
    root = _group_tree(workload, live, waiting)
    if not root.can_fill():
        return
    needed = root.fill()
    if not needed:
        yield from root.surplus()
        return
    found = set[tuple[str, ...]]()
    for chunk in chain((needed,), _alternative_fills(workload, live, waiting)):
        uids = tuple(pod.uid for pod in chunk)
        # The minimums may be out of reach.
        if uids not in found and is_satisfied(workload, [*live, *chunk]):
            found.add(uids)
            yield chunk


def _alternative_fills(
    workload: WorkloadView, live: Collection[PodView], waiting: Sequence[PodView]
) -> Iterator[Sequence[PodView]]:
    """What the minimum lacks if the optional groups of one kind are left out, then of two kinds,
    and so on; the kinds listed last are left out first."""
    listed = dict.fromkeys(
        group.kind() for group in _group_tree(workload, live, waiting).optional()
    )
    kinds = list(reversed(listed))
    by_number = (combinations(kinds, n) for n in range(1, len(kinds) + 1))
    for left_out in islice(chain.from_iterable(by_number), _MOST_LEFT_OUT):
        root = _group_tree(workload, live, waiting)
        leaving = [group for group in root.optional() if group.kind() in left_out]
        around = [group.parent for group in leaving if group.parent and group.parent.can_fill()]
        for group in leaving:
            group.leave_out()
        # If a group cannot start without them, leaving it out whole is another attempt.
        if all(group.can_fill() for group in (root, *around)) and (needed := root.fill()):
            yield needed


def least_pods(workload: WorkloadView) -> int:
    """The number of pods in the smallest non-empty legal state."""
    return _least(workload.tree) if workload.tree is not None else max(1, workload.min_member)


def are_independent(workload: WorkloadView) -> bool:
    """Whether each pod runs by itself, like the trials of a search: the minimum is one pod."""
    return workload.min_member <= 1 and not has_groups(workload)


def has_groups(workload: WorkloadView) -> bool:
    """Whether the workload has subgroups with minimums of their own."""
    return workload.tree is not None and bool(workload.tree.children)


def has_topology(workload: WorkloadView) -> bool:
    """Whether any group of the workload has a topology rule."""
    return workload.tree is not None and has_rule(workload.tree)


def live_pods(workload: WorkloadView) -> list[PodView]:
    """The workload's pods that have a node and are not terminating."""
    return [pod for pod in workload.pods if pod.node and not pod.is_terminating]


def is_gang(workload: WorkloadView) -> bool:
    """Whether the workload's pods must be in one node pool. A topology rule implies this, since
    domains are within a pool."""
    return least_pods(workload) > 1 or has_topology(workload)


def groups_of(tree: GroupView) -> Iterator[GroupView]:
    """The group and all its descendants."""
    yield tree
    for child in tree.children:
        yield from groups_of(child)


@lru_cache(maxsize=4096)
def leaves_below(tree: GroupView) -> frozenset[str]:
    """The names of the leaves of the group; its own name if it is a leaf."""
    return frozenset(group.name for group in groups_of(tree) if not group.children)


@lru_cache(maxsize=4096)
def has_rule(tree: GroupView) -> bool:
    """Whether the group or any of its descendants has a topology rule."""
    return any(group.topology is not None for group in groups_of(tree))


@lru_cache(maxsize=4096)
def _least(group: GroupView) -> int:
    counts = sorted(_least(child) for child in group.children if child.min_member)
    return max(1, group.min_member, sum(counts[: group.min_groups or 0]))


def _flat_chunks(n_pods: int, waiting: Sequence[PodView]) -> Iterator[Sequence[PodView]]:
    """The first `n_pods`; if that is one, then the first pod of each shape that may pass it."""
    if len(waiting) < n_pods:
        return
    yield waiting[:n_pods]
    if n_pods == 1:
        yield from ((pod,) for pod in _pods_that_may_pass(waiting))


def _pods_that_may_pass(waiting: Sequence[PodView]) -> Iterator[PodView]:
    first = waiting[0]
    seen = {(first.demand, id(first.constraints))}
    for pod in waiting:
        if pod.order != first.order:
            return
        shape = pod.demand, id(pod.constraints)
        if shape not in seen:
            seen.add(shape)
            yield pod


@dataclass(slots=True, eq=False)
class _Group:
    """A group with its `live` and `waiting` pods, without those of its descendants.

    `n_held` and `n_waiting` count the whole subtree.
    """

    view: GroupView
    parent: "_Group | None" = None
    children: "list[_Group]" = field(default_factory=list)
    live: list[PodView] = field(default_factory=list)
    waiting: list[PodView] = field(default_factory=list)
    n_held: int = 0
    n_waiting: int = 0

    def path(self) -> "Iterator[_Group]":
        """The group and its ancestors, up to the root."""
        group: _Group | None = self
        while group is not None:
            yield group
            group = group.parent

    def find(self, name: str) -> "_Group":
        """The leaf of that name; the group itself if there is none."""
        for child in self.children:
            found = child.find(name)
            if found is not child or found.view.name == name:
                return found
        return self

    def optional(self) -> "Iterator[_Group]":
        """Empty descendants whose parents do not need all their children."""
        for child in self.children:
            if not child.n_held and (self.view.min_groups or 0) < len(self.children):
                yield child
            yield from child.optional()

    def leave_out(self) -> None:
        """Remove the group, with its waiting pods, from its parent."""
        assert self.parent is not None
        self.parent.children.remove(self)
        for group in self.parent.path():
            group.n_waiting -= self.n_waiting
        self.parent = None

    def kind(self) -> tuple[object, ...]:
        """A key for the requests of the group: if one group of a kind fits, the others do too."""
        rule = self.view.topology
        pods = tuple((pod.demand, id(pod.constraints)) for pod in self.waiting)
        return (rule, self.view.min_member, pods, *(child.kind() for child in self.children))

    def held(self) -> Iterator[PodView]:
        """The live pods of the subtree."""
        yield from self.live
        for child in self.children:
            yield from child.held()

    def can_fill(self) -> bool:
        """Whether enough pods wait for the group to reach its minimum."""
        usable = [child for child in self.children if child.can_fill()]
        if any(child.n_held and child not in usable for child in self.children):
            return False
        if len(usable) < (self.view.min_groups or 0):
            return False
        within = sum(c.n_held + c.n_waiting for c in usable) + len(self.live) + len(self.waiting)
        return within >= self.view.min_member

    def fill(self) -> list[PodView]:
        """Take the pods that the minimum lacks out of `waiting`; requires `can_fill`."""
        chosen: list[PodView] = []
        n_ready = 0
        for child in sorted(self.children, key=lambda child: child.n_held == 0):
            if not child.n_held and n_ready >= (self.view.min_groups or 0):
                break
            if child.can_fill():
                chosen += child.fill()
                n_ready += 1
        while self.n_held < self.view.min_member:
            unit = next(self.surplus(), None)
            if unit is None:
                break
            for pod in unit:
                self.find(pod.group)._take(pod)
            chosen += unit
        return chosen

    def surplus(self) -> "Iterator[Sequence[PodView]]":
        """Units that may start next once the minimum is reached, best first; takes no pods."""
        if self.waiting:
            yield from _flat_chunks(1, self.waiting)
        for child in sorted(self.children, key=_Group._fullness):
            if child.n_waiting == 0 or not child.can_fill():
                continue
            if child.n_held:
                yield from child.surplus()
            elif unit := child._first_unit():
                yield unit

    def _fullness(self) -> int:
        """The part of the minimum that is live, in millionths."""
        return self.n_held * 1_000_000 // max(1, self.view.min_member)

    def _first_unit(self) -> Sequence[PodView]:
        """The pods with which the group must start; takes no pods."""
        copy = _make_group(self.view, None)
        _add_pods(copy, (), list(self._all_waiting()))
        return copy.fill() or next(copy.surplus(), ())

    def _all_waiting(self) -> Iterator[PodView]:
        yield from self.waiting
        for child in self.children:
            yield from child._all_waiting()

    def _take(self, pod: PodView) -> None:
        self.waiting.remove(pod)
        self.live.append(pod)
        for group in self.path():
            group.n_held += 1
            group.n_waiting -= 1


def _group_tree(
    workload: WorkloadView, live: Iterable[PodView], waiting: Iterable[PodView]
) -> _Group:
    assert workload.tree is not None
    root = _make_group(workload.tree, None)
    _add_pods(root, live, waiting)
    return root


def _make_group(view: GroupView, parent: _Group | None) -> _Group:
    group = _Group(view, parent)
    group.children = [_make_group(child, group) for child in view.children]
    return group


def _add_pods(root: _Group, live: Iterable[PodView], waiting: Iterable[PodView]) -> None:
    """Add pods to the leaves they name; pods that name no leaf are added to the root."""
    leaves: dict[str, _Group] = {}
    for pods, is_live in ((live, True), (waiting, False)):
        for pod in pods:
            leaf = leaves.get(pod.group)
            if leaf is None:
                leaf = leaves[pod.group] = root.find(pod.group)
            (leaf.live if is_live else leaf.waiting).append(pod)
            for group in leaf.path():
                if is_live:
                    group.n_held += 1
                else:
                    group.n_waiting += 1
