"""GpuDepartment and GpuProject: their figures must be satisfiable, and the names must exist.

A quota is a guarantee, and a limit is an upper bound. If the limit of a department is below the
quota of one of its projects, the project can never use its whole quota. If the quota of the
department is below it, the project gets the difference only while other projects do not use it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from extender.api import names
from extender.api.classes import SYSTEM_CLASS_PREFIX
from extender.api.kinds import GpuDepartment, GpuFigures, GpuProject, HostFigures, PoolFigures
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    count_gpus,
    format_gpus,
    parse_cpu,
    parse_gpus,
    parse_memory,
)
from webhooks.catalog import Catalog
from webhooks.kinds.finding import FieldFinding, check_labels, check_name, listed, meant, odd, wrong
from webhooks.mutate import USUAL_KIND

_PARSERS: Final = {"gpu": parse_gpus, "cpu": parse_cpu, "memory": parse_memory}


_GIB: Final = 2**30
#: Hours in a month of 30 days.
_HOURS_OF_MONTH: Final = 720


class Bounds(NamedTuple):
    """Quota and limit of one resource in one node pool; None where the queue sets none."""

    quota: int | None
    limit: int | None


#: The figures of a queue by (node pool, resource): parsed bounds, and the figures as written.
Stated = dict[tuple[str, str], tuple[Bounds, GpuFigures | HostFigures]]


def check_department(department: GpuDepartment, known: Catalog) -> Iterator[FieldFinding]:
    """Findings about a GpuDepartment."""
    name = department.metadata.name
    yield from check_name(name, "pods", "research")
    yield from _check_pools(department.spec.node_pools, known)
    for pool in department.spec.node_pools:
        if pool.gpu.gpu_hours_per_month is not None:
            field = f"spec.nodePools[{pool.name}].gpu.gpuHoursPerMonth"
            yield odd(field, "has no effect, only projects have budgets")
    own = _read_figures(department.spec.node_pools)
    members = [each for each in known.projects.values() if each.spec.department == name]
    for project in sorted(members, key=lambda each: each.metadata.name):
        for key, (theirs, written) in _read_figures(project.spec.node_pools).items():
            bounds = own.get(key, (Bounds(0, None), written))[0]
            if _exceeds(theirs.quota, bounds.limit):
                yield wrong(
                    f"spec.nodePools[{key[0]}].{key[1]}.limit",
                    f"is below the quota {written.quota} of project {project.metadata.name}",
                    "lower that first, or set a limit of at least as much",
                    f"limit: {written.quota}",
                )
    yield from _check_sum(department, members)


def check_department_gone(department: GpuDepartment, known: Catalog) -> Iterator[FieldFinding]:
    """Warnings about the deletion of a GpuDepartment."""
    name = department.metadata.name
    left = [n for n, each in known.projects.items() if each.spec.department == name]
    if left:
        yield odd(
            "metadata.name",
            f"projects {listed(left)} belong to department {name}: until they name another or it"
            " is created again, they are treated as members of a department without quota",
        )


def check_project(project: GpuProject, known: Catalog) -> Iterator[FieldFinding]:
    """Findings about a GpuProject."""
    spec, name = project.spec, project.metadata.name
    yield from check_name(name, "pods", "vision")
    yield from _check_namespaces(project, known)
    yield from _check_pools(spec.node_pools, known)
    if not spec.node_pools:
        yield odd(
            "spec.nodePools", "is empty: the project has no quota, so all its work can be evicted"
        )
    yield from _check_budgets(spec.node_pools)
    yield from _check_defaults(project, known)
    yield from _check_classes(spec.allowed_priority_classes, known)
    for ix, selector in enumerate(spec.node_affinity):
        field = f"spec.nodeAffinity[{ix}].matchLabels"
        yield from check_labels(field, selector.match_labels, "nvidia.com/gpu.product: A100")
        if not selector.match_labels:
            yield odd(field, f"has no label, so {selector.workload_kind} work may use every node")
    department = known.departments.get(spec.department)
    if department is None:
        yield odd(
            "spec.department",
            f"{spec.department!r:.80} does not exist (yet): until it does, the project is treated"
            " as a member of a department without quota"
            f"{meant(spec.department, known.departments)}",
        )
        return
    yield from _check_within(project, department)
    others = [
        each
        for each in known.projects.values()
        if each.spec.department == spec.department and each.metadata.name != name
    ]
    yield from _check_sum(department, [*others, project])


def check_removed_namespaces(before: GpuProject, after: GpuProject) -> Iterator[FieldFinding]:
    """Warnings about namespaces that an update removes from the GpuProject."""
    left = sorted(set(before.spec.namespaces) - set(after.spec.namespaces))
    if left:
        yield odd(
            "spec.namespaces",
            f"until another GpuProject lists {listed(left)}, pods that run there keep their GPUs,"
            " count against no quota and are not evicted for other work, and pods that wait do not"
            " start; `kubectl ballast top pods -A` shows them without a project",
        )


def _read_figures(pools: Sequence[PoolFigures]) -> Stated:
    """The parsed figures; invalid ones are left out, because the CRD refuses them."""
    found: Stated = {}
    for pool in pools:
        for resource, parse in _PARSERS.items():
            written: GpuFigures | HostFigures = getattr(pool, resource)
            try:
                quota = None if written.quota is None else parse(written.quota)
                limit = None if written.limit is None else parse(written.limit)
            except UnitError:
                continue
            found[pool.name, resource] = Bounds(quota, limit), written
    return found


def _exceeds(amount: int | None, bound: int | None) -> bool:
    return amount is not None and bound is not None and amount > bound


def _check_pools(pools: Sequence[PoolFigures], known: Catalog) -> Iterator[FieldFinding]:
    """Warns about node pools that do not exist, and about figures that never allocate a GPU."""
    exist = {names.DEFAULT_POOL, *known.pools}
    unknown = [pool.name for pool in pools if pool.name not in exist]
    if unknown:
        yield odd(
            "spec.nodePools",
            f"there is no node pool {listed(unknown)} (yet): its quotas have no effect"
            f"{meant(unknown[0], exist)}",
        )
    for (pool, resource), (bounds, written) in _read_figures(pools).items():
        at = f"spec.nodePools[{pool}].{resource}"
        if bounds.limit == 0 and resource == "gpu":
            yield odd(f"{at}.limit", "is 0: the queue gets no GPU of this pool")
        elif written.over_quota_weight == 0 and bounds.quota == 0:
            yield odd(
                at, "has no quota and overQuotaWeight 0: it gets what no other queue asks for"
            )
        if resource == "memory":
            yield from _check_unit(at, written)


def _check_unit(at: str, written: GpuFigures | HostFigures) -> Iterator[FieldFinding]:
    """Warns about memory in bytes that was probably meant in GiB."""
    for field, value in (("quota", written.quota), ("limit", written.limit)):
        text = str(value)
        if text.isdigit() and 0 < int(text) < _GIB:
            yield odd(f"{at}.{field}", f"is {text} bytes: for {text} GiB write {text}Gi")


def _check_budgets(pools: Sequence[PoolFigures]) -> Iterator[FieldFinding]:
    """Warns about budgets that the quota alone uses up: a budget never limits the quota."""
    for pool in pools:
        budget, bounds = pool.gpu.gpu_hours_per_month, _read_figures([pool]).get((pool.name, "gpu"))
        if budget is None or bounds is None:
            continue
        of_quota = (bounds[0].quota or 0) * _HOURS_OF_MONTH // MILLI_PER_GPU
        field = f"spec.nodePools[{pool.name}].gpu.gpuHoursPerMonth"
        if not budget:
            yield odd(field, "is 0: the project never borrows GPUs of this pool")
        elif budget < of_quota:
            yield odd(
                field,
                f"is below the {of_quota} GPU-hours that the quota is in {_HOURS_OF_MONTH} hours: a"
                " project that uses all of its quota ends the month above its budget, which bounds"
                " only what it borrows",
            )


def _check_namespaces(project: GpuProject, known: Catalog) -> Iterator[FieldFinding]:
    spec = project.spec
    ours = [each for each in names.SYSTEM_NAMESPACES if each in spec.namespaces]
    if ours:
        yield wrong(
            "spec.namespaces",
            f"{listed(ours)} never belongs to a project: the cluster's own pods must start without"
            " Ballast",
            "list namespaces of users",
            "[vision]",
        )
    for namespace in spec.namespaces:
        others = [
            each.metadata.name
            for each in known.projects.values()
            if namespace in each.spec.namespaces and each.metadata.name != project.metadata.name
        ]
        if others:
            yield wrong(
                "spec.namespaces",
                f"{namespace} belongs to GpuProject {listed(others)} already, and a namespace"
                " belongs to one project",
                "use other namespaces, or remove it there first",
            )
    if not spec.namespaces:
        yield odd("spec.namespaces", "is empty: no pod can belong to the project")


def _check_defaults(project: GpuProject, known: Catalog) -> Iterator[FieldFinding]:
    exist = {names.DEFAULT_POOL, *known.pools}
    unknown = [each for each in project.spec.default_node_pools if each not in exist]
    if unknown:
        yield odd(
            "spec.defaultNodePools",
            f"there is no node pool {listed(unknown)} (yet): skipped{meant(unknown[0], exist)}",
        )
    stated = {pool.name for pool in project.spec.node_pools}
    bare = [each for each in project.spec.default_node_pools if each not in stated]
    if bare:
        yield odd(
            "spec.defaultNodePools",
            f"the project has no quota in {listed(bare)}: its work there can be evicted at any"
            " time",
        )


def _check_classes(allowed: Sequence[str], known: Catalog) -> Iterator[FieldFinding]:
    field, usual = "spec.allowedPriorityClasses", names.CLASS_OF_KIND[USUAL_KIND]
    above = [each for each in allowed if each.startswith(SYSTEM_CLASS_PREFIX)]
    if above:
        yield odd(
            field, f"{listed(above)} outranks all other work of the cluster, its own pods included"
        )
    unknown = [each for each in allowed if each not in {*known.class_names, *above}]
    if unknown:
        yield odd(field, f"there is no priority class {listed(unknown)} (yet)")
    if allowed and usual not in map(names.class_of, allowed):
        yield odd(
            field,
            f"a pod without a class and a kind gets {usual}, which is not listed: it is refused",
        )


def _check_within(project: GpuProject, department: GpuDepartment) -> Iterator[FieldFinding]:
    """Checks the project's figures against its department's."""
    above = _read_figures(department.spec.node_pools)
    of = department.metadata.name
    for (pool, resource), (bounds, written) in _read_figures(project.spec.node_pools).items():
        at = f"spec.nodePools[{pool}].{resource}"
        theirs, limits = above.get((pool, resource), (Bounds(None, None), written))
        if _exceeds(bounds.quota, theirs.limit):
            yield wrong(
                f"{at}.quota",
                f"{written.quota} cannot be reached: the limit of department {of} is"
                f" {limits.limit}",
                "give at most that, or raise the department's limit first",
                f"quota: {limits.limit}",
            )
        elif bounds.quota and resource == "gpu" and bounds.quota > (theirs.quota or 0):
            yield odd(
                f"{at}.quota",
                f"{written.quota} is above the quota of department {of},"
                f" {limits.quota if theirs.quota else 0}: the project gets the difference only"
                " while other departments do not use it",
            )


def _check_sum(department: GpuDepartment, projects: Sequence[GpuProject]) -> Iterator[FieldFinding]:
    """Checks the sum of the projects' GPU quotas against the department's, for each node pool."""
    own = _read_figures(department.spec.node_pools)
    total: dict[str, int] = {}
    for project in projects:
        for (pool, resource), (bounds, _) in _read_figures(project.spec.node_pools).items():
            if resource == "gpu":
                total[pool] = total.get(pool, 0) + (bounds.quota or 0)
    for pool, milli in sorted(total.items()):
        stated = own.get((pool, "gpu"))
        quota = (stated[0].quota or 0) if stated else 0
        if milli > quota and len(projects) > 1:
            yield odd(
                f"spec.nodePools[{pool}].gpu.quota",
                f"the projects of department {department.metadata.name} have {count_gpus(milli)}"
                f" of quota together, it has {format_gpus(quota)}: they can't all have theirs at"
                " once",
            )
