"""Kubernetes' own groups: `spec.schedulingGroup` and the PodGroup of scheduling.k8s.io.

A GPU pod of a project that names such a group gets the equivalent labels and annotations of Ballast
and loses `spec.schedulingGroup`. So kube-scheduler never holds back a gang that Ballast has placed:
one scheduler decides about a gang, whichever feature gates are on.

The pod is changed in memory only; `webhooks.change` writes the operations.
"""

from typing import Final

from msgspec import Struct, field

from extender.api import names
from extender.api.aliases import GROUP_LABELS, TOPOLOGY_REQUIRED_KEYS, agreed, written
from extender.api.demand import pod_name
from extender.api.objects import ObjectMeta, Pod
from extender.api.reasons import Reason, Refused
from extender.api.units import UnitError
from extender.api.workload import read_min_member
from webhooks.owners.origin import Owner, group_name
from webhooks.owners.table import OwnerKind
from webhooks.owners.trace import Asked, Read
from webhooks.projects import ProjectIndex
from webhooks.vocabulary import asks_for_gpu

#: API versions in which a PodGroup is looked up, in this order: 1.37 has the first two, 1.36 the
#: last.
VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
#: Disruption modes that stop all pods at once; a string in 1.36, a member of an object in 1.37.
_ALL: Final = ("PodGroup", "all")


class GangPolicy(Struct, rename="camel"):
    """All or nothing, for `min_count` pods."""

    min_count: int = 1


class SchedulingPolicy(Struct, rename="camel"):
    """`gang`, or None if the pods start one by one."""

    gang: GangPolicy | None = None


class TopologyKey(Struct):
    """The node label that has the same value for all pods of the group."""

    key: str = ""


class SchedulingConstraints(Struct):
    """Topology constraints on the pods; the API accepts at most one key."""

    topology: list[TopologyKey] | None = None


class NativeGroupSpec(Struct, rename="camel", kw_only=True):
    """The fields that are read; docs/native-groups.md lists the others."""

    scheduling_policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | dict[str, object] | None = None
    priority_class_name: str = ""
    parent_composite_pod_group_name: str = ""

    @property
    def stops_as_one(self) -> bool:
        """Whether its pods may only be disrupted together."""
        return any(word in (self.disruption_mode or ()) for word in _ALL)


class NativeGroup(Owner, kw_only=True):
    """A PodGroup of scheduling.k8s.io."""

    spec: NativeGroupSpec = field(default_factory=NativeGroupSpec)


#: Read by name; it owns no pods, so it is not in `webhooks.owners.table`.
POD_GROUP: Final = OwnerKind(
    "scheduling.k8s.io", "PodGroup", None, VERSIONS[0], "podgroups", NativeGroup
)


def names_native_group(pod: Pod, projects: ProjectIndex) -> bool:
    """Whether `pod` is a GPU pod of a project and names a group of Kubernetes' own."""
    if pod.spec.scheduling_group is None and pod.spec.workload_ref is None:
        return False
    return asks_for_gpu(pod) and projects.project_of(pod.metadata.namespace) is not None


async def read_group(pod: Pod, read: Read) -> NativeGroup | None:
    """The PodGroup that the pod names, or None if no API version has it."""
    named = pod.spec.scheduling_group
    if named is None or not named.pod_group_name:
        return None
    for version in VERSIONS:
        asked = Asked(POD_GROUP, version, pod.metadata.namespace, named.pod_group_name, "", "")
        found = await read(asked)
        if isinstance(found, NativeGroup):
            return found
    return None


def join(pod: Pod, group: NativeGroup | None) -> Refused | tuple[str, ...]:
    """Translates the pod's PodGroup into our labels and annotations, in `pod`; returns warnings.

    Refused, with `pod` unchanged, if the group cannot be read or needs what Ballast does not
    support, or if labels or annotations of the pod contradict it.
    """
    try:
        if group is None:
            raise UnitError(_why_unreadable(pod))
        if group.spec.parent_composite_pod_group_name:
            raise UnitError(
                f"PodGroup {group.metadata.name} is part of a CompositePodGroup, which Ballast does"
                f" not read; use sub-groups of a GpuPodGroup ({names.LABEL_SUB_GROUP})"
            )
        _check_class(pod.spec.priority_class_name, group)
        _adopt(pod.metadata, group)
    except UnitError as error:
        return Refused(Reason.INVALID_REQUEST, f"{pod_name(pod)}: {error}")
    if not group.spec.stops_as_one:
        return ()
    return (
        f"PodGroup {group.metadata.name}: of disruption mode all, Ballast stops minCount pods"
        " together; a pod beyond minCount may be stopped alone",
    )


def _check_class(stated: str, group: NativeGroup) -> None:
    """Raises UnitError if the group names another priority class than the pod."""
    named = group.spec.priority_class_name
    if named not in ("", stated):
        raise UnitError(
            f"PodGroup {group.metadata.name} has priorityClassName {named:.80}, and the pod"
            f" {stated[:80] or 'none'}; give both the same"
        )


def _adopt(meta: ObjectMeta, group: NativeGroup) -> None:
    """Writes the group's properties into `meta`; raises UnitError if `meta` contradicts them."""
    spec = group.spec
    name = group_name(group.metadata.name)
    _agree(written(meta.labels, GROUP_LABELS), agreed(meta.labels, GROUP_LABELS), name)
    gang = spec.scheduling_policy.gang
    minimum = gang.min_count if gang else 1
    stated = read_min_member(meta.annotations, meta.labels)
    _agree(names.ANNOTATION_MIN_MEMBER, str(stated or ""), str(minimum))
    notes = {names.ANNOTATION_MIN_MEMBER: str(minimum)}
    constraints = spec.scheduling_constraints
    for level in (constraints and constraints.topology) or ():
        key = written(meta.annotations, TOPOLOGY_REQUIRED_KEYS)
        _agree(key, agreed(meta.annotations, TOPOLOGY_REQUIRED_KEYS), level.key)
        notes[names.ANNOTATION_TOPOLOGY_REQUIRED] = level.key
    meta.labels = (meta.labels or {}) | {names.LABEL_POD_GROUP: name}
    meta.annotations = (meta.annotations or {}) | notes


def _agree(key: str, stated: str, native: str) -> None:
    if stated not in ("", native):
        raise UnitError(
            f"{key} is {stated!r:.80}, and the PodGroup that spec.schedulingGroup names means"
            f" {native!r:.80}; keep one of them"
        )


def _why_unreadable(pod: Pod) -> str:
    """Why there is no group to read, and how to fix it."""
    named = pod.spec.scheduling_group
    ours = f"label {names.LABEL_POD_GROUP} and annotation {names.ANNOTATION_MIN_MEMBER}"
    if named is None:
        return (
            f"spec.workloadRef is a field of Kubernetes 1.35 that Ballast does not read; use {ours}"
        )
    if not named.pod_group_name:
        return f"spec.schedulingGroup names no PodGroup; name one, or use {ours}"
    return (
        f"PodGroup {named.pod_group_name:.80}, which spec.schedulingGroup names, is not there or"
        f" could not be read; create it before its pods, or use {ours}"
    )
