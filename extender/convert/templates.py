"""Pod templates of all kinds: their place in an object, and common conversions."""

import copy
from collections.abc import Container, Iterator
from typing import Any, Final

from extender.api.demand import GPU_RESOURCES, mig_slices, shares_cards
from extender.api.names import LABEL_POD_GROUP
from extender.convert.fields import USUAL, Fields, Lost, Manifest

#: Kinds with a pod template, and its path; a pod is its own.
_TEMPLATES: Final = {
    "Pod": (),
    "Job": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_MINE: Final = ("v1", "apps/v1", "batch/v1")
#: Fields that the API server writes, and that are refused or meaningless in a new object.
_WRITTEN: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "ownerReferences",
    "finalizers",
)


def is_workload(manifest: Manifest) -> bool:
    """Whether it is one of Kubernetes' own kinds with a pod template."""
    return manifest.get("kind") in _TEMPLATES and manifest.get("apiVersion") in _MINE


def cleaned(manifest: Manifest) -> Manifest:
    """A copy that can be created: without status and the API server's fields."""
    made = copy.deepcopy(manifest)
    made.pop("status", None)
    meta = made.get("metadata") or {}
    for key in _WRITTEN:
        meta.pop(key, None)
    return made


def template_of(manifest: Manifest) -> Manifest:
    """The pod template, in place: changing it changes the object."""
    found: Any = manifest
    for key in _TEMPLATES[manifest["kind"]]:
        found = found.setdefault(key, {})
    result: Manifest = found
    return result


def containers_of(template: Manifest) -> Iterator[Manifest]:
    """Its containers, in place, init containers first."""
    spec = template.get("spec") or {}
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def adopted(manifest: Manifest, schedulers: tuple[str, ...]) -> Manifest:
    """The workload in a form that can be created for Ballast, without these schedulers' names."""
    found = cleaned(manifest)
    drop_scheduler(template_of(found), schedulers)
    return found


def drop_scheduler(template: Manifest, names: tuple[str, ...]) -> None:
    """Remove schedulerName if it is one of `names`, so that Ballast sets it."""
    spec = template.get("spec") or {}
    if spec.get("schedulerName") in names:
        del spec["schedulerName"]


def has_gpus(template: Manifest) -> bool:
    """Whether pods of the converted template request GPUs, in Ballast's words."""
    notes = (template.get("metadata") or {}).get("annotations") or {}
    asked = {
        name
        for container in containers_of(template)
        for field in ("requests", "limits")
        for name in (container.get("resources") or {}).get(field) or ()
    }
    return not asked.isdisjoint(GPU_RESOURCES) or shares_cards(notes) or any(map(mig_slices, asked))


def join_group(template: Manifest, keys: tuple[str, ...]) -> None:
    """Name the pods' group by our label if one of these annotations names it."""
    notes = (template.get("metadata") or {}).get("annotations") or {}
    if name := next((notes[key] for key in keys if notes.get(key)), ""):
        label(template, LABEL_POD_GROUP, str(name))


def unread(made: Manifest, prefix: str, known: Container[str]) -> Iterator[Lost]:
    """The unknown labels and annotations with this prefix, on the workload or its pods."""
    metas = [each.get("metadata") or {} for each in (made, template_of(made))]
    found = {
        key: value
        for meta in metas
        for field in ("labels", "annotations")
        for key, value in (meta.get(field) or {}).items()
    }
    for key in sorted(found):
        if key.startswith(prefix) and key not in known:
            yield Lost(Fields(made).named, f"{key}={found[key]}", USUAL)


def note(template: Manifest, key: str, value: str) -> None:
    """Set an annotation of the pods."""
    meta = template.setdefault("metadata", {})
    annotations = meta.get("annotations") or {}
    annotations[key] = value
    meta["annotations"] = annotations


def label(template: Manifest, key: str, value: str) -> None:
    """Set a label of the pods."""
    meta = template.setdefault("metadata", {})
    labels = meta.get("labels") or {}
    labels[key] = value
    meta["labels"] = labels
