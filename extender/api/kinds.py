"""The custom resources of group ballast.dev: the Structs from which the CRDs are generated.

Quotas are written by people, so they are numbers of GPUs or Kubernetes quantities and are parsed
with `extender.api.units`. Field docs here become the descriptions that `kubectl explain` shows
(`extender.api.crd`).

The ledger's kind is written by programs and lives in `extender.api.ledger`; it is found here too.

What people write omits defaults. A status is written whole: it goes out as a merge patch, which
would keep an old value wherever the new one is a default and so left out.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from extender.api.ledger import (
    CardShare,
    Device,
    ForeignHold,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MoveHold,
    Name,
    Natural,
    Row,
    RowState,
)
from extender.api.names import API_VERSION
from extender.api.objects import Condition, ObjectMeta
from extender.api.units import MAX_WEIGHT

#: Of the ledger's module, found here too.
__all__ = [
    "CardShare",
    "Device",
    "ForeignHold",
    "GpuNode",
    "GpuNodeSpec",
    "GpuNodeStatus",
    "MoveHold",
    "Row",
    "RowState",
]

#: A number or a text in YAML. A schema knows no "any number or text", so the API server stores any
#: value here, and the policy `figures.ballast.dev` refuses what is no figure.
_NumberOrText = int | float | str
_ANY_VALUE: Final = {"x-kubernetes-preserve-unknown-fields": True}
GpuCount = Annotated[
    _NumberOrText,
    Meta(
        description='A number of GPUs with at most three decimals: 4, 2.5 or "2.5".',
        extra_json_schema=_ANY_VALUE,
    ),
]
#: Up to a day: what is longer is no bound.
Seconds = Annotated[int, Meta(ge=0, le=86_400)]
KubeQuantity = Annotated[
    _NumberOrText,
    Meta(
        description='A Kubernetes quantity: "500m", 32, 1.5 or "128Gi".',
        extra_json_schema=_ANY_VALUE,
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
    over_quota_weight: Annotated[
        int, Meta(ge=0, description="Share of what is over quota; 0 gives none.")
    ] = 1


class PoolFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue may have in one node pool."""

    name: Annotated[Name, Meta(description="Name of a GpuNodePool; `default` needs none.")]
    gpu: GpuFigures = field(default_factory=GpuFigures)
    cpu: HostFigures = field(default_factory=HostFigures)
    memory: HostFigures = field(default_factory=HostFigures)
    rank: Annotated[
        int, Meta(description="Lower ranks share what is over quota before higher ones.")
    ] = 0


class HostUse(Struct, rename="camel", kw_only=True):
    """What a queue was given of CPU or memory, as Kubernetes quantities."""

    fair_share: str = "0"
    allocated: str = "0"
    requested: str = "0"


class PastUse(
    Struct,
    rename={
        "gpu": "gpuMilliSeconds",
        "cpu": "cpuMilliSeconds",
        "memory": "memoryMiBSeconds",
        "as_of": "asOf",
    },
    kw_only=True,
):
    """What was held times how long, fading; as it stood at `asOf`, in unix seconds."""

    gpu: Natural = 0
    cpu: Natural = 0
    memory: Natural = 0
    as_of: Natural = 0


class PoolUse(Struct, rename="camel", kw_only=True):
    """What a queue was given in one node pool at the last cycle; GPUs as numbers of GPUs.

    CPU and memory are told where they have a quota, past use where the node pool counts it.
    """

    name: Name
    quota: str = "0"
    fair_share: str = "0"
    allocated: str = "0"
    allocated_non_preemptible: str = "0"
    requested: str = "0"
    cpu: HostUse | UnsetType = UNSET
    memory: HostUse | UnsetType = UNSET
    past: PastUse | UnsetType = UNSET


class QueueSummary(Struct, rename="camel", kw_only=True):
    """The sums over all node pools, for printer columns."""

    quota: str = "0"
    limit: str = "unlimited"
    fair_share: str = "0"
    allocated: str = "0"
    borrowed: str = "0"
    requested: str = "0"
    waiting: str = "0"
    pending_pods: Natural = 0
    running_pods: Natural = 0


class QueueStatus(Struct, rename="camel", kw_only=True):
    """Shares and allocations of a GpuDepartment or GpuProject.

    Condition types: `Valid`, and `OverQuota` (True while its pods hold more than its quota).
    """

    observed_generation: Natural = 0
    state: Literal["InQuota", "OverQuota", "OverFairShare"] = "InQuota"
    gpu: QueueSummary = field(default_factory=QueueSummary)
    node_pools: list[PoolUse] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class GpuDepartmentSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    node_pools: Annotated[
        list[PoolFigures], Meta(description="What its projects may have together, per node pool.")
    ] = field(default_factory=list)


class GpuDepartment(Struct, rename="camel", kw_only=True):
    """A part of the organisation: its projects share its quota."""

    metadata: ObjectMeta
    spec: GpuDepartmentSpec = field(default_factory=GpuDepartmentSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


class KindSelector(Struct, rename="camel", kw_only=True):
    """Node labels that one kind of work of a project must use."""

    workload_kind: Annotated[
        Literal["training", "interactive", "build", "inference"],
        Meta(description="A value of the pods' label ballast.dev/workload-kind."),
    ]
    match_labels: Annotated[dict[str, str], Meta(description="Labels that the nodes must have.")]


class MinRuntime(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How long a workload runs before it may be taken, in seconds."""

    reclaim_seconds: Annotated[
        int, Meta(ge=0, description="Before it may be stopped for another project.")
    ] = 0
    preempt_seconds: Annotated[
        int, Meta(ge=0, description="Before it may be stopped for work of its own project.")
    ] = 0


class GpuProjectSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    department: Annotated[Name, Meta(description="Name of its GpuDepartment.")]
    namespaces: Annotated[
        list[str],
        Meta(
            description="Namespaces whose pods belong to this project. A namespace belongs to one"
            " project: the oldest that lists it."
        ),
    ] = field(default_factory=list)
    node_pools: Annotated[
        list[PoolFigures], Meta(description="What its pods may have, per node pool.")
    ] = field(default_factory=list)
    default_node_pools: Annotated[
        list[str], Meta(description="Node pools in order of preference; all its pools when empty.")
    ] = field(default_factory=list)
    node_affinity: Annotated[
        list[KindSelector], Meta(description="Which nodes each kind of its work must use.")
    ] = field(default_factory=list)
    allowed_priority_classes: Annotated[
        list[str], Meta(description="Priority classes its pods may name; any when empty.")
    ] = field(default_factory=list)
    min_runtime: MinRuntime = field(default_factory=MinRuntime)
    disruption_budget_seconds: Annotated[
        Seconds | None,
        Meta(description="As in the node pool, for pods of this project; absent: its value."),
    ] = None
    max_termination_grace_seconds: Annotated[
        Seconds | None,
        Meta(description="As in the node pool, for pods of this project; absent: its value."),
    ] = None


class GpuProject(Struct, rename="camel", kw_only=True):
    """A team: what its pods are counted against."""

    metadata: ObjectMeta
    spec: GpuProjectSpec
    status: QueueStatus = field(default_factory=QueueStatus)


PlacementRule = Literal["BinPack", "Spread", "LeastFragmentation", "BestFit", "FirstFit"]


class Placement(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Which node and card is preferred, for work with GPUs and work without.

    `LeastFragmentation` is fragmentation gradient descent: the place that makes the least GPU
    capacity useless for the kinds of work that the pool sees.
    """

    gpu: Annotated[PlacementRule, Meta(description="For pods that ask for GPUs.")] = "BinPack"
    cpu: Annotated[PlacementRule, Meta(description="For pods that ask for none.")] = "BinPack"


TimeSlicingMode = Literal["Disabled", "Strict", "Fair"]


class TimeSlicing(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How compute time of a shared card is divided."""

    mode: Annotated[
        TimeSlicingMode,
        Meta(
            description="Strict: exactly the pod's share. Fair: at least the share, and an equal"
            " part of what is idle. Disabled: the card's time is not divided."
        ),
    ] = "Disabled"
    lease_milliseconds: Annotated[
        int, Meta(ge=10, le=10000, description="How long one pod has the card at a time.")
    ] = 250
    precision_percent: Annotated[
        int, Meta(ge=1, le=50, description="Finest share: a plan has 100 / this many leases.")
    ] = 5


class TimeBasedFairShare(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Whether queues that used much in the past get less of what is over quota now.

    Off while the weight is 0. What was used counts half as much after every half-life.
    """

    weight_percent: Annotated[
        int, Meta(ge=0, le=1000, description="How strongly past use bends over-quota weights.")
    ] = 0
    half_life_seconds: Annotated[
        int, Meta(ge=60, le=31_536_000, description="After so long, use counts half as much.")
    ] = 604_800


PoolPolicy = Literal["FairShare", "DemandWeighted", "Priority"]
JobOrder = Literal["Fifo", "StrictFifo"]


class GpuNodePoolSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    node_selector: Annotated[
        dict[str, str],
        Meta(
            description="Labels of the pool's nodes. The pool `default` has every node that no"
            " other pool selects."
        ),
    ] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    policy: Annotated[
        PoolPolicy,
        Meta(
            description="FairShare: quotas, then shares of what is left. DemandWeighted: in"
            " proportion to demand times weight. Priority: the best priority of all first."
        ),
    ] = "FairShare"
    preemption: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(description="Whether running work may be evicted for other work."),
    ] = "Enabled"
    over_quota_weights: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(description="Disabled: what is over quota goes to projects in proportion to quota."),
    ] = "Enabled"
    unledgered_pods: Annotated[
        Literal["Report", "Evict"],
        Meta(
            description="What is done about a pod of a project's namespace that holds GPUs of the"
            " pool without a row: an event, or an event and an eviction."
        ),
    ] = "Report"
    job_order: Annotated[
        JobOrder,
        Meta(
            description="In FairShare pools: whether waiting work lets later work of its queue"
            " pass."
        ),
    ] = "Fifo"
    time_based_fair_share: TimeBasedFairShare = field(default_factory=TimeBasedFairShare)
    time_slicing: TimeSlicing = field(default_factory=TimeSlicing)
    disruption_budget_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a PodDisruptionBudget may hold back reclaim and preemption."
            " Moves always obey budgets."
        ),
    ] = 120
    max_termination_grace_seconds: Annotated[
        Seconds,
        Meta(
            description="The longest that an evicted pod has to end, whatever its"
            " terminationGracePeriodSeconds."
        ),
    ] = 300


class GpuNodePoolStatus(Struct, rename="camel", kw_only=True):
    """GPUs as numbers of GPUs; `fragmented` is what is free on cards that are partly used.

    `past` is what the pool had, where past use is counted.
    """

    observed_generation: Natural = 0
    nodes: Natural = 0
    capacity: str = "0"
    allocated: str = "0"
    fragmented: str = "0"
    past: PastUse | None = None
    conditions: list[Condition] = field(default_factory=list)


class GpuNodePool(Struct, rename="camel", kw_only=True):
    """A set of nodes that is shared by one policy."""

    metadata: ObjectMeta
    spec: GpuNodePoolSpec = field(default_factory=GpuNodePoolSpec)
    status: GpuNodePoolStatus = field(default_factory=GpuNodePoolStatus)


class TopologyLevel(Struct, rename="camel", kw_only=True):
    """Nodes that agree on this label, and on those of all wider levels, are one domain."""

    node_label: Annotated[Name, Meta(description="Key of a label of nodes.")]


class GpuTopologySpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    levels: Annotated[
        list[TopologyLevel], Meta(description="The widest first, such as zone, block, rack, host.")
    ] = field(default_factory=list)


class GpuTopology(Struct, rename="camel", kw_only=True):
    """How near nodes are to one another, told by labels that nodes have."""

    metadata: ObjectMeta
    spec: GpuTopologySpec = field(default_factory=GpuTopologySpec)


class TopologyConstraint(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How near to one another pods must or should be; levels are named by their node label."""

    topology: Annotated[
        str, Meta(description="Name of a GpuTopology; the only one that has the level when empty.")
    ] = ""
    required_topology_level: Annotated[
        str, Meta(description="All pods run in one domain of this level, or none runs.")
    ] = ""
    preferred_topology_level: Annotated[
        str, Meta(description="Domains of this level are tried first, then wider ones.")
    ] = ""


class SubGroup(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Pods of a group that need one another more than the rest; pods name it by a label.

    A sub-group that holds any pod holds its minimum. Pods belong to sub-groups without children; a
    minimum of one that has children counts all pods below it, and is by default the sum of theirs.
    """

    name: Annotated[Name, Meta(description="What pods write into the label ballast.dev/sub-group.")]
    parent: Annotated[str, Meta(description="The sub-group around it; the group when empty.")] = ""
    min_member: Annotated[int, Meta(ge=0, description="Pods that run together, or none.")] = 1
    min_sub_group: Annotated[
        Natural | None,
        Meta(description="Children that must have their minimum; minMember decides when absent."),
    ] = None
    topology_constraint: TopologyConstraint | None = None


WorkloadWeight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]


class GpuPodGroupSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    min_member: Annotated[
        int,
        Meta(
            ge=1,
            description="Pods that run together or not at all. With sub-groups, the sum of their"
            " minimums while this is 1 and minSubGroup is absent.",
        ),
    ] = 1
    min_sub_group: Annotated[
        Natural | None,
        Meta(description="Sub-groups of the first level that must have their minimum."),
    ] = None
    sub_groups: Annotated[
        list[SubGroup], Meta(description="A tree: each names the sub-group around it.")
    ] = field(default_factory=list)
    topology_constraint: TopologyConstraint | None = None
    project: Annotated[
        str, Meta(description="The GpuProject of its pods; that of the namespace when empty.")
    ] = ""
    node_pools: Annotated[
        list[str],
        Meta(description="Node pools in order of preference; those of the project when empty."),
    ] = field(default_factory=list)
    priority_class_name: Annotated[
        str, Meta(description="Priority class of the group; its pods' highest when empty.")
    ] = ""
    preemptibility: Annotated[
        Literal["", "Preemptible", "NonPreemptible"],
        Meta(description="Whether it may be evicted for others; by its priority when empty."),
    ] = ""
    max_concurrent_pods: Annotated[
        int | None, Meta(description="Pods of the group that may run at once.")
    ] = None
    expected_run_seconds: Annotated[
        int | None, Meta(description="Expected run time, used to backfill.")
    ] = None
    preemption_delay_seconds: Annotated[
        int, Meta(ge=0, description="How long it waits before other work is stopped for it.")
    ] = 0
    weight: Annotated[
        WorkloadWeight | None,
        Meta(
            description="In node pools of policy DemandWeighted, its weight beside other workloads"
            " of its project; absent: what its pods' annotation ballast.dev/weight says, else 1.",
        ),
    ] = None
    staleness_grace_seconds: Annotated[
        int,
        Meta(
            ge=-1,
            description="How long it may run with fewer pods than it must before all of it is"
            " stopped; -1: for ever.",
        ),
    ] = 60


class GpuPodGroupStatus(Struct, rename="camel", kw_only=True):
    """Condition types: `Scheduled`, and `Stale` while too few of its pods run."""

    observed_generation: Natural = 0
    project: str = ""
    pending: Natural = 0
    scheduled: Natural = 0
    running: Natural = 0
    conditions: list[Condition] = field(default_factory=list)


class GpuPodGroup(Struct, rename="camel", kw_only=True):
    """Pods that are placed as one: a gang."""

    metadata: ObjectMeta
    spec: GpuPodGroupSpec = field(default_factory=GpuPodGroupSpec)
    status: GpuPodGroupStatus = field(default_factory=GpuPodGroupStatus)


KINDS: tuple[type[Struct], ...] = (
    GpuDepartment,
    GpuProject,
    GpuNodePool,
    GpuPodGroup,
    GpuNode,
    GpuTopology,
)


def api_version_of(kind: type[Struct]) -> str:
    """The apiVersion of one of `KINDS`; raises KeyError for any other type."""
    if kind not in KINDS:
        raise KeyError(kind.__name__)
    return API_VERSION
