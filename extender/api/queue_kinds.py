"""Departments and projects, and the figures that they share out."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from extender.api.ledger import Name, Natural
from extender.api.objects import Condition, ObjectMeta

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
#: Of a month: more than a million GPUs have.
GpuHours = Annotated[int, Meta(ge=0, le=1_000_000_000)]
KubeQuantity = Annotated[
    _NumberOrText,
    Meta(
        description='A Kubernetes quantity: "500m", 32, 1.5 or "128Gi".',
        extra_json_schema=_ANY_VALUE,
    ),
]
OverQuotaWeight = Annotated[
    int,
    Meta(
        ge=0,
        description="Weight in the division of what the quotas leave; 0 gives none. Without effect"
        " on a GpuDepartment,"
        " whose weight is its quota.",
    ),
]


class GpuFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Quota, limit, weight and budget of GPUs. Without a limit or a budget, unlimited."""

    quota: GpuCount = 0
    limit: GpuCount | None = None
    gpu_hours_per_month: Annotated[
        GpuHours | None,
        Meta(
            description="GPU-hours of a calendar month (UTC). A project that has used them borrows"
            " nothing more until the month ends; nothing that runs is stopped for it. Without"
            " effect on a GpuDepartment.",
        ),
    ] = None
    over_quota_weight: OverQuotaWeight = 1


class HostFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Quota, limit and weight of CPU or memory. Without a quota, not counted; without a limit,
    unlimited."""

    quota: KubeQuantity | None = None
    limit: KubeQuantity | None = None
    over_quota_weight: OverQuotaWeight = 1


class PoolFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue may have in one node pool."""

    name: Annotated[Name, Meta(description="Name of a GpuNodePool; `default` needs none.")]
    gpu: GpuFigures = field(default_factory=GpuFigures)
    cpu: HostFigures = field(default_factory=HostFigures)
    memory: HostFigures = field(default_factory=HostFigures)
    rank: Annotated[
        int, Meta(description="Lower ranks share what the quotas leave before higher ones.")
    ] = 0


class HostUse(Struct, rename="camel", kw_only=True):
    """Shares and allocations of CPU or memory, as Kubernetes quantities."""

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
    """Past use: what was held times how long, with half-life decay, as of `asOf`."""

    gpu: Natural = 0
    cpu: Natural = 0
    memory: Natural = 0
    as_of: Natural = 0


class MonthUse(Struct, rename="camel", kw_only=True):
    """What a project has used of its budget in `month`, such as 2026-10, in GPU-hours and exact."""

    month: str
    gpu_hours: str
    milli_gpu_seconds: Natural


class PoolUse(Struct, rename="camel", kw_only=True):
    """What a queue was given in one node pool at the last cycle; GPUs as numbers of GPUs.

    CPU and memory are told where they have a quota, past use where the node pool counts it, and use
    of the month where there is a budget and the usage books are read.
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
    month: MonthUse | UnsetType = UNSET


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

    Condition types: `Valid`, `OverQuota` (True while its pods hold more than its quota), and, with
    a budget, `WithinBudget` (Unknown while the use of the month is not known).
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
    """How long a workload runs before it may be evicted, in seconds."""

    reclaim_seconds: Annotated[
        int, Meta(ge=0, description="Before it may be evicted for another project.")
    ] = 0
    preempt_seconds: Annotated[
        int, Meta(ge=0, description="Before it may be evicted for work of its own project.")
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
    """A team: its namespaces, and what their pods may have."""

    metadata: ObjectMeta
    spec: GpuProjectSpec
    status: QueueStatus = field(default_factory=QueueStatus)
