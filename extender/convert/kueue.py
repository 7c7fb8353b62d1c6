"""Kueue: ClusterQueue, Cohort, ResourceFlavor, LocalQueue, Topology, and Jobs that it suspends.

A ClusterQueue becomes a project, its cohort the department, a flavor a node pool, and the
namespaces of its LocalQueues those of the project.
"""

from collections.abc import Iterable
from typing import Any, Final

from extender.api.aliases import TOPOLOGY_PREFERRED_KEYS, TOPOLOGY_REQUIRED_KEYS
from extender.api.names import ANNOTATION_MIN_MEMBER, DEFAULT_POOL, LABEL_POD_GROUP, NVIDIA_GPU
from extender.api.units import parse_quantity
from extender.convert.fields import (
    Converted,
    Fields,
    Lost,
    Manifest,
    Served,
    group_of,
    new_object,
    topology_of,
)
from extender.convert.queues import Draft, build, dns_name, quantity_of, whole
from extender.convert.shapes import TOPOLOGY, shaped
from extender.convert.templates import cleaned, is_workload, label, note, template_of, unread

_GROUP: Final = "kueue.x-k8s.io"
LIVE: Final = tuple(
    Served(_GROUP, plural, ("v1beta2", "v1beta1"))
    for plural in (
        "clusterqueues",
        "cohorts",
        "resourceflavors",
        "localqueues",
        "topologies",
        "workloadpriorityclasses",
    )
)
#: Ballast's name of each resource. Ballast does not count others.
_RESOURCES: Final = {NVIDIA_GPU: "gpu", "cpu": "cpu", "memory": "memory"}
_QUEUE_NAME: Final = f"{_GROUP}/queue-name"

_WHY: Final = {
    "spec.admissionChecks": "Ballast has no admission checks",
    "spec.flavorFungibility": "node pools are tried in the order that the project prefers them",
    "spec.namespaceSelector": "a project lists its namespaces by name",
    "spec.queueingStrategy": "jobOrder of the GpuNodePool says whether later work may pass",
    "spec.preemption": "Ballast's rules are fixed: reclaim by share, preemption by priority",
    "spec.stopPolicy": "kubectl ballast hold keeps work waiting",
    "spec.admissionScope": "past use is weighed by timeBasedFairShare of the GpuNodePool",
    "spec.nodeTaints": "taint the nodes: pods with GPUs get the toleration of nvidia.com/gpu only",
    "spec.tolerations": "Ballast adds the one of nvidia.com/gpu to pods: state others in the pods",
    "spec.topologyName": "pods ask for nearness by annotation or GpuPodGroup",
}


_RESOURCE: Final = {
    "name!": str, "nominalQuota!": object, "borrowingLimit": object, "lendingLimit": object,
}  # fmt: skip
_QUEUE: Final = {
    "spec": {
        "cohort": str,
        "cohortName": str,
        "parent": str,
        "parentName": str,
        "fairSharing": {"weight": object},
        "resourceGroups": [{"flavors": [{"name!": str, "resources": [_RESOURCE]}]}],
    }
}
_SHAPES: Final = {
    "ClusterQueue": _QUEUE,
    "Cohort": _QUEUE,
    "ResourceFlavor": {"spec": {"nodeLabels": dict}},
    "LocalQueue": {"spec": {"clusterQueue": str}},
    "Topology": TOPOLOGY,
    "WorkloadPriorityClass": {"value": int, "description": str},
}


def convert(objects: Iterable[Manifest]) -> Converted:
    """Convert all objects."""
    done = Converted()
    drafts: dict[str, Draft] = {}
    local: list[tuple[str, str]] = []
    for manifest in shaped(objects, _SHAPES):
        kind = manifest.get("kind") if group_of(manifest) == _GROUP else ""
        if kind in ("ClusterQueue", "Cohort"):
            draft = _queue(manifest, done, is_cohort=kind == "Cohort")
            drafts[draft.name] = draft
        elif kind == "ResourceFlavor":
            _flavor(manifest, done)
        elif kind == "LocalQueue":
            local.append(_local(manifest, done))
        elif kind == "Topology":
            done.objects.append(topology_of(manifest, _WHY, done))
        elif kind == "WorkloadPriorityClass":
            _priority(manifest, done)
        elif is_workload(manifest):
            done.objects.append(_workload(manifest, done))
        else:
            done.leave_out(manifest, "Kueue")
    _add_namespaces(local, drafts, done)
    _limit_cohorts(drafts)
    build(drafts.values(), done, has_namespaces=True)
    return done


def _add_namespaces(
    local: list[tuple[str, str]], drafts: dict[str, Draft], done: Converted
) -> None:
    """A namespace belongs to one project: that of its first LocalQueue."""
    owner: dict[str, str] = {}
    for queue, space in local:
        if queue not in drafts or not space:
            continue
        first = owner.setdefault(space, queue)
        if first == queue:
            drafts[queue].namespaces.append(space)
        else:
            why = f"a namespace has one project, and {first} has it: split the namespace"
            done.lost.append(Lost(drafts[queue].named, f"namespace {space}", why))


def _limit_cohorts(drafts: dict[str, Draft]) -> None:
    """Queues of a cohort can use at most the sum of their GPUs: that is the department's limit,
    unless a cohort of the tree states its own figures."""
    sums: dict[str, dict[str, float]] = {}
    stated: set[str] = set()
    for draft in drafts.values():
        top = draft.name
        seen = {top}
        while (above := drafts[top].parent if top in drafts else "") and above not in seen:
            top = above
            seen.add(top)
        if draft.name.startswith("cohort:"):
            stated |= {top} if draft.pools else set()
        elif top != draft.name:
            of_pool = sums.setdefault(top, {})
            for pool, figures in draft.pools.items():
                of_pool[pool] = of_pool.get(pool, 0) + figures.get("gpu", {}).get("quota", 0)
    for top, of_pool in sums.items():
        if top not in stated:
            own = drafts.setdefault(top, Draft(top, f"Cohort {top.removeprefix('cohort:')}"))
            for pool, total in of_pool.items():
                own.set(pool, "gpu", quota=whole(total), limit=whole(total))


def _queue(manifest: Manifest, done: Converted, *, is_cohort: bool) -> Draft:
    each = Fields(manifest)
    above = "parent" if is_cohort else "cohort"
    found = [each.take(f"spec.{key}", "") for key in (f"{above}Name", above)]
    # A cohort and a ClusterQueue may have the same name.
    name = f"cohort:{each.name}" if is_cohort else each.name
    parent = next((f"cohort:{text}" for text in found if text), "")
    draft = Draft(name, each.named, parent=parent)
    where = "spec.fairSharing.weight"
    weight = quantity_of(each.named, where, each.take(where), is_gpus=False)
    for group in each.take("spec.resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                _figures(draft, flavor["name"], resource, weight, done)
    has_gpus = any("gpu" in figures for figures in draft.pools.values())
    if weight is not None and not has_gpus and _milli(weight) != 1000:
        why = "weights are of GPUs, and it has no quota of them"
        done.lost.append(Lost(draft.named, f"spec.fairSharing.weight={weight}", why))
    done.lost += each.lost(_WHY)
    return draft


def _figures(draft: Draft, flavor: str, manifest: Manifest, weight: Any, done: Converted) -> None:
    resource = _RESOURCES.get(manifest["name"])
    where = f"flavor {flavor}: {manifest['name']}"
    if resource is None:
        done.lost.append(Lost(draft.named, where, "Ballast counts GPUs, CPU and memory"))
        return
    quota, borrowing = manifest["nominalQuota"], manifest.get("borrowingLimit")
    quota = quantity_of(draft.named, f"{where}.nominalQuota", quota, is_gpus=resource == "gpu")
    limit = None
    if borrowing is not None:
        field = f"{where}.borrowingLimit"
        borrowing = quantity_of(draft.named, field, borrowing, is_gpus=resource == "gpu")
        limit = _sum(quota, borrowing)
    if manifest.get("lendingLimit") is not None:
        why = "what is not used may be borrowed whole, and comes back by reclaim"
        done.lost.append(Lost(draft.named, f"{where}.lendingLimit={manifest['lendingLimit']}", why))
    if not draft.parent and not draft.name.startswith("cohort:"):
        limit = quota  # It has no cohort to borrow from.
    draft.set(_pool(flavor), resource, quota=quota, limit=limit)
    if resource == "gpu" and weight is not None and _milli(weight) != 1000:
        milli = _milli(weight)
        if milli % 1000:
            why = "weights are whole numbers: rounded up"
            done.lost.append(Lost(draft.named, f"spec.fairSharing.weight={weight}", why))
        draft.set(_pool(flavor), "gpu", overQuotaWeight=-(-milli // 1000))


def _sum(quota: Any, more: Any) -> Any:
    """The sum of two quantities, exact to a thousandth; in their suffix if they share it."""
    one, two = str(quota), str(more)
    suffix = one.lstrip("0123456789.")
    if suffix == two.lstrip("0123456789."):
        total = whole(float(one.removesuffix(suffix) or 0) + float(two.removesuffix(suffix) or 0))
        return f"{total}{suffix}" if suffix else total
    milli = parse_quantity(quota, 1000) + parse_quantity(more, 1000)
    if milli % 1000:
        return f"{milli}m"
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if milli and milli % parse_quantity(f"1{suffix}", 1000) == 0:
            return f"{milli // parse_quantity(f'1{suffix}', 1000)}{suffix}"
    return str(milli // 1000)


def _milli(weight: Any) -> int:
    return parse_quantity(weight, 1000)


def _pool(flavor: str) -> str:
    return DEFAULT_POOL if flavor in ("default", "default-flavor") else dns_name(flavor)


def _flavor(manifest: Manifest, done: Converted) -> None:
    each = Fields(manifest)
    labels = each.take("spec.nodeLabels") or {}
    done.lost += each.lost(_WHY)
    if not labels and _pool(each.name) == DEFAULT_POOL:
        return
    if not labels:
        why = "a flavor without node labels selects every node: the pool needs labels of its nodes"
        done.lost.append(Lost(each.named, "spec.nodeLabels", why))
    done.objects.append(new_object("GpuNodePool", _pool(each.name), {"nodeSelector": dict(labels)}))


def _local(manifest: Manifest, done: Converted) -> tuple[str, str]:
    each = Fields(manifest)
    queue = str(each.take("spec.clusterQueue", ""))
    done.lost += each.lost(_WHY)
    return queue, each.namespace


def _priority(manifest: Manifest, done: Converted) -> None:
    """A PriorityClass of Kubernetes, by which Ballast orders workloads."""
    each = Fields(manifest)
    value = each.take("value", 0)
    made: Manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": each.name},
        "value": value,
    }
    if text := each.take("description", ""):
        made["description"] = text
    if value >= 100:
        done.notes.append(f"{each.named}: priorities of 100 and above are not preemptible here")
    done.objects.append(made)
    done.lost += each.lost(_WHY)


def _workload(manifest: Manifest, done: Converted) -> Manifest:
    """The Job without Kueue's queue label, and not suspended: Ballast's gate holds its pods."""
    made = cleaned(manifest)
    labels = made.setdefault("metadata", {}).get("labels") or {}
    name = labels.pop(f"{_GROUP}/priority-class", "")
    labels.pop(_QUEUE_NAME, None)
    if not labels:
        made["metadata"].pop("labels", None)
    if made["kind"] == "Job":
        made.setdefault("spec", {}).pop("suspend", None)
    elif made["kind"] == "CronJob":
        # A CronJob's own `suspend` prevents new Jobs, and stays.
        template_of(made)
        made["spec"]["jobTemplate"]["spec"].pop("suspend", None)
    if name and made["kind"] == "Job":
        template_of(made).setdefault("spec", {})["priorityClassName"] = name
    elif name:
        why = "set priorityClassName in the pod template"
        done.lost.append(Lost(Fields(manifest).named, f"{_GROUP}/priority-class={name}", why))
    _join_group(template_of(made))
    known = (_QUEUE_NAME, *TOPOLOGY_REQUIRED_KEYS, *TOPOLOGY_PREFERRED_KEYS)
    done.lost += unread(made, f"{_GROUP}/", known)
    return made


def _join_group(template: Manifest) -> None:
    """Writes the group of plain pods, and its size, in Ballast's words."""
    meta = template.get("metadata") or {}
    if name := (meta.get("labels") or {}).pop(f"{_GROUP}/pod-group-name", ""):
        label(template, LABEL_POD_GROUP, str(name))
    if count := (meta.get("annotations") or {}).pop(f"{_GROUP}/pod-group-total-count", ""):
        note(template, ANNOTATION_MIN_MEMBER, str(count))
