"""What a pod is made into when it is created. Pure: a request, the known projects and what its
owner says of it in, a decision out.

A pod that says nothing about GPUs and has none of our words is left alone byte for byte. So are
mirror pods and pods that already have a node: nothing may be decided about them any more. A GPU pod
in a namespace of a project gets labels, priority, the request `ballast.dev/gpu-milli`, our
scheduler and, unless a DaemonSet made it, the gate. A DaemonSet waits for its pods node by node, so
a gated one would stall its roll-out; such a pod is placed directly by the extender.

Pods that their owner needs together get the group and the minimum that follow from it
(`webhooks.owners`), unless they name a group themselves; one that does is left to its author.

A GPU pod in a namespace without a project is not ours: it is left alone with a warning. It is
refused when it asks for our scheduler, which would otherwise place it outside every quota.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from extender.api import names
from extender.api.demand import (
    GROUP_LABELS,
    MIN_MEMBER_KEYS,
    PREEMPTIBILITY_LABELS,
    PROJECT_LABELS,
    SUB_GROUP_LABELS,
    Demand,
    agreed,
    first_of,
    fraction_container,
    gpu_milli_request,
    mentions_gpu,
    pod_name,
    read_compute,
    read_demand,
    write_sub_groups,
)
from extender.api.kinds import Project
from extender.api.objects import Pod
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU, UnitError, parse_whole
from webhooks import validate
from webhooks.owners.origin import NOBODY, Origin
from webhooks.patch import PatchBuilder
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, allowed, malformed, patched, refused, warned

MIRROR: Final = "kubernetes.io/config.mirror"
KIND_OF_CLASS: Final = {name: kind for kind, name in names.CLASS_OF_KIND.items()}
#: The kind of work of a pod that says nothing about it: the one that yields to all others.
USUAL_KIND: Final = "training"

#: A container: the field of the pod's spec, and the index in it.
_Place = tuple[str, int]

_pod_decoder = msgspec.json.Decoder(Pod)


@dataclass(slots=True, frozen=True)
class _Case:
    """A pod that is ours to change: what it asks for, and whom it counts against."""

    pod: Pod
    demand: Demand
    project: Project
    kind: str
    priority_class: str
    origin: Origin

    @property
    def stated_group(self) -> str:
        """The group that the pod itself names."""
        return first_of(self.pod.metadata.labels, GROUP_LABELS)

    @property
    def group(self) -> str:
        """The group that the pod names, else its owner's where that makes a difference."""
        if stated := self.stated_group:
            return stated
        is_needed = not self.origin.is_alone or _states_minimum(self.pod)
        return self.origin.group if is_needed and self.demand.is_ours else ""


def decide(request: Request, projects: ProjectIndex, origin: Origin = NOBODY) -> Decision:
    """What becomes of the pod in `request`; anything but a pod's creation is let through."""
    pod = read_pod(request)
    return pod if isinstance(pod, Decision) else judge(pod, request, projects, origin)


def read_pod(request: Request) -> Pod | Decision:
    """The pod that has to be judged, or the decision where there is none."""
    if request.operation != "CREATE" or request.kind.kind != "Pod" or request.sub_resource:
        return allowed()
    try:
        pod = _pod_decoder.decode(request.object)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return malformed(f"object is not a Pod: {error}")
    if pod.spec.node_name or MIRROR in (pod.metadata.annotations or {}) or not _is_concerned(pod):
        return allowed()
    # The API server fills both in only after admission.
    pod.metadata.namespace = request.namespace
    return pod


def wants_origin(pod: Pod, projects: ProjectIndex) -> bool:
    """Whether what its owner says of the pod would change anything."""
    meta = pod.metadata
    is_told = meta.label(names.LABEL_WORKLOAD_KIND) and first_of(meta.labels, GROUP_LABELS)
    if is_told or meta.controller is None or not mentions_gpu(pod):
        return False
    return projects.project_of(meta.namespace) is not None


def judge(pod: Pod, request: Request, projects: ProjectIndex, origin: Origin) -> Decision:
    """What becomes of the pod that `request` is about."""
    case = _judge(pod, projects, origin)
    if isinstance(case, Decision):
        return case
    ops = _ops(case, msgspec.json.decode(request.object))
    return patched(ops, *_warnings(case))


def _is_concerned(pod: Pod) -> bool:
    """Whether the pod says anything that we read."""
    if mentions_gpu(pod) or pod.spec.scheduler_name == names.SCHEDULER_NAME:
        return True
    labels = pod.metadata.labels or {}
    if any(key in labels for key in (*PROJECT_LABELS, *GROUP_LABELS, *PREEMPTIBILITY_LABELS)):
        return True
    prefix = f"{names.GROUP}/"
    words = [*labels, *(pod.metadata.annotations or {}), *pod.gates]
    return any(word.startswith(prefix) for word in words)


def _judge(pod: Pod, projects: ProjectIndex, origin: Origin) -> _Case | Decision:
    """The pod as a case to act on, or the decision that ends the matter."""
    project = _project_of(pod, projects)
    if isinstance(project, Refused):
        return refused(project)
    if project is None:
        return _without_project(pod)
    demand = read_demand(pod)
    if isinstance(demand, Refused):
        return refused(demand)
    named = pod.spec.priority_class_name
    kind = (
        pod.metadata.label(names.LABEL_WORKLOAD_KIND)
        or KIND_OF_CLASS.get(named)
        or origin.work
        or USUAL_KIND
    )
    case = _Case(pod, demand, project, kind, named or names.CLASS_OF_KIND.get(kind, ""), origin)
    objection = _objection(case)
    return refused(objection) if objection else case


def _objection(case: _Case) -> Refused | None:
    """The first rule that the pod breaks."""
    pod = case.pod
    why = validate.check_reserved(pod) or validate.check_words(pod)
    if why:
        return why
    if case.demand.is_ours:
        return validate.check_request(pod, case.demand) or validate.check_class(
            pod, case.priority_class, case.project
        )
    return _no_gate(pod, "it asks for no GPU") if names.GATE in pod.gates else None


def _project_of(pod: Pod, projects: ProjectIndex) -> Project | Refused | None:
    """The pod's project by its labels and namespace.

    In a namespace without a project only our own label is taken as a claim: other schedulers'
    labels may be meant for the other scheduler.
    """
    namespace = pod.metadata.namespace
    try:
        asked = agreed(pod.metadata.labels, PROJECT_LABELS)
    except UnitError as error:
        return Refused(Reason.INVALID_REQUEST, f"{pod_name(pod)}: labels {error}")
    ours = pod.metadata.label(names.LABEL_PROJECT)
    if asked and not ours and projects.project_of(namespace) is None:
        return None
    found = projects.project_of(namespace, asked)
    if isinstance(found, Refused):
        return Refused(found.reason, f"{pod_name(pod)}: {found.detail}")
    return found


def _without_project(pod: Pod) -> Decision:
    """What becomes of a pod whose namespace belongs to no project."""
    cure = (
        f"namespace {pod.metadata.namespace} belongs to no project; an administrator can list it"
        " in spec.namespaces of a Project"
    )
    if why := validate.check_reserved(pod):
        return refused(why)
    if names.GATE in pod.gates:
        return refused(_no_gate(pod, cure))
    if not mentions_gpu(pod):
        return allowed()
    if pod.spec.scheduler_name == names.SCHEDULER_NAME:
        return refused(Refused(Reason.UNKNOWN_PROJECT, f"{pod_name(pod)}: {cure}"))
    return warned(f"Ballast leaves this pod's GPU request alone: {cure}")


def _no_gate(pod: Pod, why: str) -> Refused:
    return Refused(
        Reason.INVALID_REQUEST,
        f"{pod_name(pod)}: remove the scheduling gate {names.GATE}, nobody would open it: {why}",
    )


def _ops(case: _Case, document: dict[str, Any]) -> list[dict[str, Any]]:
    """The operations that make the pod what it has to be."""
    patch = PatchBuilder(document)
    _label(patch, case)
    _join_group(patch, case)
    if case.demand.wants_gpu:
        _annotate(patch, case)
        _request_milli(patch, case)
    if case.demand.is_ours:
        _set_priority(patch, case)
        patch.set(("spec", "schedulerName"), names.SCHEDULER_NAME)
        owner = case.pod.metadata.controller
        if owner is None or owner.kind != "DaemonSet":
            patch.append(("spec", "schedulingGates"), {"name": names.GATE})
    return patch.ops


def _label(patch: PatchBuilder, case: _Case) -> None:
    group = case.group
    preemptibility = first_of(case.pod.metadata.labels, PREEMPTIBILITY_LABELS)
    if not preemptibility and not group and case.demand.is_ours:
        # A group's own word counts for its pods, so theirs is left open.
        preemptibility = _usual_preemptibility(case)
    for key, value in (
        (names.LABEL_PROJECT, case.project.metadata.name),
        (names.LABEL_DEPARTMENT, case.project.spec.department),
        (names.LABEL_WORKLOAD_KIND, case.kind),
        (names.LABEL_POD_GROUP, group),
        (names.LABEL_PREEMPTIBILITY, preemptibility),
    ):
        if value:
            patch.set(("metadata", "labels", key), value)


def _join_group(patch: PatchBuilder, case: _Case) -> None:
    """Writes what the owner says of the group, where the pod names no group itself.

    Whoever names a group may mean pods of several owners, so one owner's figures are not for it.
    """
    if not case.group or case.stated_group:
        return
    origin, stated = case.origin, first_of(case.pod.metadata.labels, SUB_GROUP_LABELS)
    sub_group = stated or origin.sub_group
    if not _states_minimum(case.pod):
        if origin.gang.min_member > 1:
            key = names.ANNOTATION_MIN_MEMBER
            patch.set(("metadata", "annotations", key), str(origin.gang.min_member))
        if sub_group in dict(origin.gang.sub_groups):
            key = names.ANNOTATION_SUB_GROUPS
            patch.set(("metadata", "annotations", key), write_sub_groups(origin.gang.sub_groups))
    if sub_group and not stated:
        patch.set(("metadata", "labels", names.LABEL_SUB_GROUP), sub_group)


def _states_minimum(pod: Pod) -> bool:
    meta = pod.metadata
    keys = (*MIN_MEMBER_KEYS, names.ANNOTATION_SUB_GROUPS)
    return bool(first_of(meta.annotations, keys) or first_of(meta.labels, MIN_MEMBER_KEYS))


def _usual_preemptibility(case: _Case) -> str:
    """The word for the pod's priority, where that is known before it is stored."""
    if case.pod.spec.priority_class_name and case.pod.spec.priority is not None:
        priority: int | None = case.pod.spec.priority
    else:
        priority = names.PRIORITY_CLASSES.get(case.priority_class)
    if priority is None:
        return ""
    return names.PREEMPTIBLE if names.is_preemptible(priority) else names.NON_PREEMPTIBLE


def _annotate(patch: PatchBuilder, case: _Case) -> None:
    request, limit = read_compute(case.pod, case.demand)
    for key, milli in (
        (names.ANNOTATION_COMPUTE_REQUEST, request),
        (names.ANNOTATION_COMPUTE_LIMIT, limit),
    ):
        patch.set(("metadata", "annotations", key), str(milli))


def _set_priority(patch: PatchBuilder, case: _Case) -> None:
    """Names the class and takes away the number that the class before it stood for.

    The API server's Priority plugin has run already and written the default priority; it runs once
    more after a webhook's change, computes what is absent, and refuses what disagrees.
    """
    if not case.pod.spec.priority_class_name:
        patch.set(("spec", "priorityClassName"), case.priority_class)
        patch.remove(("spec", "priority"))
        patch.remove(("spec", "preemptionPolicy"))


def _request_milli(patch: PatchBuilder, case: _Case) -> None:
    """Makes every container that uses cards request its milli, unless the pod does so itself."""
    pod, demand = case.pod, case.demand
    places = _containers(pod)
    if any(_asked(patch, place, names.GPU_MILLI) for place in places):
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


def _warnings(case: _Case) -> list[str]:
    """What is legal but will not do what its author may expect."""
    if _states_minimum(case.pod) and not case.group:
        notes = case.pod.metadata.annotations or {}
        keys = names.ANNOTATION_SUB_GROUPS, names.ANNOTATION_MIN_MEMBER
        key = next((key for key in keys if key in notes), names.ANNOTATION_MIN_MEMBER)
        return [f"{key} has no effect without {names.LABEL_POD_GROUP}"]
    return []
