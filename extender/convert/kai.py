"""KAI Scheduler: Queue, PodGroup, Topology, SchedulingShard, and workloads with its scheduler.

Ballast reads the labels of pods (`kai.scheduler/queue`, `gpu-fraction` and so on) as they are.
"""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from extender.api.names import ANNOTATION_NODE_POOLS
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
from extender.convert.queues import (
    UNLIMITED,
    Draft,
    add_namespaces,
    amount,
    build,
    namespaces_by,
    number_of,
    whole_weight,
)
from extender.convert.shapes import TOPOLOGY, shaped
from extender.convert.templates import (
    adopted,
    is_workload,
    join_group,
    label,
    note,
    template_of,
    unread,
)

_GROUPS: Final = ("scheduling.run.ai", "kai.scheduler")
#: The kinds that are listed in a live cluster.
LIVE: Final = (
    Served("scheduling.run.ai", "queues", ("v2",)),
    Served("scheduling.run.ai", "podgroups", ("v2alpha2",)),
    Served("kai.scheduler", "topologies", ("v1alpha1",)),
    Served("kai.scheduler", "schedulingshards", ("v1",)),
)
SCHEDULERS: Final = ("kai-scheduler", "runai-scheduler")
QUEUE_LABELS: Final = ("kai.scheduler/queue", "runai/queue")
#: The label of the shard on nodes and pods; a shard becomes a node pool.
_POOL_LABEL: Final = "kai.scheduler/node-pool"
#: What KAI reads on the owner of pods as well as on pods, and Ballast on pods.
_POD_LABELS: Final = ("kai.scheduler/preemptibility", "kai.scheduler/subgroup-name")
_POD_NOTES: Final = (
    "kai.scheduler/topology",
    "kai.scheduler/topology-required-placement",
    "kai.scheduler/topology-preferred-placement",
)
_DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+)(h|ms|us|µs|ns|m|s)")
_DURATION_S: Final = {
    "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "ns": Decimal("1e-9"),
}  # fmt: skip

#: Why a field has no counterpart, by the prefix of its path.
_WHY: Final = {
    "spec.priority": "queues have no priority of their own; a rank per node pool is near to it",
    "spec.placementStrategy.cpu": "kube-scheduler places pods without GPUs",
    "spec.kValue": "past usage is weighed by timeBasedFairShare of the GpuNodePool",
    "spec.queueDepthPerAction": "a cycle looks at every workload until its time is up",
    "spec.args": "Ballast takes no arguments of KAI's scheduler",
    "spec.markUnschedulable": "Ballast states the reason on the pods and keeps trying",
    "spec.schedulingBackoff": "Ballast tries again in every cycle",
}


_NEARNESS: Final = {
    "topology": str, "requiredTopologyLevel": str, "preferredTopologyLevel": str,
}  # fmt: skip
_FIGURES: Final = {"quota": object, "limit": object, "overQuotaWeight": object}
_SHAPES: Final = {
    "Queue": {
        "spec": {
            "parentQueue": str,
            "resources": {"gpu": _FIGURES, "cpu": _FIGURES, "memory": _FIGURES},
            "reclaimMinRuntime": str,
            "preemptMinRuntime": str,
        }
    },
    "PodGroup": {
        "spec": {
            "minMember": int,
            "queue": str,
            "priorityClassName": str,
            "preemptibility": str,
            "topologyConstraint": _NEARNESS,
            "subGroups": [
                {"name!": str, "minMember": int, "parent": str, "topologyConstraint": _NEARNESS}
            ],
        }
    },
    "Topology": TOPOLOGY,
    "SchedulingShard": {"spec": {"partitionLabelValue": str, "placementStrategy": {"gpu": str}}},
}


def convert(objects: Iterable[Manifest]) -> Converted:
    """Convert all objects."""
    done, listed = Converted(), list(shaped(objects, _SHAPES))
    drafts: list[Draft] = []
    for manifest in listed:
        kind = manifest.get("kind") if group_of(manifest) in _GROUPS else ""
        if kind == "Queue":
            drafts.append(_queue(manifest, done))
        elif kind == "PodGroup":
            done.objects.append(_pod_group(manifest, done))
        elif kind == "Topology":
            done.objects.append(topology_of(manifest, _WHY, done))
        elif kind == "SchedulingShard":
            done.objects.append(_shard(manifest, done))
        elif is_workload(manifest):
            done.objects.append(_workload(manifest, done))
        else:
            done.leave_out(manifest, "KAI")
    add_namespaces(drafts, namespaces_by(listed, QUEUE_LABELS))
    build(drafts, done, has_namespaces=False)
    return done


def _queue(manifest: Manifest, done: Converted) -> Draft:
    """Quotas: -1 is unlimited. CPU is in milli-CPU and memory in MB (10^6 bytes)."""
    each = Fields(manifest)
    draft = Draft(each.name, each.named, parent=each.take("spec.parentQueue", "") or "")
    each.take("spec.displayName")
    for resource in ("gpu", "cpu", "memory"):
        path = f"spec.resources.{resource}"
        quota, limit, weight = (
            number_of(each.named, f"{path}.{key}", each.take(f"{path}.{key}"))
            for key in ("quota", "limit", "overQuotaWeight")
        )
        if quota == UNLIMITED and resource == "gpu":
            why = "an unlimited quota would cover every GPU; state a number"
            done.lost.append(Lost(each.named, f"{path}.quota=-1", why))
            quota = 0
        draft.set(
            "",
            resource,
            quota=amount(resource, quota),
            limit="0" if limit == 0 and resource != "gpu" else amount(resource, limit),
            overQuotaWeight=whole_weight(each.named, f"{path}.overQuotaWeight", weight, done),
        )
    runtime = {
        "reclaimSeconds": duration_s(each.take("spec.reclaimMinRuntime")),
        "preemptSeconds": duration_s(each.take("spec.preemptMinRuntime")),
    }
    draft.min_runtime = {key: value for key, value in runtime.items() if value}
    done.lost += each.lost(_WHY)
    return draft


def _workload(manifest: Manifest, done: Converted) -> Manifest:
    """The workload, with the words that KAI reads on the pods' owner in its pod template."""
    made = adopted(manifest, SCHEDULERS)
    template = template_of(made)
    for field, keys, write in (("labels", _POD_LABELS, label), ("annotations", _POD_NOTES, note)):
        of_owner = (made.get("metadata") or {}).get(field) or {}
        of_pods = (template.get("metadata") or {}).get(field) or {}
        for key in keys:
            if key in of_owner and key not in of_pods:
                write(template, key, of_owner[key])
    join_group(template, ("pod-group-name",))
    for each in (template, made):
        if pool := ((each.get("metadata") or {}).get("labels") or {}).get(_POOL_LABEL):
            note(template, ANNOTATION_NODE_POOLS, pool)
            break
    known = (*_POD_LABELS, *_POD_NOTES, *QUEUE_LABELS, _POOL_LABEL)
    done.lost += unread(made, "kai.scheduler/", known)
    return made


def duration_s(text: Any) -> int:
    """Seconds of a Go duration such as "1h30m" or "1.5h", rounded up."""
    parts = _DURATION.findall(str(text or ""))
    return math.ceil(sum(Decimal(number) * _DURATION_S[unit] for number, unit in parts))


def _pod_group(manifest: Manifest, done: Converted) -> Manifest:
    each = Fields(manifest)
    spec: Manifest = {"minMember": each.take("spec.minMember", 1) or 1}
    if queue := each.take("spec.queue"):
        spec["project"] = queue
    if name := each.take("spec.priorityClassName"):
        spec["priorityClassName"] = name
    word = each.take("spec.preemptibility", "")
    if word:
        spec["preemptibility"] = "NonPreemptible" if word.startswith("non") else "Preemptible"
    if near := _nearness(each.take("spec.topologyConstraint")):
        spec["topologyConstraint"] = near
    sub_groups = [_sub_group(child) for child in each.take("spec.subGroups") or ()]
    if sub_groups:
        spec["subGroups"] = sub_groups
    for key in (*QUEUE_LABELS, _POOL_LABEL):
        each.take(f"metadata.labels.{key}")
    done.lost += each.lost(_WHY)
    return new_object("GpuPodGroup", each.name, spec, namespace=each.namespace)


def _sub_group(child: Manifest) -> Manifest:
    found: Manifest = {"name": child["name"], "minMember": child.get("minMember", 1)}
    if child.get("parent"):
        found["parent"] = child["parent"]
    if near := _nearness(child.get("topologyConstraint")):
        found["topologyConstraint"] = near
    return found


def _nearness(given: Any) -> Manifest:
    known = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")
    return {key: given[key] for key in known if (given or {}).get(key)}


def _shard(manifest: Manifest, done: Converted) -> Manifest:
    each = Fields(manifest)
    value = each.take("spec.partitionLabelValue", "")
    spec: Manifest = {"nodeSelector": {_POOL_LABEL: value}} if value else {}
    rules = {"binpack": "BinPack", "spread": "Spread"}
    if (rule := each.take("spec.placementStrategy.gpu")) in rules:
        spec["placement"] = {"gpu": rules[rule]}
    done.lost += each.lost(_WHY)
    return new_object("GpuNodePool", value or "default", spec)
