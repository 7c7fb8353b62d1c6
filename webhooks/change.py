"""The changes that make a pod what it has to be, as JSON Patch operations. Pure.

Every change states what has to be there and costs nothing where it is, so applying them twice is
applying them once.
"""

from collections.abc import Container
from typing import Final

from msgspec import Raw

from extender.api import names
from extender.api.demand import (
    PREEMPTIBILITY_LABELS,
    SUB_GROUP_LABELS,
    first_of,
    fraction_container,
    gpu_milli_request,
    read_compute,
)
from extender.api.objects import Pod
from extender.api.units import MILLI_PER_GPU, parse_whole
from extender.api.workload import write_sub_groups
from webhooks.case import PodCase
from webhooks.patch import Operation, PatchBuilder
from webhooks.validate import states_compute_limit

#: What NVIDIA's container runtime reads cards from, unless it is told not to. A container that
#: shares a card gets its card from the node agent, and none by this, whatever its image says.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES: Final = "void"
#: Plugins without which a runtime's default validator starts no container of the pod, in YAML
#: (containerd/nri `pkg/plugin/annotations.go`; containerd 2.2, CRI-O 1.34). It is off by default;
#: then this is not read. The longer the key, the more it counts: `/container.NAME`, `/pod`, none.
REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"
#: GKE and others keep pods without GPUs off GPU nodes by this taint. The API server's plugin
#: ExtendedResourceToleration writes the same toleration into pods that ask for whole GPUs, and into
#: none that ask for a share of one.
GPU_NODES: Final = {"key": names.NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}
CONTAINER_FIELDS: Final = ("containers", "initContainers", "ephemeralContainers")

#: A container: the field of the pod's spec, and the index in it.
_Place = tuple[str, int]


def operations(case: PodCase, text: bytes | Raw, nri_plugin: str = "") -> list[Operation]:
    """The operations that make the pod, which came as `text`, what it has to be.

    `nri_plugin` is what the node agent is called by container runtimes; empty where there is none.
    """
    patch = PatchBuilder(text)
    _translate(patch, case)
    _leave_native_group(patch, case)
    _label(patch, case)
    _join_group(patch, case)
    if case.delivery == "share":
        for key in (names.ANNOTATION_MEMORY, names.ANNOTATION_MEMORY_BY):
            patch.set(("metadata", "annotations", key), case.pod.metadata.annotation(key))
    if case.demand.wants_gpu:
        _annotate(patch, case)
        _request_milli(patch, case)
    if case.shares_cards:
        hide_cards(patch)
        if nri_plugin and case.delivery == "agent":
            _require(patch, case, nri_plugin)
    if case.demand.is_ours:
        _set_priority(patch, case)
        for key, value in case.node_labels.items():
            patch.set(("spec", "nodeSelector", key), value)
        patch.set(("spec", "schedulerName"), names.SCHEDULER_NAME)
        patch.append(("spec", "tolerations"), dict(GPU_NODES))
        if not case.is_of_daemon_set:
            patch.append(("spec", "schedulingGates"), {"name": names.GATE})
    return patch.ops


def hide_cards(patch: PatchBuilder, known: Container[str] | None = None) -> None:
    """Gives no container cards by its environment: those that it is to see come from the node.

    With `known` only ephemeral containers are changed, and of them those that it does not name.
    """
    for field in CONTAINER_FIELDS if known is None else CONTAINER_FIELDS[-1:]:
        for ix, container in enumerate(patch.document["spec"].get(field) or ()):
            if known is not None and container["name"] in known:
                continue
            listed = container.get("env") or []
            # A policy refuses a pod that sets this variable to another value.
            if all(each.get("name") != VISIBLE_DEVICES for each in listed):
                hidden = {"name": VISIBLE_DEVICES, "value": NO_DEVICES}
                patch.append(("spec", field, ix, "env"), hidden)


def _require(patch: PatchBuilder, case: PodCase, nri_plugin: str) -> None:
    """Lets runtimes start the pod only beside the plugin, unless its author says what it needs."""
    notes = case.pod.metadata.annotations or {}
    if not any(key.startswith(REQUIRED_PLUGINS) for key in notes):
        patch.set(("metadata", "annotations", f"{REQUIRED_PLUGINS}/pod"), f'["{nri_plugin}"]')


def _translate(patch: PatchBuilder, case: PodCase) -> None:
    """Puts our words in the place of other schedulers' resources."""
    translation = case.translation
    if translation is None:
        return
    for key, value in translation.notes.items():
        patch.set(("metadata", "annotations", key), value)
    place = ("spec", "containers", translation.container, "resources")
    for listed in ("requests", "limits"):
        for resource in translation.dropped:
            patch.remove((*place, listed, resource))
        if translation.whole:
            patch.set((*place, listed, names.NVIDIA_GPU), str(translation.whole))


def _leave_native_group(patch: PatchBuilder, case: PodCase) -> None:
    """Puts our words in the place of a group of Kubernetes' own (`webhooks.native_groups`)."""
    if case.pod.spec.scheduling_group is None:
        return
    patch.remove(("spec", "schedulingGroup"))
    for key in (names.ANNOTATION_MIN_MEMBER, names.ANNOTATION_TOPOLOGY_REQUIRED):
        if value := case.pod.metadata.annotation(key):
            patch.set(("metadata", "annotations", key), value)


def _label(patch: PatchBuilder, case: PodCase) -> None:
    group = case.group
    replica_of = case.replica_of if case.demand.is_ours else ""
    preemptibility = first_of(case.pod.metadata.labels, PREEMPTIBILITY_LABELS)
    if replica_of:
        preemptibility = names.PREEMPTIBLE
    elif not preemptibility and not group and case.demand.is_ours:
        # A group's own word counts for its pods, so theirs is left open.
        preemptibility = _usual_preemptibility(case)
    for key, value in (
        (names.LABEL_PROJECT, case.project.metadata.name),
        (names.LABEL_DEPARTMENT, case.project.spec.department),
        (names.LABEL_WORKLOAD_KIND, case.kind),
        (names.LABEL_POD_GROUP, group),
        (names.LABEL_PREEMPTIBILITY, preemptibility),
        (names.LABEL_REPLICA_OF, replica_of),
    ):
        if value:
            patch.set(("metadata", "labels", key), value)


def _join_group(patch: PatchBuilder, case: PodCase) -> None:
    """Writes what the owner says of the group.

    Of a group that the pod names itself that is the size alone, where nothing states it: its
    sub-groups may be of several owners.
    """
    if not case.group:
        return
    gang = case.origin.gang
    if not case.states_minimum and gang.min_member > 1:
        key = names.ANNOTATION_MIN_MEMBER
        patch.set(("metadata", "annotations", key), str(gang.min_member))
    if case.stated_group:
        return
    stated = first_of(case.pod.metadata.labels, SUB_GROUP_LABELS)
    sub_group = stated or case.origin.sub_group
    if not case.states_minimum and sub_group in dict(gang.sub_groups):
        key = names.ANNOTATION_SUB_GROUPS
        patch.set(("metadata", "annotations", key), write_sub_groups(gang.sub_groups))
    if sub_group and not stated:
        patch.set(("metadata", "labels", names.LABEL_SUB_GROUP), sub_group)


def _usual_preemptibility(case: PodCase) -> str:
    """The word for the pod's priority, where that is known before it is stored."""
    if case.pod.spec.priority_class_name and case.pod.spec.priority is not None:
        priority: int | None = case.pod.spec.priority
    else:
        priority = names.CLASS_VALUES.get(case.priority_class)
    if priority is None:
        return ""
    return names.PREEMPTIBLE if names.is_preemptible(priority) else names.NON_PREEMPTIBLE


def _annotate(patch: PatchBuilder, case: PodCase) -> None:
    request, limit = read_compute(case.pod, case.demand)
    if case.is_strict and case.shares_cards and case.demand.milli:
        limit = limit if states_compute_limit(case.pod) else request
    for key, milli in (
        (names.ANNOTATION_COMPUTE_REQUEST, request),
        (names.ANNOTATION_COMPUTE_LIMIT, limit),
    ):
        patch.set(("metadata", "annotations", key), str(milli))


def _set_priority(patch: PatchBuilder, case: PodCase) -> None:
    """Names the class, with the numbers that it stands for.

    The API server's Priority plugin has run already and written those of no class. It runs again
    after a webhook's change, computes what is absent, and refuses what disagrees. Where it finds
    what it would write, the webhook is not called a second time. A class that is not known yet is
    left to it.
    """
    if case.pod.spec.priority_class_name:
        return
    patch.set(("spec", "priorityClassName"), case.priority_class)
    if known := case.known_class:
        patch.set(("spec", "priority"), known.value)
        patch.set(("spec", "preemptionPolicy"), known.preemption_policy)
    else:
        patch.remove(("spec", "priority"))
        patch.remove(("spec", "preemptionPolicy"))


def _request_milli(patch: PatchBuilder, case: PodCase) -> None:
    """Makes every container that uses cards request its milli, unless the pod does so itself."""
    pod, demand = case.pod, case.demand
    places = _containers(pod)
    if any(_asked(patch, place, names.GPU_MILLI) for place in places):
        return
    if case.delivery == "claim":
        _set_milli(patch, ("containers", 0), gpu_milli_request(demand))
        return
    if demand.milli < MILLI_PER_GPU:
        place = ("containers", fraction_container(pod))
        _set_milli(patch, place, gpu_milli_request(demand))
        return
    for place in places:
        if whole := _asked(patch, place, names.NVIDIA_GPU):
            _set_milli(patch, place, whole * MILLI_PER_GPU)


def _containers(pod: Pod) -> list[_Place]:
    """Every container that can ask for resources."""
    return [
        *(("containers", ix) for ix in range(len(pod.spec.containers))),
        *(("initContainers", ix) for ix in range(len(pod.spec.init_containers or ()))),
    ]


def _asked(patch: PatchBuilder, place: _Place, resource: str) -> int:
    """How much of a whole-number resource the container has in its requests or limits."""
    field, ix = place
    listed = patch.document["spec"][field][ix].get("resources") or {}
    asked = (listed.get("limits") or {}) | (listed.get("requests") or {})
    return parse_whole(asked.get(resource, 0), resource)


def _set_milli(patch: PatchBuilder, place: _Place, milli: int) -> None:
    for key in ("requests", "limits"):
        patch.set(("spec", *place, "resources", key, names.GPU_MILLI), str(milli))
