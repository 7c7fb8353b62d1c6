"""GpuDepartment and GpuProject: their quotas, limits and weights, and their status."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from extender.api.ledger import Name, Natural
from extender.api.objects import Condition, ObjectMeta

#: A number or a string in YAML. A structural schema cannot express "number or string", so the API
#: server accepts any value, and the policy `figures.ballast.dev` refuses values that are no figure.
_NumberOrText = int | float | str
_ANY_VALUE: Final = {"x-kubernetes-preserve-unknown-fields": True}
GpuCount = Annotated[
    _NumberOrText,
    Meta(
        description='A number of GPUs with at most three decimals: 4, 2.5 or "2.5".',
        extra_json_schema=_ANY_VALUE,
    ),
]
#: At most a day: a longer time would be no bound.
Seconds = Annotated[int, Meta(ge=0, le=86_400)]
#: Of a month; the maximum is more than a million GPUs can use.
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
        description="Weight of the queue when the capacity beyond all quotas is divided; with 0 the"
        " queue has no part of it, and any other queue may take back what it uses above its quota."
        " Ignored on a GpuDepartment: its quota is its weight.",
    ),
]


class GpuFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The queue's quota, limit, weight and monthly budget of GPUs."""

    quota: Annotated[
        GpuCount,
        Meta(
            description="GPUs that the queue is entitled to, with at most three decimals: 4, 2.5 or"
            ' "2.5". 0 when absent.'
        ),
    ] = 0
    limit: Annotated[
        GpuCount | None,
        Meta(
            description="The most GPUs that the queue's pods may hold, with at most three decimals;"
            " unlimited when absent."
        ),
    ] = None
    gpu_hours_per_month: Annotated[
        GpuHours | None,
        Meta(
            description="GPU-hours that the project may use in a calendar month (UTC) before it"
            " stops borrowing: until the month ends, it starts no more pods above its quota, and"
            " its running pods continue. Unlimited when absent. Ignored on a GpuDepartment.",
        ),
    ] = None
    over_quota_weight: OverQuotaWeight = 1


class HostFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The queue's quota, limit and weight of CPU or host memory."""

    quota: Annotated[
        KubeQuantity | None,
        Meta(
            description="The amount that the queue is entitled to, as a Kubernetes quantity:"
            ' "500m", 32, 1.5 or "128Gi". The resource is not counted when absent.'
        ),
    ] = None
    limit: Annotated[
        KubeQuantity | None,
        Meta(
            description="The most that the queue's pods may hold, as a Kubernetes quantity;"
            " unlimited when absent."
        ),
    ] = None
    over_quota_weight: OverQuotaWeight = 1


class PoolFigures(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Quotas, limits and weights of a queue in one node pool."""

    name: Annotated[
        Name,
        Meta(description="Name of a GpuNodePool; the pool `default` exists without an object."),
    ]
    gpu: GpuFigures = field(default_factory=GpuFigures)
    cpu: HostFigures = field(default_factory=HostFigures)
    memory: HostFigures = field(default_factory=HostFigures)
    rank: Annotated[
        int,
        Meta(
            description="Order in which queues share what the quotas leave: a queue with a lower"
            " rank is served before one with a higher rank. 0 when absent."
        ),
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
    """Past usage: amounts held times seconds, with half-life decay, at the time `asOf`."""

    gpu: Natural = 0
    cpu: Natural = 0
    memory: Natural = 0
    as_of: Natural = 0


class MonthUse(Struct, rename="camel", kw_only=True):
    """GPU-hours of the monthly budget that the project has used in `month`."""

    month: str
    gpu_hours: str
    milli_gpu_seconds: Natural


class PoolUse(Struct, rename="camel", kw_only=True):
    """Shares and allocations of a queue in one node pool at the last scheduling cycle.

    `cpu` and `memory` are present if they have a quota, `past` if the node pool counts past usage,
    and `month` if the project has a budget and its usage is known.
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
    """Sums over all node pools, for the columns of `kubectl get`."""

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

    Condition types: `Valid`, `OverQuota` (True while its pods hold more than its quota) and, with
    a budget, `WithinBudget` (Unknown while the usage of the month is not known).
    """

    observed_generation: Natural = 0
    state: Literal["InQuota", "OverQuota", "OverFairShare"] = "InQuota"
    gpu: QueueSummary = field(default_factory=QueueSummary)
    node_pools: list[PoolUse] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class GpuDepartmentSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    node_pools: Annotated[
        list[PoolFigures],
        Meta(description="Quotas, limits and weights of all its projects together, per node pool."),
    ] = field(default_factory=list)


class GpuDepartment(Struct, rename="camel", kw_only=True):
    """A part of the organisation; its projects share its quota."""

    metadata: ObjectMeta
    spec: GpuDepartmentSpec = field(default_factory=GpuDepartmentSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


class KindSelector(Struct, rename="camel", kw_only=True):
    """The nodes on which pods of one workload kind may run."""

    workload_kind: Annotated[
        Literal["training", "interactive", "build", "inference"],
        Meta(description="The workload kind: the value of the pods' ballast.dev/workload-kind."),
    ]
    match_labels: Annotated[
        dict[str, str], Meta(description="Labels that a node must have to run these pods.")
    ]


class MinRuntime(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How long a workload is protected from eviction after it starts."""

    reclaim_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="Seconds that a workload runs before it may be evicted for workloads of"
            " another project; 0: it is not protected.",
        ),
    ] = 0
    preempt_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="Seconds that a workload runs before it may be evicted for workloads of its"
            " own project; 0: it is not protected.",
        ),
    ] = 0


class GpuProjectSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    department: Annotated[
        Name, Meta(description="Name of the GpuDepartment that the project belongs to.")
    ]
    namespaces: Annotated[
        list[str],
        Meta(
            description="Namespaces of the project: their pods belong to it. A namespace that"
            " several projects list belongs to the oldest of them."
        ),
    ] = field(default_factory=list)
    node_pools: Annotated[
        list[PoolFigures],
        Meta(description="Quotas, limits and weights of the project, per node pool."),
    ] = field(default_factory=list)
    default_node_pools: Annotated[
        list[str],
        Meta(
            description="Node pools for pods that name none, in order of preference; all node pools"
            " of the project when empty."
        ),
    ] = field(default_factory=list)
    node_affinity: Annotated[
        list[KindSelector],
        Meta(description="Nodes on which pods of a workload kind may run; all when not listed."),
    ] = field(default_factory=list)
    allowed_priority_classes: Annotated[
        list[str], Meta(description="Priority classes that its pods may name; any when empty.")
    ] = field(default_factory=list)
    min_runtime: MinRuntime = field(default_factory=MinRuntime)
    disruption_budget_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Overrides disruptionBudgetSeconds of the GpuNodePool for pods of this"
            " project."
        ),
    ] = None
    max_termination_grace_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Overrides maxTerminationGraceSeconds of the GpuNodePool for pods of this"
            " project."
        ),
    ] = None


class GpuProject(Struct, rename="camel", kw_only=True):
    """A team: its namespaces, and the quotas, limits and weights of their pods."""

    metadata: ObjectMeta
    spec: GpuProjectSpec
    status: QueueStatus = field(default_factory=QueueStatus)
