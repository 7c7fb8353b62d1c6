"""Run:ai: departments and projects, from its REST API or as CRDs, and its workloads.

Ballast reads the labels and annotations of pods (`runai/queue`, `gpu-fraction` and so on) as they
are.
"""

from collections.abc import Iterable
from typing import Final

from extender.api.names import NVIDIA_GPU
from extender.convert.fields import Converted, Fields, Lost, Manifest
from extender.convert.queues import (
    UNLIMITED,
    Draft,
    amount,
    build,
    dns_name,
    number_of,
    whole_weight,
)
from extender.convert.shapes import shaped
from extender.convert.templates import (
    adopted,
    cleaned,
    drop_scheduler,
    is_workload,
    note,
    template_of,
)

SCHEDULERS: Final = ("runai-scheduler", "kai-scheduler")
#: None, low, medium, high, lowest: as its API numbers over-quota priorities.
_MOST_WEIGHT: Final = 3
_UNITS: Final = {"mib": "Mi", "gib": "Gi", "mb": "M", "gb": "G"}

_WHY: Final = {
    "schedulingRules": "Ballast ends no work for its age or idleness",
    "nodeTypes": "nodeAffinity of the GpuProject says which labels a kind of work must use",
    "enforceRunaiScheduler": "Ballast takes every GPU pod of a project's namespace",
    "spec.interactiveJob": "Ballast ends no work for its age or idleness",
    "spec.trainingJob": "Ballast ends no work for its age or idleness",
    "spec.nodeAffinity": "nodeAffinity of the GpuProject says which labels a kind of work must use",
    "range": "priority within a department is rank here",
}
#: Informative fields of a project in the API.
_REPORTED: Final = (
    "id", "clusterId", "createdAt", "updatedAt", "deletedAt", "createdBy", "updatedBy", "phase",
    "description", "parent", "effective", "overtimeData", "quotaStatus", "totalResources", "status",
    "tenantId", "permittedResources", "resourcesStatus",
)  # fmt: skip


_FIGURES: Final = {
    "deserved": object, "limit": object, "overQuotaWeight": object, "units": str,
}  # fmt: skip
_OF_CLUSTER: Final = {
    "spec": {"department": str, "departmentName": str, "deservedGpus": object},
    "status": {"namespace": str},
}
_SHAPES: Final = {
    # Objects in the API's lists have no kind.
    "": {
        "name": str,
        "requestedNamespace": str,
        "status": {"namespace": str},
        "defaultNodePools": [str],
        "resources": [
            {"nodePool": {"name": str}, "gpu": _FIGURES, "cpu": _FIGURES, "memory": _FIGURES}
        ],
    },
    "Project": _OF_CLUSTER,
    "Department": _OF_CLUSTER,
}


def convert(objects: Iterable[Manifest]) -> Converted:
    """Convert all objects."""
    done, listed = Converted(), list(shaped(_flat(objects), _SHAPES))
    drafts: list[Draft] = []
    departments = {
        str(each.get("id")): str(each["name"]) for each in listed if _is_department(each)
    }
    for manifest in listed:
        kind = manifest.get("kind", "")
        if "resources" in manifest and "name" in manifest:
            drafts.append(_of_api(manifest, departments, done))
        elif kind in ("Project", "Department") and "run.ai" in str(manifest.get("apiVersion")):
            drafts.append(_of_object(manifest, done))
        elif kind == "RunaiJob":
            done.objects.append(_runai_job(manifest, done))
        elif is_workload(manifest):
            done.objects.append(adopted(manifest, SCHEDULERS))
        else:
            done.leave_out(manifest, "Run:ai")
    build(drafts, done, has_namespaces=True)
    return done


def _flat(objects: Iterable[Manifest]) -> Iterable[Manifest]:
    """The API answers `{"projects": [...]}` and `{"departments": [...]}`."""
    for manifest in objects:
        lists: list[list[Manifest]] = [
            manifest[key]
            for key in ("departments", "projects")
            if isinstance(manifest.get(key), list)
        ]
        if not lists:
            yield manifest
        for each in lists:
            yield from (one for one in each if isinstance(one, dict))


def _is_department(manifest: Manifest) -> bool:
    """Whether it is a department of the API: a project has a namespace, or a parent."""
    is_project = {"requestedNamespace", "parentId", "departmentId"} & manifest.keys() or (
        manifest.get("status") or {}
    ).get("namespace")
    return "resources" in manifest and "name" in manifest and not is_project


def _of_api(manifest: Manifest, departments: dict[str, str], done: Converted) -> Draft:
    is_department = _is_department(manifest)
    each = Fields(manifest, f"{'department' if is_department else 'project'} {manifest['name']}")
    each.take("name")
    for key in _REPORTED:
        each.take(key)
    above = str(each.take("parentId") or each.take("departmentId") or "")
    draft = Draft(_key(manifest["name"], is_department=is_department), each.named)
    if not is_department and above:
        draft.parent = _key(departments.get(above, above), is_department=True)
    space = each.take("requestedNamespace") or (manifest.get("status") or {}).get("namespace")
    if not is_department:
        # Run:ai's default.
        draft.namespaces = [space or f"runai-{manifest['name']}"]
    draft.default_pools = [dns_name(pool) for pool in each.take("defaultNodePools") or ()]
    for figures in each.take("resources") or ():
        _figures(draft, figures, done)
    done.lost += each.lost(_WHY)
    return draft


def _key(name: str, *, is_department: bool) -> str:
    return f"department:{name}" if is_department else name


def _figures(draft: Draft, manifest: Manifest, done: Converted) -> None:
    pool = (manifest.get("nodePool") or {}).get("name", "default")
    for resource in ("gpu", "cpu", "memory"):
        given = manifest.get(resource) or {}
        quota, limit, weight = (
            number_of(draft.named, f"{pool}.{resource}.{key}", given.get(key))
            for key in ("deserved", "limit", "overQuotaWeight")
        )
        unit = _UNITS.get(given.get("units", "").lower(), "Mi")
        where = f"{pool}.{resource}.overQuotaWeight"
        if resource == "gpu" and quota == UNLIMITED:
            why = "an unlimited quota would cover every GPU; state a number"
            done.lost.append(Lost(draft.named, f"{pool}.gpu.deserved={quota}", why))
            quota = 0
        draft.set(
            pool,
            resource,
            quota=amount(resource, quota, unit),
            limit=amount(resource, limit, unit),
            overQuotaWeight=whole_weight(draft.named, where, weight, done, most=_MOST_WEIGHT),
        )
    if rank := manifest.get("priority"):
        done.lost.append(Lost(draft.named, f"{pool}.priority={rank}", _WHY["range"]))


def _of_object(manifest: Manifest, done: Converted) -> Draft:
    """A Project or Department of older clusters."""
    each = Fields(manifest)
    is_department = manifest["kind"] == "Department"
    draft = Draft(_key(each.name, is_department=is_department), each.named)
    if above := each.take("spec.department") or each.take("spec.departmentName"):
        draft.parent = _key(str(above), is_department=True)
    if not is_department:
        draft.namespaces = [(manifest.get("status") or {}).get("namespace") or f"runai-{each.name}"]
    quota, limit = (
        number_of(each.named, f"spec.{key}", each.take(f"spec.{key}"))
        for key in ("deservedGpus", "maxAllowedGpus")
    )
    draft.set(
        "",
        "gpu",
        quota=amount("gpu", quota or 0),
        limit=amount("gpu", limit),
    )
    done.lost += each.lost(_WHY)
    return draft


def _runai_job(manifest: Manifest, done: Converted) -> Manifest:
    """A RunaiJob has a Job's spec; fractions are in annotations that Ballast reads."""
    made = cleaned(manifest)
    made["apiVersion"], made["kind"] = "batch/v1", "Job"
    template = template_of(made)
    drop_scheduler(template, SCHEDULERS)
    for key in ("gpu-fraction", "gpu-memory"):
        value = (made["metadata"].get("annotations") or {}).get(key)
        if value:
            note(template, key, str(value))
    if NVIDIA_GPU not in str(template) and "gpu-" not in str(template):
        done.lost.append(Lost(Fields(manifest).named, "GPUs", "its pods ask for none"))
    return made
