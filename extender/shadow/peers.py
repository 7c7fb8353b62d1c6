"""Reads objects of other schedulers: sizes of gangs, and workloads without pods.

KAI Scheduler and Volcano keep the size of a gang in a PodGroup; Kueue keeps a Job suspended while
its Workload waits for a quota, so only the Workload exists.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from extender.api import names
from extender.api.objects import ObjectMeta, OwnerReference, Pod, PodSpec
from extender.convert.fields import Manifest, Served
from extender.state.pods.facts import unix_s

#: The kinds that are listed in a live cluster; missing kinds are skipped.
GROUPS: Final = (
    Served("scheduling.run.ai", "podgroups", ("v2alpha2",)),
    Served("scheduling.volcano.sh", "podgroups", ("v1beta1",)),
)
WORKLOADS: Final = Served("kueue.x-k8s.io", "workloads", ("v1beta2", "v1beta1"))
#: Maximum number of modelled pods of one pending Workload.
_MOST_PODS: Final = 4096

#: Conditions of a Workload whose Job is no longer suspended.
_ADMITTED: Final = frozenset({"QuotaReserved", "Admitted", "Finished"})
_LONG_AGO: Final = "1970-01-01T00:00:00Z"

NOT_A_WORKLOAD: Final = "Workloads of Kueue could not be read"


@dataclass(slots=True)
class Peers:
    """Sizes of gangs by `namespace/name`, admission times of Kueue's Workloads in unix seconds,
    gangs of Volcano that are not enqueued, pods of pending Workloads, and assumptions."""

    sizes: dict[str, int] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    not_enqueued: set[str] = field(default_factory=set)
    pods: list[Pod] = field(default_factory=list)
    assumed: Counter[str] = field(default_factory=Counter)


def read_peers(groups: Iterable[Manifest], workloads: Iterable[Manifest]) -> Peers:
    """Read the objects; invalid ones are counted and skipped."""
    peers = Peers()
    for group in groups:
        meta, spec = group.get("metadata") or {}, group.get("spec") or {}
        size, key = spec.get("minMember") or 1, f"{meta.get('namespace')}/{meta.get('name')}"
        if isinstance(size, int):
            peers.sizes[key] = size
        is_volcano = str(group.get("apiVersion", "")).startswith(GROUPS[1].group)
        if is_volcano and (group.get("status") or {}).get("phase") == "Pending":
            peers.not_enqueued.add(key)
    for workload in workloads:
        try:
            pods, meta = list(_pods_of(workload)), workload["metadata"]
            peers.pods += pods
            if not pods and (at := _time_of(workload, _ADMITTED)):
                peers.admitted[f"{meta['namespace']}/{meta['name']}"] = unix_s(at)
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError):
            peers.assumed[NOT_A_WORKLOAD] += 1
    return peers


def _pods_of(workload: Manifest) -> Iterator[Pod]:
    """The pods that a pending Workload of Kueue represents; none if pods exist."""
    meta = msgspec.convert(workload["metadata"], ObjectMeta, strict=False)
    spec = workload["spec"]
    if not _waits(workload) or any(each.kind == "Pod" for each in meta.owner_references or ()):
        return
    sets = spec["podSets"]
    size = sum(int(each.get("minCount") or each["count"]) for each in sets)
    owner = (meta.owner_references or [OwnerReference()])[0]
    # An evicted Workload is pending since its eviction, not since its creation.
    since = _time_of(workload, {"Evicted"}) or meta.creation_timestamp
    made = 0
    for each in sets:
        template = each["template"]
        pod_meta = msgspec.convert(template.get("metadata") or {}, ObjectMeta, strict=False)
        pod_spec = msgspec.convert(template["spec"], PodSpec, strict=False)
        labels = dict(pod_meta.labels or {})
        notes = dict(pod_meta.annotations or {})
        labels[names.LABEL_POD_GROUP] = meta.name
        notes[names.ANNOTATION_MIN_MEMBER] = str(size)
        for number in range(min(int(each["count"]), _MOST_PODS - made)):
            made += 1
            yield Pod(
                ObjectMeta(
                    name=f"{meta.name}-{each.get('name', 'main')}-{number}",
                    namespace=meta.namespace,
                    uid=f"{meta.uid}-{each.get('name', 'main')}-{number}",
                    labels=labels,
                    annotations=notes,
                    creation_timestamp=since,
                    owner_references=[msgspec.structs.replace(owner, controller=True)],
                ),
                _with_priority(pod_spec, spec.get("priority")),
            )


def _waits(workload: Manifest) -> bool:
    is_active = workload["spec"].get("active") is not False
    return is_active and not any(_true(workload, _ADMITTED))


def _true(workload: Manifest, kinds: Set[str]) -> Iterator[dict[str, Any]]:
    """The true conditions of these types."""
    conditions: list[dict[str, Any]] = (workload.get("status") or {}).get("conditions") or []
    for each in conditions:
        if each.get("type") in kinds and each.get("status") == "True":
            yield each


def _time_of(workload: Manifest, kinds: Set[str]) -> datetime | None:
    """When the first of these conditions became true; None if none is."""
    times = [str(each.get("lastTransitionTime") or _LONG_AGO) for each in _true(workload, kinds)]
    return msgspec.convert(min(times), datetime, strict=False) if times else None


def _with_priority(spec: PodSpec, priority: object) -> PodSpec:
    return msgspec.structs.replace(spec, priority=priority if isinstance(priority, int) else None)
