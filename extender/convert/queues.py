"""Converts queues of other schedulers to GpuDepartments and GpuProjects.

Ballast has two levels. Of a deeper tree, the leaves become projects and the first level becomes
departments; levels in between are left out and reported.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from extender.api.names import DEFAULT_POOL
from extender.api.units import UnitError, parse_quantity
from extender.convert.fields import Converted, Lost, Manifest, new_object

#: The value for unlimited in KAI and Run:ai.
UNLIMITED: Final = -1
#: The department of projects without one.
LONE: Final = "default"
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9-]+")

Figures = dict[str, Any]


@dataclass(slots=True)
class Draft:
    """One queue: figures by node pool, each `gpu`, `cpu`, `memory` with quota, limit and weight.

    `name` may begin with a word and a colon, if two kinds of queues may have the same name.
    """

    name: str
    named: str
    parent: str = ""
    pools: dict[str, dict[str, Figures]] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    namespaces: list[str] = field(default_factory=list)
    default_pools: list[str] = field(default_factory=list)
    min_runtime: dict[str, int] = field(default_factory=dict)

    def set(self, pool: str, resource: str, **figures: Any) -> None:
        """Set the figures of one resource; None means not stated."""
        given = {key: value for key, value in figures.items() if value is not None}
        self.pools.setdefault(pool or DEFAULT_POOL, {}).setdefault(resource, {}).update(given)


def build(drafts: Iterable[Draft], into: Converted, *, has_namespaces: bool) -> None:
    """Convert the drafts to departments and projects. A project without a namespace is reported; if
    queues have no namespaces in the other scheduler (`has_namespaces` False), only once for all."""
    by_name = {draft.name: draft for draft in drafts}
    parents = {draft.parent for draft in by_name.values() if draft.parent}
    leaves = [draft for draft in by_name.values() if draft.name not in parents]
    departments: dict[str, list[Draft]] = {}
    for leaf in leaves:
        top, between = _top_of(leaf, by_name)
        departments.setdefault(top or LONE, []).append(leaf)
        for each in between:
            why = "Ballast has two levels, departments and projects: this level is left out"
            into.lost.append(Lost(by_name[each].named, "its level", why))
    for name, projects in departments.items():
        own = by_name.get(name) if name in parents else None
        if own is not None:
            into.lost += _weights_of(own)
        into.objects.append(_department(name, own, projects))
    for name, projects in departments.items():
        into.objects += (_project(leaf, name) for leaf in projects)
    into.lost = list(dict.fromkeys(into.lost))
    bare = [leaf for leaf in leaves if not leaf.namespaces]
    for leaf in bare if has_namespaces else ():
        into.lost.append(Lost(leaf.named, "namespaces", "none is known; list them in the project"))
    if bare and not has_namespaces:
        listed = ", ".join(sorted(leaf.name for leaf in bare))
        into.lost.append(
            Lost("projects", "namespaces",
                 f"queues have none, and projects need them: list them for {listed}")
        )  # fmt: skip


def _top_of(leaf: Draft, by_name: dict[str, Draft]) -> tuple[str, list[str]]:
    """The leaf's first level (empty: it has no ancestors), and the levels in between."""
    above: list[str] = []
    at = leaf.parent
    while at and at not in above:
        above.append(at)
        at = by_name[at].parent if at in by_name else ""
    if not above:
        return "", []
    return above[-1], [name for name in above[:-1] if name in by_name]


def _department(name: str, own: Draft | None, projects: list[Draft]) -> Manifest:
    pools = _pools(own) if own is not None and own.pools else _sums(projects)
    return new_object("GpuDepartment", _bare(name), {"nodePools": pools})


def _weights_of(department: Draft) -> Iterator[Lost]:
    """Remove the weights from the figures of a department, where they have no effect."""
    for pool, resources in department.pools.items():
        for resource, figures in resources.items():
            weight = figures.pop("overQuotaWeight", None)
            if weight is not None:
                where = f"{pool}.{resource}.overQuotaWeight={weight}"
                yield Lost(department.named, where, "the weight of a department is its quota")


def _project(draft: Draft, department: str) -> Manifest:
    spec: Manifest = {"department": _bare(department), "nodePools": _pools(draft)}
    if draft.namespaces:
        spec["namespaces"] = sorted(set(draft.namespaces))
    if draft.default_pools:
        spec["defaultNodePools"] = draft.default_pools
    if draft.min_runtime:
        spec["minRuntime"] = draft.min_runtime
    return new_object("GpuProject", _bare(draft.name), spec)


def _pools(draft: Draft) -> list[Manifest]:
    found = []
    for pool, resources in sorted(draft.pools.items()):
        listed: Manifest = {"name": dns_name(pool)}
        listed |= {name: figures for name, figures in resources.items() if figures}
        if rank := draft.ranks.get(pool):
            listed["rank"] = rank
        found.append(listed)
    return found


def _sums(projects: list[Draft]) -> list[Manifest]:
    """A department without figures gets the sum of its projects' quotas, so that it takes nothing
    from them; if one of them is unlimited, so is the department, by stating none."""
    quotas: dict[str, float] = {}
    for project in projects:
        for pool, resources in project.pools.items():
            quota = resources.get("gpu", {}).get("quota", 0)
            quotas[pool] = quotas.get(pool, 0) + float(quota)
    return [
        {"name": dns_name(pool), "gpu": {"quota": whole(total)}}
        for pool, total in sorted(quotas.items())
    ]


def whole(number: float) -> float | int:
    """3.0 -> 3, and at most three decimals: a milli-GPU is the smallest unit."""
    rounded = round(number, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def quantity_of(named: str, where: str, value: Any, *, is_gpus: bool) -> Any:
    """A Kubernetes quantity unchanged, but of GPUs as a number: "8" -> 8, "1k" -> 1000. None stays.
    A ValueError names the object, the field and what is accepted."""
    if value is None:
        return None
    milli = amount_of(named, where, value, 1000)
    return whole(milli / 1000) if is_gpus else value


def amount_of(named: str, where: str, value: Any, per_unit: int = 1) -> int:
    """A Kubernetes quantity times `per_unit`, rounded up. A ValueError names the object, the field
    and what is accepted."""
    text = value if isinstance(value, str | int | float) else str(value)
    try:
        return parse_quantity(text, per_unit)
    except UnitError as error:
        raise ValueError(f"{named}: {where}: {error}") from error


def number_of(named: str, where: str, value: Any) -> float | int | None:
    """A plain number, also if given as text. None stays. A ValueError names the object, the field
    and what is accepted."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{named}: {where}: {value!r} is not a number, such as 8 or 2.5")
    return int(number) if number.is_integer() else number


def amount(resource: str, value: float | None, unit: str = "M") -> Any:
    """A plain figure of KAI or Run:ai in Ballast's notation; None if it states nothing. CPU is in
    milli-CPU, memory in `unit`. CPU and memory of 0 have no effect there that Ballast would count.
    """
    if value is None or value == UNLIMITED:
        return None
    if resource == "gpu":
        return whole(value)
    if not value:
        return None
    return f"{int(value)}{'m' if resource == 'cpu' else unit}"


def whole_weight(
    named: str, where: str, value: float | None, into: Converted, most: int | None = None
) -> int | None:
    """A weight rounded up to a whole number, at most `most`; None if it is the default."""
    if value is None or value == 1:
        return None
    weight = max(0, math.ceil(value) if most is None else min(most, math.ceil(value)))
    if weight != value:
        bounds = "" if most is None else f" from 0 to {most}"
        why = f"weights are whole numbers{bounds}: {weight} here"
        into.lost.append(Lost(named, f"{where}={value}", why))
    return weight


def dns_name(name: str) -> str:
    """A valid Kubernetes name: lower-case letters, digits and '-'."""
    return _NOT_A_NAME.sub("-", name.lower()).strip("-")[:63] or "unnamed"


def _bare(name: str) -> str:
    return dns_name(name.rpartition(":")[2])


def add_namespaces(drafts: Iterable[Draft], used: Iterable[tuple[str, str]]) -> None:
    """Add each (queue, namespace) to its draft, where there is one."""
    by_name = {draft.name: draft for draft in drafts}
    for queue, space in used:
        if queue in by_name and space:
            by_name[queue].namespaces.append(space)


def namespaces_by(objects: Iterable[Manifest], keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(queue, namespace) for each label or annotation of an object or pod template with a queue."""
    for manifest in objects:
        space = (manifest.get("metadata") or {}).get("namespace", "")
        template = ((manifest.get("spec") or {}).get("template") or {}).get("metadata") or {}
        for meta in (manifest.get("metadata") or {}, template):
            words = (meta.get("annotations") or {}) | (meta.get("labels") or {})
            for key in keys:
                if space and words.get(key):
                    yield str(words[key]), space
