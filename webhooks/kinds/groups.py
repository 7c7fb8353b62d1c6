"""GpuPodGroup: the sub-groups must be satisfiable, and the project must allow the fields."""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.api import names
from extender.api.kinds import GpuPodGroup, SubGroup, TopologyConstraint
from extender.api.names import DNS_LABEL
from extender.api.reasons import Refused
from webhooks.catalog import Catalog
from webhooks.kinds.finding import FieldFinding, check_name, listed, meant, odd, wrong
from webhooks.projects import ProjectIndex
from webhooks.validate import class_refusal

_TREE: Final = "subGroups: [{name: leader, minMember: 1}, {name: workers, minMember: 8}]"


def check_group(group: GpuPodGroup, projects: ProjectIndex) -> Iterator[FieldFinding]:
    """Findings about a GpuPodGroup; its namespace has to be filled in."""
    spec = group.spec
    yield from check_name(group.metadata.name, "pods", "train-7")
    yield from _check_tree(group)
    yield from _check_times(group)
    yield from _check_owner(group, projects)
    catalog = projects.catalog
    exist = {names.DEFAULT_POOL, *catalog.pools}
    unknown = [pool for pool in spec.node_pools if pool not in exist]
    if unknown:
        yield odd(
            "spec.nodePools",
            f"there is no node pool {listed(unknown)} (yet): it waits{meant(unknown[0], exist)}",
        )
    nearness = {"spec.topologyConstraint": spec.topology_constraint} | {
        f"spec.subGroups[{each.name}].topologyConstraint": each.topology_constraint
        for each in spec.sub_groups
    }
    for field, constraint in nearness.items():
        yield from _check_nearness(field, constraint, catalog)


def _check_tree(group: GpuPodGroup) -> Iterator[FieldFinding]:
    sub_groups = group.spec.sub_groups
    parents = {each.name: each.parent for each in sub_groups}
    for each in sub_groups:
        if not DNS_LABEL.fullmatch(each.name):
            yield wrong(
                f"spec.subGroups[{each.name!r:.80}].name",
                "pods cannot name it in a label",
                "use at most 63 characters of a-z, 0-9 and -",
                "workers",
            )
    looping = [each.name for each in sub_groups if _is_below_itself(each, parents)]
    if looping:
        yield wrong(
            "spec.subGroups",
            f"{listed(looping)} form a cycle of parents",
            "let parent name a sub-group nearer to the group, or nothing",
            _TREE,
        )
    wanted: dict[str, int | None] = {"": group.spec.min_sub_group}
    wanted |= {each.name: each.min_sub_group for each in sub_groups}
    for name, least in wanted.items():
        n_children = sum(parent == name for parent in parents.values())
        if least is not None and least > n_children:
            yield wrong(
                f"spec.subGroups[{name}].minSubGroup" if name else "spec.minSubGroup",
                f"{least} is more than the {n_children} there are, so it could never start",
                "give at most that",
                f"minSubGroup: {n_children}",
            )


def _is_below_itself(start: SubGroup, parents: Mapping[str, str]) -> bool:
    at = start.parent
    for _ in parents:
        if at == start.name:
            return True
        at = parents.get(at, "")
    return False


def _check_times(group: GpuPodGroup) -> Iterator[FieldFinding]:
    spec = group.spec
    if spec.expected_run_seconds is not None and spec.expected_run_seconds <= 0:
        yield wrong(
            "spec.expectedRunSeconds",
            f"{spec.expected_run_seconds} s is not a run time",
            "give a whole number from 1, or leave it out",
            "7200",
        )


def _check_owner(group: GpuPodGroup, projects: ProjectIndex) -> Iterator[FieldFinding]:
    """Checks the project and the priority class of the group."""
    spec, namespace = group.spec, group.metadata.namespace
    if spec.project and spec.project not in projects.catalog.projects:
        yield odd("spec.project", f"{spec.project!r:.80} does not exist (yet)")
        return
    found = projects.project_of(namespace, spec.project)
    if isinstance(found, Refused):
        if spec.project:
            yield wrong(
                "spec.project", found.detail, "leave it out or name one that lists it", "vision"
            )
        else:
            yield odd("spec.project", found.detail)
    elif found is None:
        yield odd("metadata.namespace", f"{namespace} belongs to no project: its pods never run")
    elif spec.priority_class_name:
        why = class_refusal(spec.priority_class_name, found, projects.catalog.classes)
        if why:
            yield FieldFinding(True, f"spec.{why}")
        elif spec.priority_class_name not in projects.catalog.class_names:
            yield odd(
                "spec.priorityClassName",
                f"there is no priority class {spec.priority_class_name!r:.80} (yet): until it"
                " exists, the group has the highest priority of its pods",
            )


def _check_nearness(
    field: str, constraint: TopologyConstraint | None, catalog: Catalog
) -> Iterator[FieldFinding]:
    if constraint is None:
        return
    for label in (constraint.required_topology_level, constraint.preferred_topology_level):
        having = [
            name
            for name, each in catalog.topologies.items()
            if any(level.node_label == label for level in each.spec.levels)
        ]
        if label and not having:
            yield odd(field, f"no GpuTopology has the level {label!r:.80} (yet): it waits")
        elif label and len(having) > 1 and not constraint.topology:
            yield odd(field, f"{listed(having)} have the level {label}: say which by topology")
        elif label and constraint.topology and constraint.topology not in having:
            yield odd(field, f"topology {constraint.topology!r:.80} has no level {label} (yet)")
