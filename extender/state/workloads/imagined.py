"""Workloads that were not submitted, made of pod templates by the rules that make them of pods."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct, structs

from extender.api import names
from extender.api.demand import GROUP_LABELS, read_demand
from extender.api.objects import ObjectMeta, OwnerReference, Pod, PodSpec, SchedulingGate
from extender.state.model import WorkloadView
from extender.state.pods.facts import PodFacts, is_ours, read_facts
from extender.state.workloads.assembly import Assembly

#: Stands for the controller that would make the pods.
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
    """The workload as it would be if its pods were there: one gang, of all its pods unless their
    templates state a smaller `min-member`. None where no pod asks for GPUs.

    Volumes are not looked at: their claims are yet to be made.
    """
    facts = [one for ix in range(len(wanted.pod_sets)) for one in _facts(assembly, wanted, ix)]
    if not facts:
        return None
    facts = [_of_gang(one, len(facts)) for one in facts]
    node_labels = assembly.node_labels_of(facts, None)
    pods = tuple(assembly.pod(one, node_labels, ()) for one in facts)
    return assembly.workload(f"{wanted.namespace}/{wanted.name}", facts, None, pods)


def _facts(assembly: Assembly, wanted: Wanted, ix: int) -> Sequence[PodFacts]:
    """What is known of each pod of one set; nothing of pods that are no matter of GPUs."""
    pod_set = wanted.pod_sets[ix]
    pod = _pod(assembly, wanted, pod_set)
    demand = read_demand(pod)
    if not is_ours(pod, demand):
        return ()
    gated = structs.replace(pod.spec, scheduling_gates=[SchedulingGate(names.GATE)])
    first = read_facts(structs.replace(pod, spec=gated), demand)
    called = [f"{wanted.name}-{ix}-{number}" for number in range(pod_set.count)]
    return [structs.replace(first, uid=f"{wanted.namespace}/{n}", name=n) for n in called]


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
        # What the API server's admission would state.
        spec = structs.replace(spec, priority=assembly.class_values.get(spec.priority_class_name))
    return Pod(metadata, structs.replace(spec, node_name="", scheduling_gates=None, volumes=None))


def _of_gang(facts: PodFacts, n_pods: int) -> PodFacts:
    return facts if facts.min_member else structs.replace(facts, min_member=n_pods)
