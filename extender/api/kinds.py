"""The custom resources of group ballast.dev: the Structs from which the CRDs are generated.

Quotas are written by people, so they are numbers of GPUs or Kubernetes quantities and are parsed
with `extender.api.units`. Ledger rows are written by programs, so they are integers: milli and MiB.
Field docs here become the descriptions that `kubectl explain` shows (`extender.api.crd`).

What people write omits defaults. A status is written whole: it goes out as a merge patch, which
would keep an old value wherever the new one is a default and so left out.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from extender.api.names import API_VERSION
from extender.api.objects import Condition, ObjectMeta, Quantity
from extender.api.units import GPUS_PATTERN, MAX_TEXT, QUANTITY_PATTERN

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Natural = Annotated[int, Meta(ge=0)]
GpuCount = Annotated[
    Quantity,
    Meta(
        description='A number of GPUs with at most three decimals: 4 or "2.5".',
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "pattern": f"^{GPUS_PATTERN}$",
            "minimum": 0,
            "maxLength": MAX_TEXT,
        },
    ),
]
KubeQuantity = Annotated[
    Quantity,
    Meta(
        description='A Kubernetes quantity: "500m", "32" or "128Gi".',
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "pattern": f"^{QUANTITY_PATTERN}$",
            "minimum": 0,
            "maxLength": 2 * MAX_TEXT,
        },
    ),
]


class GpuFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Quota, limit and weight of GPUs. No limit means unlimited."""

    quota: GpuCount = 0
    limit: GpuCount | None = None
    over_quota_weight: Annotated[
        int, Meta(ge=0, description="Share of what is over quota; 0 gives none.")
    ] = 1


class HostFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Quota, limit and weight of CPU or memory. No quota means not counted; no limit, unlimited."""

    quota: KubeQuantity | None = None
    limit: KubeQuantity | None = None
    over_quota_weight: Natural = 1


class PoolFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue may have in one node pool."""

    name: Name
    gpu: GpuFigures = field(default_factory=GpuFigures)
    cpu: HostFigures = field(default_factory=HostFigures)
    memory: HostFigures = field(default_factory=HostFigures)
    rank: Annotated[
        int, Meta(description="Lower ranks share what is over quota before higher ones.")
    ] = 0


class PoolUse(Struct, rename="camel", kw_only=True):
    """What a queue was given in one node pool at the last cycle; GPUs as numbers of GPUs."""

    name: Name
    quota: str = "0"
    fair_share: str = "0"
    allocated: str = "0"
    allocated_non_preemptible: str = "0"
    requested: str = "0"


class QueueSummary(Struct, rename="camel", kw_only=True):
    """The sums over all node pools, for printer columns."""

    quota: str = "0"
    fair_share: str = "0"
    allocated: str = "0"
    requested: str = "0"
    pending_pods: Natural = 0
    running_pods: Natural = 0


class QueueStatus(Struct, rename="camel", kw_only=True):
    """Shares and allocations of a Department or Project."""

    state: Literal["InQuota", "OverQuota", "OverFairShare"] = "InQuota"
    gpu: QueueSummary = field(default_factory=QueueSummary)
    node_pools: list[PoolUse] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class DepartmentSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    node_pools: list[PoolFigures] = field(default_factory=list)


class Department(Struct, rename="camel", kw_only=True):
    """A part of the organisation: its projects share its quota."""

    metadata: ObjectMeta
    spec: DepartmentSpec = field(default_factory=DepartmentSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


class KindSelector(Struct, rename="camel", kw_only=True):
    """Node labels that one kind of work of a project must use."""

    workload_kind: Literal["training", "interactive", "build", "inference"]
    match_labels: dict[str, str]


class MinRuntime(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How long a workload runs before it may be taken, in seconds."""

    reclaim_seconds: Natural = 0
    preempt_seconds: Natural = 0


class ProjectSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    department: Name
    namespaces: Annotated[
        list[str], Meta(description="Namespaces whose pods belong to this project.")
    ] = field(default_factory=list)
    node_pools: list[PoolFigures] = field(default_factory=list)
    default_node_pools: Annotated[
        list[str], Meta(description="Node pools in order of preference; all its pools when empty.")
    ] = field(default_factory=list)
    node_affinity: list[KindSelector] = field(default_factory=list)
    allowed_priority_classes: Annotated[
        list[str], Meta(description="Priority classes its pods may name; any when empty.")
    ] = field(default_factory=list)
    min_runtime: MinRuntime = field(default_factory=MinRuntime)


class Project(Struct, rename="camel", kw_only=True):
    """A team: what its pods are counted against."""

    metadata: ObjectMeta
    spec: ProjectSpec
    status: QueueStatus = field(default_factory=QueueStatus)


class Placement(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Which node and card is preferred, for work with GPUs and work without."""

    gpu: Literal["binpack", "spread"] = "binpack"
    cpu: Literal["binpack", "spread"] = "binpack"


class TimeSlicing(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How compute time of a shared card is divided."""

    mode: Literal["Off", "Strict", "Fair"] = "Off"
    lease_milliseconds: Annotated[int, Meta(ge=10, le=10000)] = 250
    precision_percent: Annotated[int, Meta(ge=1, le=50)] = 5


class NodePoolSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    node_selector: dict[str, str] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    policy: Literal["fairshare", "demand-weighted", "priority"] = "fairshare"
    preemption: Literal["Enabled", "Disabled"] = "Enabled"
    time_slicing: TimeSlicing = field(default_factory=TimeSlicing)


class NodePoolStatus(Struct, rename="camel", kw_only=True):
    """GPUs as numbers of GPUs; `fragmented` is what is free on cards that are partly used."""

    nodes: Natural = 0
    capacity: str = "0"
    allocated: str = "0"
    fragmented: str = "0"
    conditions: list[Condition] = field(default_factory=list)


class NodePool(Struct, rename="camel", kw_only=True):
    """A set of nodes that is shared by one policy."""

    metadata: ObjectMeta
    spec: NodePoolSpec = field(default_factory=NodePoolSpec)
    status: NodePoolStatus = field(default_factory=NodePoolStatus)


class PodGroupSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    min_member: Annotated[int, Meta(ge=1, description="Pods that run together or not at all.")] = 1
    project: str = ""
    node_pools: list[str] = field(default_factory=list)
    priority_class_name: str = ""
    preemptibility: Literal["", "preemptible", "non-preemptible"] = ""
    max_concurrent_pods: Annotated[
        int | None, Meta(description="Pods of the group that may run at once.")
    ] = None
    expected_run_seconds: Annotated[
        int | None, Meta(description="Expected run time, used to backfill.")
    ] = None


class PodGroupStatus(Struct, rename="camel", kw_only=True):
    """Condition types: `Reserved`, `Scheduled`, `Evicted`; reasons as in extender.api.reasons."""

    pending: Natural = 0
    scheduled: Natural = 0
    running: Natural = 0
    conditions: list[Condition] = field(default_factory=list)


class PodGroup(Struct, rename="camel", kw_only=True):
    """Pods that are placed as one: a gang."""

    metadata: ObjectMeta
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class CardShare(Struct, rename={"memory_mib": "memoryMiB"}, frozen=True, gc=False):
    """What a pod holds of one card of its node."""

    index: Annotated[int, Meta(ge=0, le=63)]
    milli: Annotated[int, Meta(ge=1, le=1000)]
    memory_mib: Natural


RowState = Literal["nominated", "reserved", "bound"]


class Row(
    Struct,
    rename={
        "compute_request_milli": "computeRequestMilli",
        "compute_limit_milli": "computeLimitMilli",
        "non_preemptible": "nonPreemptible",
        "reserved_at": "reservedAt",
    },
    kw_only=True,
    frozen=True,
    omit_defaults=True,
    gc=False,
):
    """One pod's hold on one node's cards. The row, not the pod, is what the node enforces.

    `nominated` keeps a place until victims are gone, `reserved` may be bound, `bound` is bound.
    """

    uid: Name
    namespace: Name
    name: Name
    project: str = ""
    group: Annotated[str, Meta(description="Name of the pod's PodGroup; empty without one.")] = ""
    cards: list[CardShare]
    compute_request_milli: Natural = 0
    compute_limit_milli: Natural = 1000
    non_preemptible: bool = False
    state: RowState
    epoch: Annotated[int, Meta(description="The plan that made the row; 0 for a direct pod.")] = 0
    reserved_at: Annotated[int, Meta(description="Unix seconds when the row was written.")] = 0

    @property
    def identity(self) -> tuple[str, int, int]:
        """Tells this row from any other that its pod had or will have; its state may move on."""
        return self.uid, self.epoch, self.reserved_at

    @property
    def milli(self) -> int:
        """Milli-GPU held over all cards."""
        return sum(card.milli for card in self.cards)


class GpuNodeSpec(Struct, rename="camel", kw_only=True):
    rows: list[Row] = field(default_factory=list)


class Device(
    Struct, rename={"memory_mib": "memoryMiB"}, kw_only=True, omit_defaults=True, gc=False
):
    """One card as the node agent sees it."""

    index: Annotated[int, Meta(ge=0, le=63)]
    memory_mib: Natural
    uuid: str = ""
    model: str = ""
    health: Literal["Healthy", "Unhealthy"] = "Healthy"


class GpuNodeStatus(Struct, rename="camel", kw_only=True, omit_defaults=True):
    devices: list[Device] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class GpuNode(Struct, rename="camel", kw_only=True):
    """The ledger of one node: who holds which share of which card. Named as the Node."""

    metadata: ObjectMeta
    spec: GpuNodeSpec = field(default_factory=GpuNodeSpec)
    status: GpuNodeStatus = field(default_factory=GpuNodeStatus)


KINDS: tuple[type[Struct], ...] = (Department, Project, NodePool, PodGroup, GpuNode)


def api_version_of(kind: type[Struct]) -> str:
    """The apiVersion of one of `KINDS`; raises KeyError for any other type."""
    if kind not in KINDS:
        raise KeyError(kind.__name__)
    return API_VERSION
