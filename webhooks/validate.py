"""Rules that a pod must obey: each reads the pod and its project, and returns None or a refusal.

The policy language of the API server cannot express these rules: numbers, names that must agree,
and what a project allows. Every refusal says what is accepted.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from extender.api import classes, names
from extender.api.aliases import (
    GROUP_LABELS,
    PREEMPTIBILITY_LABELS,
    SUB_GROUP_LABELS,
    agreed,
    check_aliases,
    written,
)
from extender.api.demand import (
    COMPUTE_LIMIT,
    MEMORY,
    Demand,
    fraction_container,
    pod_name,
    read_compute,
    read_memory_limit,
    shares_cards,
)
from extender.api.kinds import GpuProject
from extender.api.names import DNS_LABEL
from extender.api.objects import Pod, PriorityClass
from extender.api.reasons import Reason, Refused
from extender.api.units import UnitError
from extender.api.workload import (
    read_checkpoint,
    read_floor,
    read_min_member,
    read_run,
    read_sub_groups,
    read_weight,
)

#: Written by our programs only: a new pod that has one claims a decision that was never made.
RESERVED_ANNOTATIONS: Final = (
    names.ANNOTATION_PLAN,
    names.ANNOTATION_CARDS,
    names.ANNOTATION_REVOKED,
    names.ANNOTATION_REFUSED,
)
PREEMPTIBILITIES: Final = (names.PREEMPTIBLE, names.NON_PREEMPTIBLE)
HOLDS: Final = ("true", "false")
MAX_NODE_POOLS: Final = 16


#: Scheduler names that a pod has by default: the stock one, and the one that GKE's autoscaling
#: profile optimize-utilization writes into pods.
USUAL_SCHEDULERS: Final = ("", "default-scheduler", "gke.io/optimize-utilization-scheduler")


def check_reserved(pod: Pod) -> Refused | None:
    """Why the pod may not have some of its annotations, or None."""
    found = [key for key in RESERVED_ANNOTATIONS if key in (pod.metadata.annotations or {})]
    if not found:
        return None
    return _invalid(
        pod,
        f"only Ballast writes {', '.join(found)}: remove these annotations; in a copy of another"
        " pod also spec.nodeName",
    )


def check_words(pod: Pod) -> Refused | None:
    """Why a label or annotation of Ballast is invalid, or None."""
    meta = pod.metadata
    try:
        kind = meta.label(names.LABEL_WORKLOAD_KIND)
        _one_of(names.LABEL_WORKLOAD_KIND, kind, names.KINDS)
        preemptibility = agreed(meta.labels, PREEMPTIBILITY_LABELS)
        of_preemptibility = written(meta.labels, PREEMPTIBILITY_LABELS)
        _one_of(of_preemptibility, preemptibility, PREEMPTIBILITIES)
        for keys in (GROUP_LABELS, SUB_GROUP_LABELS):
            name = agreed(meta.labels, keys)
            if name and not DNS_LABEL.fullmatch(name):
                raise UnitError(f"{written(meta.labels, keys)}: {_not_a_name(name)}")
        check_aliases(meta)
        min_member = read_min_member(meta.annotations, meta.labels)
        read_sub_groups(meta.annotations, min_member)
        if read_floor(meta.annotations) and preemptibility == names.NON_PREEMPTIBLE:
            raise UnitError(
                f"{names.ANNOTATION_FLOOR} and {of_preemptibility}: {preemptibility} are both"
                " there; with the former, replicas above the floor may be evicted: keep one"
            )
        read_checkpoint(meta.annotations)
        read_run(pod)
        read_weight(meta.annotations)
        _check_node_pools(meta.annotation(names.ANNOTATION_NODE_POOLS))
        _one_of(names.ANNOTATION_HOLD, meta.annotation(names.ANNOTATION_HOLD), HOLDS)
    except UnitError as error:
        return _invalid(pod, str(error))
    return None


def check_scheduler(pod: Pod, project: GpuProject) -> Refused | None:
    """Why a GPU pod of a project may not name this scheduler, or None."""
    named = pod.spec.scheduler_name
    if named in (*USUAL_SCHEDULERS, names.SCHEDULER_NAME):
        return None
    return _invalid(
        pod,
        f"schedulerName: {named!r:.80} may not allocate GPUs in namespace"
        f" {pod.metadata.namespace}, which belongs to project {project.metadata.name}: leave"
        f" schedulerName out ({names.SCHEDULER_NAME} takes its place; if a webhook set it, exclude"
        " the namespace there), or create the pod in a namespace that no GpuProject lists",
    )


def check_request(pod: Pod, demand: Demand) -> Refused | None:
    """Why other fields of the pod contradict its GPU request, or None."""
    notes = pod.metadata.annotations or {}
    try:
        # The webhook writes this for a request in MiB (`gpu_milli_request`).
        if demand.milli == 1 and not shares_cards(notes):
            raise UnitError(
                f"requests {names.GPU_MILLI}: 1 without the annotation {MEMORY} that it stands for"
                f' (kubectl debug --copy-to leaves annotations out): give {MEMORY}, such as "8192"'
            )
        fraction_container(pod)
        read_compute(pod, demand)
        read_memory_limit(notes)
    except UnitError as error:
        return _invalid(pod, str(error))
    return None


def states_compute_limit(pod: Pod) -> bool:
    """Whether the pod states a limit on its share of a card's compute time."""
    notes = pod.metadata.annotations or {}
    return COMPUTE_LIMIT in notes or names.ANNOTATION_COMPUTE_LIMIT in notes


def check_class(
    pod: Pod, priority_class: str, project: GpuProject, known: Mapping[str, PriorityClass]
) -> Refused | None:
    """Why the project does not allow the priority class, or None."""
    why = class_refusal(priority_class, project, known)
    return _invalid(pod, why) if why else None


def class_refusal(
    priority_class: str, project: GpuProject, known: Mapping[str, PriorityClass]
) -> str:
    """Why the project does not allow the priority class; empty if it does.

    `known` are the cluster's classes: a class with an alias's name but another value is not ours.
    """
    values = {name: found.value for name, found in known.items()}
    allowed = project.spec.allowed_priority_classes
    return classes.class_refusal(priority_class, project.metadata.name, allowed, values)


def _one_of(key: str, value: str, accepted: Sequence[str]) -> None:
    if value and value not in accepted:
        raise UnitError(f"{key}: {value!r:.80} is not one of {', '.join(accepted)}")


def _check_node_pools(text: str) -> None:
    if not text:
        return
    pools = text.split(",", MAX_NODE_POOLS)
    if len(pools) > MAX_NODE_POOLS or len(set(pools)) < len(pools):
        accepted = f"at most {MAX_NODE_POOLS} different names of node pools"
        raise UnitError(f'{names.ANNOTATION_NODE_POOLS}: give {accepted}, such as "a100,default"')
    for pool in pools:
        if not DNS_LABEL.fullmatch(pool):
            raise UnitError(
                f"{names.ANNOTATION_NODE_POOLS}: {pool[:80]!r} is not the name of a node pool; give"
                ' names separated by commas, without spaces, such as "a100,default"'
            )


def _not_a_name(text: str) -> str:
    return (
        f'{text[:80]!r} is not a name of at most 63 characters of a-z, 0-9 and -, such as "train-7"'
    )


def _invalid(pod: Pod, what: str) -> Refused:
    return Refused(Reason.INVALID_REQUEST, f"{pod_name(pod)}: {what}")
