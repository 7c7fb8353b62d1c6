"""A job's tree of groups: what a file leaves out filled in, and whether what runs satisfies it.

A group that says neither `min` nor `minGroups` needs all of its tasks, or all of its children.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.scenario.errors import ScenarioError
from extender.scenario.model import Group, Job
from extender.state.model import GroupView, TopologyRule


def tree_of(job: Job, where: str) -> GroupView:
    """The job's groups with every minimum stated; raises ScenarioError where names don't match."""
    sizes: Counter[str] = Counter()
    for task in job.tasks:
        sizes[task.group] += task.n
    tree = _view(job.group, sizes, is_root=True)
    leaves = list(_leaves(tree))
    if len(set(leaves)) < len(leaves):
        raise ScenarioError(f"{where}: two of its groups have the same name")
    for task in job.tasks:
        if tree.children and task.group not in leaves:
            known = ", ".join(sorted(leaves))
            raise ScenarioError(f"{where}/{task.name}: group {task.group!r} is none of {known}")
    return tree


def is_plain(tree: GroupView) -> bool:
    """Whether the minimum says all there is to say."""
    return not tree.children and tree.topology is None


def is_satisfied(tree: GroupView, n_in: Mapping[str, int]) -> bool:
    """Whether so many tasks per leaf (by its name) may run: nothing, or the minima of all groups
    that hold something and of those these need."""
    return _count(tree, n_in) == 0 or _holds(tree, n_in)


def count_in(tree: GroupView, groups: Iterable[str]) -> Counter[str]:
    """Tasks per leaf, for `is_satisfied`; without children all belong to the root."""
    return Counter(groups if tree.children else ("" for _ in groups))


def _view(group: Group, sizes: Mapping[str, int], *, is_root: bool = False) -> GroupView:
    children = tuple(_view(child, sizes) for child in group.children)
    min_member, min_groups = group.min, group.min_groups
    if children:
        if min_member is None and min_groups is None:
            min_groups = len(children)
        least = sorted(child.min_member for child in children)[: min_groups or 0]
        min_member = max(min_member or 0, sum(least))
    elif min_member is None:
        min_member = sum(sizes.values()) if is_root else sizes.get(group.name, 0)
    near = group.topology
    rule = TopologyRule(near.name, near.required, near.preferred) if near else None
    name = "" if is_root else group.name
    return GroupView(
        name=name,
        min_member=min_member,
        min_groups=min_groups,
        topology=rule,
        children=children,
    )


def _leaves(tree: GroupView) -> Iterable[str]:
    if not tree.children:
        yield tree.name
    for child in tree.children:
        yield from _leaves(child)


def _count(tree: GroupView, n_in: Mapping[str, int]) -> int:
    if not tree.children:
        return n_in.get(tree.name, 0)
    return sum(_count(child, n_in) for child in tree.children)


def _holds(tree: GroupView, n_in: Mapping[str, int]) -> bool:
    if _count(tree, n_in) < tree.min_member:
        return False
    held = [child for child in tree.children if _count(child, n_in)]
    empty = [child for child in tree.children if child not in held and _may_be_empty(child)]
    if len(held) + len(empty) < (tree.min_groups or 0):
        return False
    return all(_holds(child, n_in) for child in held)


def _may_be_empty(tree: GroupView) -> bool:
    """Whether it asks for nothing, so that it is satisfied by nothing."""
    return not tree.min_member and not tree.min_groups
