"""Projections of core Kubernetes objects: only the fields that Ballast reads.

msgspec skips other fields, so a 4 KiB pod takes a few hundred bytes. Projections are never written
back: writes are patches of single fields. Lists and maps default to empty, or to None if Kubernetes
may send an explicit null.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

Quantity = int | str


class OwnerReference(Struct, rename="camel", gc=False, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """The metadata of any object. The API server sets `creation_timestamp`."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] | None = None

    def label(self, key: str) -> str:
        """The label's value, or the empty string."""
        return self.labels.get(key, "") if self.labels else ""

    def annotation(self, key: str) -> str:
        """The annotation's value, or the empty string."""
        return self.annotations.get(key, "") if self.annotations else ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The controller that would create this object again, if any."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Resources(Struct, rename="camel", gc=False):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Port(Struct, rename="camel", gc=False):
    host_port: int = 0


class Container(Struct, rename="camel", gc=False):
    name: str = ""
    resources: Resources = field(default_factory=Resources)
    restart_policy: str = ""
    ports: list[Port] | None = None


class ClaimSource(Struct, rename="camel", gc=False):
    claim_name: str = ""


class EphemeralSource(Struct, gc=False):
    """A PersistentVolumeClaim that is created for the pod; its fields are not read."""


class Volume(Struct, rename="camel", gc=False):
    """A volume of a pod; only sources that are PersistentVolumeClaims are read."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class SpreadConstraint(Struct, rename="camel", gc=False):
    when_unsatisfiable: str = ""


class PodResourceClaim(Struct, rename="camel", gc=False):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(Struct, gc=False):
    name: str


class Requirement(Struct, gc=False):
    """One expression of a node selector term.

    `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt.
    """

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Struct, rename="camel", gc=False):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Struct, rename="camel", gc=False):
    node_selector_terms: list[NodeSelectorTerm] = field(default_factory=list)


class NodeAffinity(Struct, gc=False):
    required: NodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Struct, rename="camel", gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class BudgetSpec(Struct, rename="camel", gc=False, kw_only=True):
    """The pods that a PodDisruptionBudget selects; without a selector, none."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class BudgetStatus(Struct, rename="camel", gc=False, kw_only=True):
    """The figures that the disruption controller computed for `observed_generation`."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Struct, gc=False, kw_only=True):
    """How many pods of an application may be disrupted at once (policy/v1)."""

    metadata: ObjectMeta
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)


class PodAffinityTerm(Struct, rename="camel", gc=False, kw_only=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(Struct, gc=False):
    """Pod affinity or anti-affinity; preferred terms are not read."""

    required: list[PodAffinityTerm] | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, rename="camel", gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSchedulingGroup(Struct, rename="camel", gc=False):
    """The PodGroup of scheduling.k8s.io that a pod belongs to (Kubernetes 1.36 and newer)."""

    pod_group_name: str = ""


class WorkloadReference(Struct, rename="camel", gc=False):
    """The predecessor of PodSchedulingGroup in Kubernetes 1.35."""

    name: str = ""


class PodSpec(Struct, rename="camel", gc=False, kw_only=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    volumes: list[Volume] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    resources: Resources | None = None
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class Condition(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """A condition of any object, as in Kubernetes' API conventions.

    Unset fields are omitted, since the API server refuses a null for a time.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class ContainerStatus(Struct, rename="camel", gc=False, kw_only=True):
    """The resources of a container; during an in-place resize they differ from the spec."""

    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: Resources | None = None


class PodClaimStatus(Struct, rename="camel", gc=False):
    """The ResourceClaim that was created from a template for the claim `name` of the pod."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Struct, rename="camel", gc=False, kw_only=True):
    phase: str = ""
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: dict[str, Quantity] | None = None
    resources: Resources | None = None
    resource_claim_statuses: list[PodClaimStatus] | None = None


class Pod(Struct, gc=False):
    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def gates(self) -> list[str]:
        """Names of the pod's scheduling gates."""
        return [gate.name for gate in self.spec.scheduling_gates or ()]

    @property
    def claim_names(self) -> list[str]:
        """Names of the pod's ResourceClaims that are known, each once."""
        listed = [*(self.spec.resource_claims or ()), *(self.status.resource_claim_statuses or ())]
        return list(
            dict.fromkeys(each.resource_claim_name for each in listed if each.resource_claim_name)
        )

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has ended, so that it holds no resources."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Struct, gc=False):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, gc=False):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeStatus(Struct, gc=False):
    capacity: dict[str, Quantity] = field(default_factory=dict)
    allocatable: dict[str, Quantity] = field(default_factory=dict)
    conditions: list[Condition] | None = None


class Node(Struct, gc=False):
    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class Namespace(Struct, gc=False):
    metadata: ObjectMeta


class PriorityClass(Struct, rename="camel", gc=False):
    metadata: ObjectMeta
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    global_default: bool = False


class Secret(Struct, gc=False):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class LeaseSpec(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, gc=False, omit_defaults=True):
    metadata: ObjectMeta
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class PodTemplateSpec(Struct):
    """The template from which an owner creates its pods."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class PodTemplateRef(Struct, gc=False):
    name: str = ""


class PodSet(Struct, rename="camel", gc=False):
    pod_template_ref: PodTemplateRef = field(default_factory=PodTemplateRef)


class ProvisioningRequestSpec(Struct, rename="camel", gc=False):
    pod_sets: list[PodSet] = field(default_factory=list)


class ProvisioningRequestStatus(Struct, gc=False):
    conditions: list[Condition] | None = None


class ProvisioningRequest(Struct, gc=False, omit_defaults=True):
    """A request for nodes to a cluster autoscaler (group autoscaling.x-k8s.io)."""

    metadata: ObjectMeta
    spec: ProvisioningRequestSpec = field(default_factory=ProvisioningRequestSpec)
    status: ProvisioningRequestStatus = field(default_factory=ProvisioningRequestStatus)


class PodTemplate(Struct, gc=False, omit_defaults=True):
    """The pods of a ProvisioningRequest; written, and never read."""

    metadata: ObjectMeta


class Status(Struct, rename="camel", gc=False, kw_only=True):
    """The body of a failed request, and of an ERROR event inside a watch."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None
