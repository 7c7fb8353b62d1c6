"""Decides what a pod becomes at creation. Pure: a request, the known projects and the pod's origin
in, a decision out.

A pod that says nothing about GPUs and has none of our labels or annotations is left alone, byte for
byte. So are mirror pods and pods that already have a node. A GPU pod in a namespace of a project
gets labels, priority, the request `ballast.dev/gpu-milli`, our scheduler, the node labels that its
project requires and, unless a DaemonSet created it, the gate. A DaemonSet waits for its pods node
by node, so a gated pod would stall its rollout; the extender places such a pod directly.
`webhooks.change` writes the changes.

After creation only ephemeral containers matter: they are shown no card.

Pods that their owner needs together get the group and the minimum that follow from the owner
(`webhooks.owners`). Pods that name a group keep it, and get only the minimum, if they state none.

A GPU pod in a namespace without a project is left alone with a warning. It is refused if it names
our scheduler, which would place it outside every quota, and if it requests a share of a card and
names no scheduler that could read that: it would run without a card.

A GPU pod of a project that names another scheduler is refused: two schedulers would allocate the
same cards, each believing that they are free.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from extender.api import names
from extender.api.aliases import (
    GROUP_LABELS,
    PREEMPTIBILITY_LABELS,
    PROJECT_LABELS,
    agreed,
    first_of,
    written,
)
from extender.api.demand import (
    BY_CLAIMS,
    SHARE_ANNOTATIONS,
    mentions_gpu,
    pod_name,
    read_demand,
    shares_cards,
)
from extender.api.kinds import GpuProject
from extender.api.objects import Pod
from extender.api.reasons import Reason, Refused
from extender.api.units import UnitError
from webhooks import limits, validate
from webhooks.case import PodCase, states_minimum
from webhooks.catalog import Catalog
from webhooks.change import hide_cards, operations, preemptibility_of
from webhooks.forbidden import refusals
from webhooks.owners.origin import NO_OWNER, Origin
from webhooks.owners.table import INTERACTIVE
from webhooks.parts import Document
from webhooks.patch import PatchBuilder
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, allowed, malformed, patched, refused, warned
from webhooks.spelling import LABELS, NOTES, misspelt, without_request
from webhooks.vocabulary import asks_for_gpu, speaks, translate

MIRROR: Final = "kubernetes.io/config.mirror"
KIND_OF_CLASS: Final = {name: kind for kind, name in names.CLASS_OF_KIND.items()}
#: The kind of work of a pod that states none: the one that yields to all others.
USUAL_KIND: Final = "training"
#: The label that JupyterHub sets on the pods of its users, which have no owner.
NOTEBOOK_LABEL: Final = "hub.jupyter.org/username"
#: The users that create a DaemonSet's pods: the controller's own, or the one all controllers share.
DAEMON_SET_MAKERS: Final = (
    "system:serviceaccount:kube-system:daemon-set-controller",
    "system:kube-controller-manager",
)

_pod_decoder = msgspec.json.Decoder(Pod)
_NOT_A_POD: Final = (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError)


def decide(request: Request, projects: ProjectIndex, origin: Origin = NO_OWNER) -> Decision:
    """The decision about the pod in `request`; anything but the creation of a pod is allowed."""
    pod = read_pod(request)
    return pod if isinstance(pod, Decision) else judge(pod, request, projects, origin)


def read_pod(request: Request) -> Pod | Decision:
    """The pod to judge, or the decision if there is none."""
    if request.kind.kind != "Pod":
        return allowed()
    if request.sub_resource == "ephemeralcontainers":
        return _hide_cards_from_ephemeral(request)
    if request.operation != "CREATE":
        return allowed()
    return _new_pod(request)


def _new_pod(request: Request) -> Pod | Decision:
    """The pod that is being created, or the decision if it is not to be judged."""
    try:
        pod = _pod_decoder.decode(request.object)
    except _NOT_A_POD as error:
        return malformed(f"object is not a Pod: {error}")
    if pod.spec.node_name or MIRROR in (pod.metadata.annotations or {}):
        return allowed()
    if not _is_relevant(pod):
        return with_warnings(allowed(), [*misspelt(pod), *without_request(pod.metadata)])
    # The API server fills both in only after admission.
    pod.metadata.namespace = request.namespace
    return pod


def wants_origin(pod: Pod, projects: ProjectIndex) -> bool:
    """Whether the pod's owner could change the decision."""
    meta = pod.metadata
    is_sized = first_of(meta.labels, GROUP_LABELS) and states_minimum(meta)
    has_owner = meta.label(names.LABEL_REPLICA_OF) or not meta.annotation(names.ANNOTATION_FLOOR)
    if (
        (meta.label(names.LABEL_WORKLOAD_KIND) and is_sized and has_owner)
        or meta.controller is None
        or not asks_for_gpu(pod)
    ):
        return False
    return projects.project_of(meta.namespace) is not None


def judge(
    pod: Pod, request: Request, projects: ProjectIndex, origin: Origin, nri_plugin: str = ""
) -> Decision:
    """The decision about the pod of `request`; `nri_plugin` as for `change.operations`."""
    case = _judge(pod, request, projects, origin)
    if isinstance(case, Decision):
        return with_warnings(case, misspelt(pod))
    warnings = [*_warnings(case), *_warnings_without_owner(case)]
    try:
        # Fields that we change without reading them may hold anything.
        ops = operations(case, request.object, nri_plugin)
    except (*_NOT_A_POD, LookupError, AttributeError, TypeError) as error:
        return malformed(f"object is not a Pod: {error}")
    return patched(ops, *warnings)


def foresee(
    pod: Pod, spec: Document, projects: ProjectIndex, origin: Origin = NO_OWNER
) -> list[str]:
    """Warnings for the author of a template about the pods that are created from it.

    `pod` is one of them, with its namespace and the name of its creator; `spec` is the template's.
    """
    case = _judge(pod, Request(uid="", operation="CREATE"), projects, origin)
    if isinstance(case, PodCase):
        return [*_warnings(case), *refusals(case, spec)]
    if not case.is_allowed:
        return [f"its pods will be refused: {case.message}"]
    return [*case.warnings, *misspelt(pod)]


def with_warnings(decision: Decision, warnings: Sequence[str]) -> Decision:
    """The decision with more warnings; a refusal gets none."""
    if not warnings or not decision.is_allowed:
        return decision
    return msgspec.structs.replace(decision, warnings=(*decision.warnings, *warnings))


def _hide_cards_from_ephemeral(request: Request) -> Decision:
    """The decision about ephemeral containers that are added to a pod: they are shown no card.

    Earlier containers are immutable.
    """
    try:
        patch = PatchBuilder(request.object)
        notes = patch.document["metadata"].get("annotations") or {}
        if not shares_cards(notes):
            return allowed()
        before = msgspec.json.decode(request.old_object)
        known = {each["name"] for each in before["spec"].get("ephemeralContainers") or ()}
        hide_cards(patch, known)
    except (*_NOT_A_POD, LookupError, AttributeError, TypeError) as error:
        return malformed(f"object is not a Pod: {error}")
    return patched(patch.ops) if patch.ops else allowed()


def _is_relevant(pod: Pod) -> bool:
    """Whether the pod has anything that we read."""
    if asks_for_gpu(pod) or pod.spec.scheduler_name == names.SCHEDULER_NAME:
        return True
    labels = pod.metadata.labels or {}
    if any(key in labels for key in (*PROJECT_LABELS, *GROUP_LABELS, *PREEMPTIBILITY_LABELS)):
        return True
    notes = pod.metadata.annotations or {}
    return not LABELS.isdisjoint(labels) or not NOTES.isdisjoint(notes) or names.GATE in pod.gates


def _judge(
    pod: Pod, request: Request, projects: ProjectIndex, origin: Origin
) -> PodCase | Decision:
    """The pod as a case to act on, or a final decision."""
    project = _project_of(pod, projects)
    if isinstance(project, Refused):
        return refused(project)
    if project is None:
        return _without_project(pod)
    try:
        translation = translate(pod) if speaks(pod) else None
    except UnitError as error:
        return refused(Refused(Reason.INVALID_REQUEST, f"{pod_name(pod)}: {error}"))
    if translation:
        pod = translation.of(pod)
    demand = read_demand(pod)
    if isinstance(demand, Refused):
        return refused(demand)
    catalog = projects.catalog
    _clear_default_class(pod, project, catalog)
    kind = _kind_of(pod, origin)
    case = PodCase(
        pod=pod,
        demand=demand,
        project=project,
        kind=kind,
        priority_class=pod.spec.priority_class_name or names.CLASS_OF_KIND.get(kind, ""),
        classes=catalog.classes,
        origin=origin,
        is_of_daemon_set=_is_of_daemon_set(pod, request),
        department=catalog.departments.get(project.spec.department),
        pools=catalog.pools,
        translation=translation,
    )
    violation = _violation(case)
    return refused(violation) if violation else case


def _clear_default_class(pod: Pod, project: GpuProject, catalog: Catalog) -> None:
    """Clears the pod's class if it is the cluster's default one, which the API server writes into
    every pod without a class. A project that lists the class keeps it."""
    name = pod.spec.priority_class_name
    known = catalog.classes.get(name)
    if known and known.global_default and name not in project.spec.allowed_priority_classes:
        pod.spec.priority_class_name, pod.spec.priority = "", None


def _kind_of(pod: Pod, origin: Origin) -> str:
    """The kind of the pod's work: its label, its priority class, its owner or JupyterHub says."""
    spec = pod.spec
    usual = INTERACTIVE if pod.metadata.label(NOTEBOOK_LABEL) else USUAL_KIND
    return (
        pod.metadata.label(names.LABEL_WORKLOAD_KIND)
        or KIND_OF_CLASS.get(names.class_of(spec.priority_class_name, spec.priority))
        or origin.work
        or usual
    )


def _is_of_daemon_set(pod: Pod, request: Request) -> bool:
    """Whether a DaemonSet's controller creates the pod."""
    owner, maker = pod.metadata.controller, request.user_info.username
    return owner is not None and owner.kind == "DaemonSet" and maker in ("", *DAEMON_SET_MAKERS)


def _violation(case: PodCase) -> Refused | None:
    """The first rule that the pod breaks."""
    pod = case.pod
    why = validate.check_reserved(pod) or validate.check_words(pod)
    if why:
        return why
    if case.demand.is_gpu_work:
        return (
            validate.check_scheduler(pod, case.project)
            or validate.check_request(pod, case.demand)
            or validate.check_class(pod, case.priority_class, case.project, case.classes)
            or _daemon_set_refusal(case)
            or limits.check_node_labels(case)
            or limits.check_limits(case)
        )
    return _gate_refusal(pod, "the pod requests no GPU") if names.GATE in pod.gates else None


def _daemon_set_refusal(case: PodCase) -> Refused | None:
    """Why a DaemonSet's pod may not use a MIG instance or a claim, or None if it uses neither.

    Such a pod has no gate, and with a MIG instance no milli-GPU, so the controller would not decide
    on it; the extender does not know which nodes deliver cards by claims.
    """
    is_claim = case.delivery in BY_CLAIMS
    if not case.is_of_daemon_set or not (is_claim or case.demand.counted_milli):
        return None
    what = "ask for GPUs by claims" if is_claim else "have a MIG instance"
    return Refused(
        Reason.INVALID_REQUEST,
        f"{pod_name(case.pod)}: a pod of a DaemonSet can't {what} in the namespace of"
        " a GpuProject: ask for a share of a card (annotation gpu-fraction) or for whole GPUs"
        f" ({names.NVIDIA_GPU}), or use a Deployment",
    )


def _project_of(pod: Pod, projects: ProjectIndex) -> GpuProject | Refused | None:
    """The pod's project by its labels and namespace.

    In a namespace without a project only our own label counts: other labels may be meant for
    another scheduler.
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
        key = written(pod.metadata.labels, PROJECT_LABELS)
        return Refused(found.reason, f"{pod_name(pod)}: label {key}: {found.detail}")
    return found


def _without_project(pod: Pod) -> Decision:
    """The decision about a pod in a namespace without a project."""
    cure = (
        f"namespace {pod.metadata.namespace} belongs to no project; an administrator can list it"
        " in spec.namespaces of a GpuProject"
    )
    if why := validate.check_reserved(pod):
        return refused(why)
    if names.GATE in pod.gates:
        return refused(_gate_refusal(pod, cure))
    if not mentions_gpu(pod):
        return allowed()
    if pod.spec.scheduler_name == names.SCHEDULER_NAME:
        return refused(Refused(Reason.UNKNOWN_PROJECT, f"{pod_name(pod)}: {cure}"))
    notes = pod.metadata.annotations or {}
    share = next((key for key in SHARE_ANNOTATIONS if key in notes), "")
    if share and pod.spec.scheduler_name in validate.USUAL_SCHEDULERS:
        text = (
            f"{pod_name(pod)}: annotation {share} would have no effect, and the pod no GPU: {cure}"
        )
        return refused(Refused(Reason.UNKNOWN_PROJECT, text))
    return warned(f"Ballast leaves this GPU request alone: {cure}")


def _gate_refusal(pod: Pod, why: str) -> Refused:
    return Refused(
        Reason.INVALID_REQUEST,
        f"{pod_name(pod)}: remove the scheduling gate {names.GATE}, Ballast would never remove it:"
        f" {why}",
    )


def _warnings(case: PodCase) -> list[str]:
    """Warnings about legal fields that may not have the effect that their author expects."""
    return [*limits.warnings(case), *misspelt(case.pod)]


def _warnings_without_owner(case: PodCase) -> Iterator[str]:
    """Warnings about a missing group, group size or owner."""
    is_alone = case.pod.metadata.controller is None
    if case.states_minimum and not case.group:
        notes = case.pod.metadata.annotations or {}
        keys = names.ANNOTATION_SUB_GROUPS, names.ANNOTATION_MIN_MEMBER
        key = next((key for key in keys if key in notes), names.ANNOTATION_MIN_MEMBER)
        yield f"{key} has no effect without {names.LABEL_POD_GROUP}"
    if case.pod.metadata.annotation(names.ANNOTATION_FLOOR) and not case.replica_of:
        yield (
            f"{names.ANNOTATION_FLOOR} has no effect on this pod: state it in the pod template of a"
            " Deployment or the like"
        )
    if is_alone and case.demand.is_gpu_work and preemptibility_of(case) == names.PREEMPTIBLE:
        yield (
            "this pod may be evicted for other work, and no controller creates it again: let a Job"
            f" create it, or set its label {names.LABEL_PREEMPTIBILITY}: {names.NON_PREEMPTIBLE},"
            " and it runs within the project's quota only"
        )
    if is_alone and case.stated_group and not case.states_minimum:
        yield (
            f"the pods of group {case.stated_group} start one by one unless a GpuPodGroup of that"
            f" name, or their annotation {names.ANNOTATION_MIN_MEMBER}, says how many must run"
            " together"
        )
