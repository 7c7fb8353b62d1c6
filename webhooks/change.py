"""The changes to a pod at creation, as JSON Patch operations. Pure.

Every change states a desired value and adds no operation if the pod has it, so it is idempotent.
"""

from collections.abc import Container
from typing import Final

from msgspec import Raw

from extender.api import names
from extender.api.aliases import PREEMPTIBILITY_LABELS, SUB_GROUP_LABELS, first_of
from extender.api.demand import fraction_container, gpu_milli_request, read_compute
from extender.api.objects import Pod, Toleration
from extender.api.units import MILLI_PER_GPU, parse_whole
from extender.api.workload import write_sub_groups
from webhooks.case import PodCase
from webhooks.patch import Operation, PatchBuilder
from webhooks.validate import states_compute_limit

#: The variable from which NVIDIA's container runtime reads cards. A container that shares a card
#: gets it from the node agent, so this one is set to none, whatever its image says.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES: Final = "void"
#: A YAML list of plugins without which the runtime's default validator starts no container of the
#: pod (containerd/nri `pkg/plugin/annotations.go`; containerd 2.2, CRI-O 1.34). The validator is
#: off by default. The longest key takes precedence: `/container.NAME`, `/pod`, none.
REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"
#: GKE and others keep pods without GPUs off GPU nodes by this taint. The admission plugin
#: ExtendedResourceToleration adds this toleration to pods that request whole GPUs, but not to pods
#: that request a share.
GPU_NODES: Final = {"key": names.NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}
CONTAINER_FIELDS: Final = ("containers", "initContainers", "ephemeralContainers")

#: A container: its field in the pod's spec, and its index there.
_Place = tuple[str, int]


def operations(case: PodCase, text: bytes | Raw, nri_plugin: str = "") -> list[Operation]:
    """The operations that make all changes to the pod, which arrived as `text`.

    `nri_plugin` is the node agent's name as a plugin of container runtimes; empty if there is none.
    """
    patch = PatchBuilder(text)
    _translate(patch, case)
    _replace_native_group(patch, case)
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
    if case.demand.is_gpu_work:
        _untrack(patch, case)
        _set_priority(patch, case)
        for key, value in case.node_labels.items():
            patch.set(("spec", "nodeSelector", key), value)
        patch.set(("spec", "schedulerName"), names.SCHEDULER_NAME)
        if not any(map(_tolerates_gpu_nodes, case.pod.spec.tolerations or ())):
            patch.append(("spec", "tolerations"), dict(GPU_NODES))
        if not case.is_of_daemon_set:
            patch.append(("spec", "schedulingGates"), {"name": names.GATE})
    return patch.ops


def _untrack(patch: PatchBuilder, case: PodCase) -> None:
    """Drops the record of field managers, without which each later write of the pod costs the API
    server less.

    Only `kubectl apply --server-side` and the like need it: the record stays if the pod was created
    so, or may be applied later because no controller owns it.
    """
    entries = patch.document["metadata"].get("managedFields") or ()
    if case.pod.metadata.controller and all(each.get("operation") == "Update" for each in entries):
        patch.remove(("metadata", "managedFields"))


def _tolerates_gpu_nodes(toleration: Toleration) -> bool:
    """Whether the pod tolerates the taint already, whatever its value.

    Kubernetes allows no toleration to be removed, so a second apply of a pod is refused where this
    one was added to a list of its manifest.
    """
    return (
        toleration.operator == GPU_NODES["operator"]
        and toleration.key in ("", GPU_NODES["key"])
        and toleration.effect in ("", GPU_NODES["effect"])
    )


def hide_cards(patch: PatchBuilder, known: Container[str] | None = None) -> None:
    """Gives containers no cards by their environment: the node agent delivers them.

    With `known`, only ephemeral containers whose names it lacks are changed.
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
    """Makes runtimes start the pod only with the plugin, unless the pod states required plugins."""
    notes = case.pod.metadata.annotations or {}
    if not any(key.startswith(REQUIRED_PLUGINS) for key in notes):
        patch.set(("metadata", "annotations", f"{REQUIRED_PLUGINS}/pod"), f'["{nri_plugin}"]')


def _translate(patch: PatchBuilder, case: PodCase) -> None:
    """Replaces other schedulers' resources by ours."""
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


def _replace_native_group(patch: PatchBuilder, case: PodCase) -> None:
    """Replaces a group of Kubernetes' own by ours (`webhooks.native_groups`)."""
    if case.pod.spec.scheduling_group is None:
        return
    patch.remove(("spec", "schedulingGroup"))
    for key in (names.ANNOTATION_MIN_MEMBER, names.ANNOTATION_TOPOLOGY_REQUIRED):
        if value := case.pod.metadata.annotation(key):
            patch.set(("metadata", "annotations", key), value)


def _label(patch: PatchBuilder, case: PodCase) -> None:
    replica_of = case.replica_of if case.demand.is_gpu_work else ""
    for key, value in (
        (names.LABEL_PROJECT, case.project.metadata.name),
        (names.LABEL_DEPARTMENT, case.project.spec.department),
        (names.LABEL_WORKLOAD_KIND, case.kind),
        (names.LABEL_POD_GROUP, case.group),
        (names.LABEL_PREEMPTIBILITY, preemptibility_of(case)),
        (names.LABEL_REPLICA_OF, replica_of),
    ):
        if value:
            patch.set(("metadata", "labels", key), value)


def _join_group(patch: PatchBuilder, case: PodCase) -> None:
    """Writes the group, its size and its sub-groups, as the owner determines them.

    A group that the pod names gets only a size, if it has none: its sub-groups may belong to
    several owners.
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


def preemptibility_of(case: PodCase) -> str:
    """The pod's preemptibility as its label states it; empty if it is not known at creation."""
    if case.replica_of and case.demand.is_gpu_work:
        return names.PREEMPTIBLE
    stated = first_of(case.pod.metadata.labels, PREEMPTIBILITY_LABELS)
    # A group may state it for all its pods.
    if stated or case.group or not case.demand.is_gpu_work:
        return stated
    return _usual_preemptibility(case)


def _usual_preemptibility(case: PodCase) -> str:
    """The preemptibility that follows from the pod's priority, if that is known at creation."""
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
    """Sets the class, and the priority and preemption policy of that class.

    The API server's Priority plugin has already run and written the default values. It runs again
    after a webhook's change, computes absent values, and refuses wrong ones. If it has nothing to
    change, the webhook is not called a second time. The values of an unknown class are left to it.
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
    """Makes every container that uses cards request its milli-GPU, unless one does already."""
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
    """Every container that can request resources."""
    return [
        *(("containers", ix) for ix in range(len(pod.spec.containers))),
        *(("initContainers", ix) for ix in range(len(pod.spec.init_containers or ()))),
    ]


def _asked(patch: PatchBuilder, place: _Place, resource: str) -> int:
    """The container's request or limit of a whole-number resource."""
    field, ix = place
    listed = patch.document["spec"][field][ix].get("resources") or {}
    asked = (listed.get("limits") or {}) | (listed.get("requests") or {})
    return parse_whole(asked.get(resource, 0), resource)


def _set_milli(patch: PatchBuilder, place: _Place, milli: int) -> None:
    for key in ("requests", "limits"):
        patch.set(("spec", *place, "resources", key, names.GPU_MILLI), str(milli))
