"""A pod group's tree of sub-groups, built from its list, and whether pods meet its minimums.

Pods that have succeeded count towards the minimums of every group that contains them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from extender.api.kinds import GpuPodGroupSpec, SubGroup
from extender.api.reasons import Reason, Refused
from extender.state.model import GroupView, TopologyRule, WorkloadView


def tree_of(
    spec: GpuPodGroupSpec, rule: TopologyRule | None, rules: dict[str, TopologyRule]
) -> GroupView | Refused:
    """The tree with every minimum set; `rules` are the topology rules of sub-groups, by name.

    A group with sub-groups that states no minimum needs all of them.
    """
    below: dict[str, list[SubGroup]] = {}
    for group in spec.sub_groups:
        below.setdefault(group.parent, []).append(group)
    children = tuple(_view(group, below, rules) for group in below.get("", ()))
    if sum(_size(child) for child in children) < len(spec.sub_groups):
        lost = sorted({group.name for group in spec.sub_groups} - _names(children))
        detail = f"sub-groups {', '.join(lost)} are not below the group: check their parents"
        return Refused(Reason.INVALID_REQUEST, detail)
    if not children:
        return GroupView(name="", min_member=spec.min_member, topology=rule)
    stated = spec.min_member if spec.min_member > 1 else None
    return _with_minimums("", children, (stated, spec.min_sub_group), rule)


def collapsed(tree: GroupView) -> GroupView:
    """The tree without its root if that has a single child, unless both have a topology rule. The
    child then gets the larger of the two minimums."""
    if len(tree.children) != 1:
        return tree
    (child,) = tree.children
    if tree.topology is not None and child.topology is not None:
        return tree
    least = max(tree.min_member, child.min_member)
    return collapsed(replace(child, min_member=least, topology=tree.topology or child.topology))


def leaves_of(tree: GroupView) -> Iterable[str]:
    """Names of the groups that hold pods."""
    if not tree.children:
        yield tree.name
    for child in tree.children:
        yield from leaves_of(child)


def is_satisfied(tree: GroupView, groups: Iterable[str]) -> bool:
    """Whether pods of these leaves, one entry per pod, may run together.

    They may if there are none, or if the tree and every group with any pod meets its minimum. Pods
    that name no group of the tree count for the tree itself.
    """
    n_in = Counter(groups)
    n_pods = n_in.total()
    return n_pods == 0 or (n_pods >= tree.min_member and _are_children_satisfied(tree, n_in))


def is_below(tree: GroupView | None, min_member: int, groups: Sequence[str]) -> bool:
    """Whether there are pods, one entry of `groups` each, but fewer than must run together."""
    if not groups:
        return False
    if tree is None or not tree.children:
        return len(groups) < min_member
    return not is_satisfied(tree, groups)


def without_succeeded(view: WorkloadView, succeeded: Counter[str]) -> WorkloadView:
    """The workload with the minimums that its other pods still have to meet, at least one pod.

    `succeeded` counts pods by leaf; pods of unknown leaves count for the group itself.
    """
    tree, n_pods = view.tree, succeeded.total()
    min_member = max(1, view.min_member - n_pods)
    if tree is None:
        return replace(view, min_member=min_member)
    if not tree.children:
        return replace(view, min_member=min_member, tree=replace(tree, min_member=min_member))
    left = _less(tree, succeeded, n_pods)
    left = replace(left, min_member=max(1, left.min_member))
    return replace(view, min_member=left.min_member, tree=left)


def _less(group: GroupView, succeeded: Counter[str], n_pods: int) -> GroupView:
    """The group with its minimum reduced by its `n_pods` succeeded pods.

    A group with nothing left to require may be empty, and still counts as a satisfied child.
    """
    if not n_pods:
        return group
    if not group.children:
        return replace(group, min_member=max(0, group.min_member - n_pods))
    children = tuple(_less(child, succeeded, _count(child, succeeded)) for child in group.children)
    min_groups = group.min_groups or 0
    least = sum(sorted(child.min_member for child in children)[:min_groups])
    is_settled = sum(map(_may_be_empty, children)) >= min_groups
    return replace(
        group,
        min_member=max(least, group.min_member - n_pods),
        min_groups=None if is_settled else group.min_groups,
        children=children,
    )


def _view(
    group: SubGroup, below: dict[str, list[SubGroup]], rules: dict[str, TopologyRule]
) -> GroupView:
    children = tuple(_view(child, below, rules) for child in below.get(group.name, ()))
    rule = rules.get(group.name)
    if not children:
        return GroupView(name=group.name, min_member=group.min_member, topology=rule)
    stated = group.min_member if group.min_member > 1 else None
    return _with_minimums(group.name, children, (stated, group.min_sub_group), rule)


def _with_minimums(
    name: str,
    children: tuple[GroupView, ...],
    stated: tuple[int | None, int | None],
    rule: TopologyRule | None,
) -> GroupView:
    """A group with children; its minimum is at least that of the children it needs."""
    min_member, min_groups = stated
    if min_member is None and min_groups is None:
        min_groups = len(children)
    least = sorted(child.min_member for child in children)[: min_groups or 0]
    return GroupView(
        name=name,
        min_member=max(min_member or 0, sum(least)),
        min_groups=min_groups,
        topology=rule,
        children=children,
    )


def _are_children_satisfied(group: GroupView, n_in: Counter[str]) -> bool:
    n_ready = 0
    for child in group.children:
        n_pods = _count(child, n_in)
        if not n_pods:
            n_ready += _may_be_empty(child)
            continue
        if n_pods < child.min_member or not _are_children_satisfied(child, n_in):
            return False
        n_ready += 1
    return n_ready >= (group.min_groups or 0)


def _may_be_empty(group: GroupView) -> bool:
    return group.min_member == 0 and not group.min_groups


def _count(group: GroupView, n_in: Counter[str]) -> int:
    return n_in[group.name] + sum(_count(child, n_in) for child in group.children)


def _size(group: GroupView) -> int:
    return 1 + sum(_size(child) for child in group.children)


def _names(groups: Iterable[GroupView]) -> set[str]:
    found = set()
    for group in groups:
        found |= {group.name} | _names(group.children)
    return found
