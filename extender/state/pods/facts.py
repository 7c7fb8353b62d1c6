"""What a pod's own fields say, read once per event and kept instead of the pod.

Rows, projects and groups are not read here: `extender.state.workloads.collection` joins them.
"""

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from extender.api import names
from extender.api.aliases import (
    GROUP_LABELS,
    PREEMPTIBILITY_LABELS,
    SUB_GROUP_LABELS,
    TOPOLOGY_KEYS,
    TOPOLOGY_PREFERRED_KEYS,
    TOPOLOGY_REQUIRED_KEYS,
    USER_LABELS,
    first_of,
)
from extender.api.demand import Demand, delivery_of, mentions_gpu, read_plugin_cards
from extender.api.kinds import RestartPolicy, TopologyConstraint
from extender.api.objects import (
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
)
from extender.api.reasons import Reason, Refused
from extender.state.model import ANYWHERE, Constraints, Labels, ReplicaOf
from extender.state.pods.claims import read_claim_names
from extender.state.pods.constraints import (
    MAX_BYTES,
    read_constraints,
    read_doubts,
    split_names,
    was_released,
)
from extender.state.pods.host_hold import HostHold, held_of_host, host_demand
from extender.state.pods.labels import share_labels
from extender.state.pods.replicas import read_replica
from extender.state.pods.restarts import read_restart_policy
from extender.state.pods.stated import Stated, read_stated
from extender.state.refusals import Refusals, read_answer, read_refusals

#: Reasons that are longer are not ours.
_MAX_REASON: Final = 63
#: How many distinct controllers are shared.
_MAX_SHARED: Final = 4_096
_makers: dict[tuple[str, str, str, str], OwnerReference] = {}

#: The API server's default.
_GRACE_S: Final = 30


class PodFacts(Struct, frozen=True, gc=False, kw_only=True):
    """A live pod that matters to Ballast: it requests GPUs, or has or had our gate.

    `group` is the name of its group, empty without one, and `sub_group` its leaf in it; `pools`
    and `nearness` are the node pools and topology levels in its annotations. `plan` is the
    controller's annotation; `written_cards` are the cards in the annotation of its Binding. `maker`
    is the controller that would recreate it. `is_held`: its owner does not want it to start yet.
    `has_read_claims`: it names ResourceClaims, and the webhook has read them for its project.
    `plugin_cards` counts whole cards from the device plugin; `is_mirror`: kubelet made it.
    `held_cpu_milli` and `held_memory_mib` are what kubelet allocated, which may exceed the demand
    for a while after an in-place resize. `never_preempts`: its priority class has
    `preemptionPolicy: Never`.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    demand: Demand
    problem: Refused | None
    is_gated: bool
    other_gates: tuple[str, ...]
    is_terminating: bool
    node: str
    priority: int
    created_at: int
    started_at: int
    constraints: Constraints
    labels: Labels
    group: str
    sub_group: str
    stated: Stated
    user: str
    nearness: TopologyConstraint | None
    pools: tuple[str, ...]
    preemptibility: str
    kind: str
    plan: str
    revoked: str
    refusals: Refusals
    answer: str
    claims: tuple[str, ...]
    doubts: str
    written_cards: str
    maker: OwnerReference | None = None
    placed_reason: str = ""
    has_read_claims: bool = False
    plugin_cards: int = 0
    is_mirror: bool = False
    priority_class: str = ""
    never_preempts: bool = False
    held_cpu_milli: int = 0
    held_memory_mib: int = 0
    grace_s: int = _GRACE_S
    ends_by: int = 0
    has_begun: bool = True
    is_ready: bool = True
    is_held: bool = False
    restart_policy: RestartPolicy = "Never"
    replica: ReplicaOf | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_controlled(self) -> bool:
        """Whether a controller would recreate the pod."""
        return self.maker is not None

    @property
    def maker_uid(self) -> str:
        """UID of the controller that would recreate the pod; empty without one."""
        return self.maker.uid if self.maker else ""

    @property
    def is_of_job(self) -> bool:
        """Whether a Job (batch/v1) creates the pod."""
        maker = self.maker
        return maker is not None and maker.kind == "Job" and maker.api_version.startswith("batch/")

    @property
    def is_direct(self) -> bool:
        """Whether the extender places the pod: it was never planned, has no group, is preemptible,
        and requests no share by a claim.

        The pods of a group are planned together or not at all, with our gate or without. Only the
        controller places non-preemptible pods, which must stay within quota: if the extender placed
        them too, both could use the same quota for different pods. The extender does not know which
        nodes give shares by claims.
        """
        has_plan = self.is_gated or self.plan or self.revoked
        is_preemptible = names.is_preemptible(self.priority, self.preemptibility)
        is_share = self.constraints.delivery == "share"
        return is_preemptible and not (has_plan or self.group or is_share)

    def hold_on(self, node: str, *, is_foreign: bool) -> HostHold:
        """What the pod holds of the node where it is or is planned, besides cards."""
        cpu_milli = max(self.demand.cpu_milli, self.held_cpu_milli)
        memory_mib = max(self.demand.memory_mib, self.held_memory_mib)
        hold = HostHold(node, cpu_milli, memory_mib, self.demand.counted)
        if not is_foreign:
            return hold
        return structs.replace(hold, namespace=self.namespace, labels=self.labels)


def unix_s(moment: datetime | None) -> int:
    """Unix seconds of an API time; 0 for None."""
    return int(moment.timestamp()) if moment else 0


def is_ours(pod: Pod, demand: Demand | Refused) -> bool:
    """Whether the pod is kept in full: it requests GPUs, even in a form we refuse, or had our gate.

    Decided from the pod as it is now, so a restart keeps the same pods.
    """
    if names.GATE in pod.gates or was_released(pod):
        return True
    return mentions_gpu(pod) if isinstance(demand, Refused) else demand.is_gpu_work


def waits_elsewhere(pod: Pod) -> bool:
    """Whether the pod waits for another scheduler, which alone decides where it runs.

    It was created before a project listed its namespace. Once bound, it counts by its cards.
    """
    is_waiting = not (pod.spec.node_name or names.GATE in pod.gates or was_released(pod))
    return is_waiting and pod.spec.scheduler_name != names.SCHEDULER_NAME


def has_read_claims(pod: Pod) -> bool:
    """Whether the pod names ResourceClaims that the webhook has read for its project."""
    return bool(pod.spec.resource_claims and pod.metadata.label(names.LABEL_PROJECT))


def group_of(pod: Pod) -> str:
    """The name of the pod's group, empty without one."""
    return first_of(pod.metadata.labels, GROUP_LABELS)


def is_held(meta: ObjectMeta) -> bool:
    """Whether an annotation on the pod or GpuPodGroup says that its pods should not start."""
    return meta.annotation(names.ANNOTATION_HOLD) == names.HOLD


def read_facts(pod: Pod, demand: Demand | Refused) -> PodFacts:
    """The facts of a pod; `demand` is what `read_demand` returned for it."""
    meta, spec, gates = pod.metadata, pod.spec, pod.gates
    asked = host_demand(pod) if isinstance(demand, Refused) else demand
    held = held_of_host(pod)
    stated, problem = read_stated(pod, asked)
    delivery = delivery_of(pod, asked)
    constraints = read_constraints(pod, delivery, asked.gpu_memory_mib)
    labels = share_labels(meta.labels or {})
    problem = problem or _refuse_gate(pod, asked) or _refuse_large(meta, constraints, labels)
    kind, replica = meta.label(names.LABEL_WORKLOAD_KIND), read_replica(meta)
    preemptibility = first_of(meta.labels, PREEMPTIBILITY_LABELS)
    return PodFacts(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        demand=asked,
        problem=demand if isinstance(demand, Refused) else problem,
        is_gated=names.GATE in gates,
        other_gates=tuple(gate for gate in gates if gate != names.GATE),
        is_terminating=meta.deletion_timestamp is not None,
        node=spec.node_name,
        priority=_priority(spec, kind),
        created_at=unix_s(meta.creation_timestamp),
        started_at=unix_s(pod.status.start_time),
        constraints=constraints or ANYWHERE,
        labels=labels or (),
        group=group_of(pod),
        sub_group=first_of(meta.labels, SUB_GROUP_LABELS),
        stated=stated,
        user=first_of(meta.labels, USER_LABELS),
        nearness=_read_nearness(meta.annotations or {}),
        pools=split_names(meta.annotation(names.ANNOTATION_NODE_POOLS)),
        preemptibility=names.PREEMPTIBLE if replica else preemptibility,
        kind=kind,
        plan=meta.annotation(names.ANNOTATION_PLAN),
        revoked=meta.annotation(names.ANNOTATION_REVOKED),
        refusals=read_refusals(meta.annotation(names.ANNOTATION_REFUSED)),
        answer=read_answer(pod),
        claims=read_claim_names(pod),
        doubts=read_doubts(pod, delivery),
        written_cards=meta.annotation(names.ANNOTATION_CARDS),
        maker=_share_maker(meta),
        placed_reason=_read_placed_reason(pod),
        priority_class=spec.priority_class_name,
        never_preempts=spec.preemption_policy == names.NEVER_PREEMPTS,
        held_cpu_milli=held[0],
        held_memory_mib=held[1],
        has_read_claims=has_read_claims(pod),
        plugin_cards=0 if _is_holder(meta) else read_plugin_cards(pod),
        is_mirror=bool(meta.annotation(names.ANNOTATION_MIRROR)),
        grace_s=_grace_of(spec),
        ends_by=unix_s(meta.deletion_timestamp),
        has_begun=pod.status.phase != "Pending",
        is_ready=_is_ready(pod),
        is_held=is_held(meta),
        restart_policy=read_restart_policy(spec),
        replica=replica,
    )


def _is_holder(meta: ObjectMeta) -> bool:
    """Whether it is the node agent's own pod, which keeps the device plugin off a shared card."""
    return meta.namespace == names.NODE_NAMESPACE and meta.name.startswith(names.HOLDER_PREFIX)


def _refuse_gate(pod: Pod, demand: Demand) -> Refused | None:
    """Why a gated pod that requests no GPU is not released: the ledger has nothing to reserve."""
    if names.GATE not in pod.gates or demand.is_gpu_work:
        return None
    meta = pod.metadata
    return Refused(
        Reason.INVALID_REQUEST,
        f"{meta.key}: it requests no GPU: create it without the scheduling gate {names.GATE}",
    )


def _refuse_large(
    meta: ObjectMeta, constraints: Constraints | None, labels: Labels | None
) -> Refused | None:
    """Why a pod with labels or constraints that are too large to keep is not planned."""
    too_large = "labels" if labels is None else ""
    if constraints is None:
        too_large = "node selector, affinity and tolerations"
    if not too_large:
        return None
    text = f"{meta.key}: its {too_large} have more than {MAX_BYTES} bytes"
    return Refused(Reason.INVALID_REQUEST, text)


def _share_maker(meta: ObjectMeta) -> OwnerReference | None:
    """The pod's controller; all pods of a controller share one object."""
    maker = meta.controller
    if maker is None:
        return None
    if len(_makers) >= _MAX_SHARED:
        _makers.clear()
    key = maker.api_version, maker.kind, maker.name, maker.uid
    return _makers.setdefault(key, maker)


def _read_placed_reason(pod: Pod) -> str:
    """The reason of the condition `ballast.dev/Placed` while it is False, else empty."""
    for each in pod.status.conditions or ():
        if each.type == names.CONDITION_PLACED and each.status == "False":
            return sys.intern(each.reason[:_MAX_REASON])
    return ""


def _is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())


def _read_nearness(notes: Mapping[str, str]) -> TopologyConstraint | None:
    """The topology constraint in the annotations; None if there is none."""
    required = first_of(notes, TOPOLOGY_REQUIRED_KEYS)
    preferred = first_of(notes, TOPOLOGY_PREFERRED_KEYS)
    if not required and not preferred:
        return None
    return TopologyConstraint(
        topology=first_of(notes, TOPOLOGY_KEYS),
        required_topology_level=required,
        preferred_topology_level=preferred,
    )


def _priority(spec: PodSpec, kind: str) -> int:
    """The pod's priority. Admission sets it; pods made by hand may only name a class."""
    if spec.priority is not None:
        return spec.priority
    usual = names.CLASS_OF_KIND.get(kind, names.CLASS_OF_KIND["training"])
    return names.CLASS_VALUES.get(spec.priority_class_name or usual, 0)


def _grace_of(spec: PodSpec) -> int:
    asked = spec.termination_grace_period_seconds
    return _GRACE_S if asked is None else max(0, asked)
