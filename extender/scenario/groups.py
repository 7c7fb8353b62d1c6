"""A job's tree of groups, with defaults filled in.

A group without `min` and `minGroups` needs all of its tasks, or all of its children.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.scenario.errors import ScenarioError
from extender.scenario.model.jobs import Group, Job
from extender.state.model import GroupView, TopologyRule
from extender.state.trees import collapsed


def tree_of(job: Job, where: str) -> GroupView:
    """The job's groups with every minimum stated; raises ScenarioError if names don't match."""
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
    return collapsed(tree)


def is_plain(tree: GroupView) -> bool:
    """Whether the minimum alone describes the tree."""
    return not tree.children and tree.topology is None


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
    near, rule = group.topology, None
    if near is not None and (near.required or near.preferred):
        rule = TopologyRule(near.name, near.required, near.preferred)
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
