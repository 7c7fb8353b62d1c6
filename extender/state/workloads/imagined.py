"""Workloads that were not submitted, built from pod templates by the rules for real pods."""

from datetime import UTC, datetime

from msgspec import Struct, structs

from extender.api import names
from extender.api.aliases import GROUP_LABELS, PROJECT_LABELS, first_of
from extender.api.demand import read_demand
from extender.api.objects import ObjectMeta, OwnerReference, Pod, PodSpec, SchedulingGate
from extender.api.reasons import Refused
from extender.state.model import PodView, WorkloadView
from extender.state.pods.facts import PodFacts, is_ours, read_facts
from extender.state.workloads.assembly import Assembly

#: Stands for the controller that would create the pods.
_OWNER = OwnerReference(kind="Imagined", name="imagined", uid="imagined", controller=True)


class PodSet(Struct, frozen=True):
    """`count` pods of one template."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: PodSpec
    count: int


class Wanted(Struct, frozen=True):
    """A workload that might be submitted at `created_at` (unix seconds)."""

    namespace: str
    name: str
    pod_sets: tuple[PodSet, ...]
    created_at: int


def imagine(assembly: Assembly, wanted: Wanted) -> WorkloadView | None:
    """The workload as if its pods existed: one gang of all its pods, unless their templates state
    a smaller `min-member`. None if no pod requests GPUs.

    Volumes are ignored, because their claims do not exist yet.
    """
    read = [(_facts(assembly, wanted, pod_set), pod_set.count) for pod_set in wanted.pod_sets]
    known = [(facts, count) for facts, count in read if facts is not None and count]
    if not known:
        return None
    n_pods = sum(count for _, count in known)
    # One pod of each set stands for all, because they differ only in their names.
    facts = [_of_gang(one, n_pods) for one, _ in known]
    node_labels = assembly.node_labels_of(facts, None)
    pods: list[PodView] = []
    for ix, (one, (_, count)) in enumerate(zip(facts, known, strict=True)):
        view = assembly.pod(one, node_labels, ())
        called = (f"{wanted.name}-{ix}-{number}" for number in range(count))
        pods += (structs.replace(view, uid=f"{wanted.namespace}/{n}", name=n) for n in called)
    workload = assembly.workload(f"{wanted.namespace}/{wanted.name}", facts, None, tuple(pods))
    problem = workload.problem or _refuse_project(assembly, wanted)
    return structs.replace(workload, problem=problem)


def _refuse_project(assembly: Assembly, wanted: Wanted) -> Refused | None:
    """Why admission would refuse the pods because of the project they name."""
    named = (first_of(pod_set.labels, PROJECT_LABELS) for pod_set in wanted.pod_sets)
    found = (assembly.project_of(wanted.namespace, name) for name in named)
    return next((each for each in found if isinstance(each, Refused)), None)


def _facts(assembly: Assembly, wanted: Wanted, pod_set: PodSet) -> PodFacts | None:
    """The facts of a pod of the set; None if it requests no GPU."""
    pod = _pod(assembly, wanted, pod_set)
    demand = read_demand(pod)
    if not is_ours(pod, demand):
        return None
    gated = structs.replace(pod.spec, scheduling_gates=[SchedulingGate(names.GATE)])
    return read_facts(structs.replace(pod, spec=gated), demand)


def _pod(assembly: Assembly, wanted: Wanted, pod_set: PodSet) -> Pod:
    labels = {k: v for k, v in pod_set.labels.items() if k not in GROUP_LABELS}
    metadata = ObjectMeta(
        name=wanted.name,
        namespace=wanted.namespace,
        labels={**labels, names.LABEL_POD_GROUP: wanted.name},
        annotations=pod_set.annotations,
        creation_timestamp=datetime.fromtimestamp(wanted.created_at, UTC),
        owner_references=[_OWNER],
    )
    spec = pod_set.spec
    if spec.priority is None and spec.priority_class_name:
        # As the API server's admission would.
        spec = structs.replace(spec, priority=assembly.class_values.get(spec.priority_class_name))
    return Pod(metadata, structs.replace(spec, node_name="", scheduling_gates=None, volumes=None))


def _of_gang(facts: PodFacts, n_pods: int) -> PodFacts:
    if facts.stated.min_member:
        return facts
    return structs.replace(facts, stated=structs.replace(facts.stated, min_member=n_pods))
