"""Node pools: placement, policy and time slices of their nodes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from extender.api.ledger import Natural
from extender.api.objects import Condition, ObjectMeta
from extender.api.queue_kinds import PastUse, Seconds

PlacementRule = Literal["BinPack", "Spread", "LeastFragmentation", "BestFit", "FirstFit"]


class Placement(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Which node and card is preferred.

    `LeastFragmentation` is fragmentation gradient descent: the place that makes the least GPU
    capacity useless for the kinds of work that the pool sees.
    """

    gpu: Annotated[
        PlacementRule,
        Meta(description="For pods that request GPUs. kube-scheduler places all others."),
    ] = "BinPack"


TimeSlicingMode = Literal["Disabled", "Strict", "Fair"]


class TimeSlicing(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How compute time of a shared card is divided."""

    mode: Annotated[
        TimeSlicingMode,
        Meta(
            description="Strict: exactly the pod's share. Fair: at least the share, and an equal"
            " part of idle time. Disabled: the card's time is not divided."
        ),
    ] = "Disabled"
    lease_milliseconds: Annotated[
        int, Meta(ge=10, le=10000, description="How long one pod has the card at a time.")
    ] = 250
    precision_percent: Annotated[
        int, Meta(ge=1, le=50, description="Finest share: a plan has 100 / this many leases.")
    ] = 5


class TimeBasedFairShare(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Whether queues that used much in the past get less over quota now.

    Off while the weight is 0. What was used counts half as much after every half-life.
    """

    weight_percent: Annotated[
        int, Meta(ge=0, le=1000, description="How strongly past use changes over-quota weights.")
    ] = 0
    half_life_seconds: Annotated[
        int, Meta(ge=60, le=31_536_000, description="After so long, use counts half as much.")
    ] = 604_800


PoolPolicy = Literal["FairShare", "DemandWeighted", "Priority"]
JobOrder = Literal["Fifo", "StrictFifo"]


class ElasticNode(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a new node of the pool has for pods, as its Node reports it."""

    gpus: Annotated[int, Meta(ge=1, le=64, description="Number of cards.")]
    gpu_memory_mib: Annotated[
        int, Meta(ge=0, description="Memory of each card; 0: not stated, and no gpu-memory fits.")
    ] = field(default=0, name="gpuMemoryMiB")
    gpu_model: Annotated[str, Meta(description="As in the label nvidia.com/gpu.product.")] = ""
    cpu: Annotated[int, Meta(ge=1, le=4096, description="Whole CPUs that pods may request.")]
    memory_gib: Annotated[
        int, Meta(ge=1, le=1 << 20, description="Memory that pods may request, in GiB.")
    ] = field(name="memoryGiB")
    labels: Annotated[
        dict[str, str],
        Meta(description="Labels besides those of nodeSelector that pods may select it by."),
    ] = field(default_factory=dict)


ScaleUpTrigger = Literal["ProvisioningRequest", "UnschedulablePods"]


class Elastic(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Lets a cluster autoscaler add nodes for work within quota that lacks them.

    For each such workload the controller creates a ProvisioningRequest of exactly its pods, or
    removes the gate from its pods. Work that waits for quota, and what a project borrows, buys
    nothing.
    """

    max_nodes: Annotated[
        int, Meta(ge=1, le=10_000, description="GPU nodes that exist or are requested, at most.")
    ]
    node: ElasticNode
    trigger: Annotated[
        ScaleUpTrigger,
        Meta(
            description="How the autoscaler learns of the work. UnschedulablePods is for those that"
            " read pods, such as Karpenter: the pods lose the gate and wait without a place."
        ),
    ] = "ProvisioningRequest"
    provisioning_class: Annotated[
        str,
        Meta(min_length=1, max_length=253, description="The class of the ProvisioningRequests."),
    ] = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    consolidate_after_minutes: Annotated[
        int,
        Meta(
            ge=0,
            le=10_080,
            description="A node is emptied if all its work has run for so long and has a place on"
            " other used nodes. 0: no node is emptied.",
        ),
    ] = 0


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
            " proportion to demand times weight. Priority: the highest priority first, whatever the"
            " project."
        ),
    ] = "FairShare"
    preemption: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(description="Whether running work may be evicted for other work."),
    ] = "Enabled"
    over_quota_weights: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(description="Disabled: projects share what the quotas leave in proportion to quota."),
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
            description="In FairShare pools: whether later work of a queue may start before blocked"
            " work."
        ),
    ] = "Fifo"
    time_based_fair_share: TimeBasedFairShare = field(default_factory=TimeBasedFairShare)
    time_slicing: TimeSlicing = field(default_factory=TimeSlicing)
    memory_lending: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(
            description="Enabled: pods with the annotation gpu-memory-limit may also use, up to"
            " that limit, equal parts of the memory of their card that no pod requested. A pod"
            " that is placed there later starts when its request is free."
        ),
    ] = "Disabled"
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
            description="The longest grace period of an evicted pod, whatever its"
            " terminationGracePeriodSeconds."
        ),
    ] = 300
    reclaim_band_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Above its quota a project reclaims only up to its fair share less this"
            " part of it, in whole GPUs.",
        ),
    ] = 15
    elastic: Annotated[
        Elastic | None,
        Meta(
            description="In FairShare pools: how the pool may grow. Without it, the pool does not"
            " grow."
        ),
    ] = None
    checkpoint_seconds: Annotated[
        Seconds,
        Meta(
            description="Interval of checkpoints of work that does not state one (annotation"
            " ballast.dev/checkpoint-seconds), as victims are chosen; 0: never."
        ),
    ] = 1800


class GpuNodePoolStatus(Struct, rename="camel", kw_only=True):
    """GPUs as numbers of GPUs; `fragmented` is what is free on partly used cards.

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
