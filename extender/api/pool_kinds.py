"""GpuNodePool: which nodes it has, its policy, placement, time slicing and autoscaling."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from extender.api.ledger import Natural
from extender.api.objects import Condition, ObjectMeta
from extender.api.queue_kinds import PastUse, Seconds

PlacementRule = Literal["BinPack", "Spread", "LeastFragmentation", "BestFit", "FirstFit"]


class Placement(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Which node and cards are preferred for a pod.

    `LeastFragmentation` is fragmentation gradient descent: it prefers the cards where the pod makes
    the least GPU capacity unusable for the typical workloads of the pool.
    """

    gpu: Annotated[
        PlacementRule,
        Meta(description="Rule for pods that request GPUs; kube-scheduler places other pods."),
    ] = "BinPack"


TimeSlicingMode = Literal["Disabled", "Strict", "Fair"]


class TimeSlicing(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How the compute time of a shared card is divided among its pods."""

    mode: Annotated[
        TimeSlicingMode,
        Meta(
            description="Fair: a pod gets at least its share, and an equal part of the idle time."
            " Strict: a pod with a fraction gets exactly its share; a pod with gpu-memory gets idle"
            " time, as with Fair. Disabled: the driver alone divides the card's time. A pod that"
            " was created for a Strict pool keeps its limit after a change to Fair."
        ),
    ] = "Disabled"
    lease_milliseconds: Annotated[
        int,
        Meta(ge=10, le=10000, description="Milliseconds for which a pod gets the card at a time."),
    ] = 250
    precision_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=50,
            description="Smallest share of a card's time, in percent: a plan of a card has 100"
            " divided by this many leases.",
        ),
    ] = 5


class TimeBasedFairShare(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Gives queues with much past usage a smaller part of what the quotas leave.

    Off while `weightPercent` is 0.
    """

    weight_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="How strongly past usage changes over-quota weights, in percent; 0: not at"
            " all.",
        ),
    ] = 0
    half_life_seconds: Annotated[
        int,
        Meta(ge=60, le=31_536_000, description="Seconds after which usage counts half as much."),
    ] = 604_800


PoolPolicy = Literal["FairShare", "DemandWeighted", "Priority"]
JobOrder = Literal["Fifo", "StrictFifo"]


class ElasticNode(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Allocatable resources and labels of a new node of the pool."""

    gpus: Annotated[int, Meta(ge=1, le=64, description="Number of cards of the node.")]
    gpu_memory_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="MiB of memory of each card; 0: unknown, so no pod that requests gpu-memory"
            " fits a new node.",
        ),
    ] = field(default=0, name="gpuMemoryMiB")
    gpu_model: Annotated[
        str, Meta(description="Model of the cards, as in the node label nvidia.com/gpu.product.")
    ] = ""
    cpu: Annotated[int, Meta(ge=1, le=4096, description="Allocatable CPUs of the node.")]
    memory_gib: Annotated[
        int, Meta(ge=1, le=1 << 20, description="Allocatable memory of the node, in GiB.")
    ] = field(name="memoryGiB")
    labels: Annotated[
        dict[str, str],
        Meta(description="Labels of the node, besides those of nodeSelector, that pods select."),
    ] = field(default_factory=dict)


ScaleUpTrigger = Literal["ProvisioningRequest", "UnschedulablePods"]


class Elastic(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Lets a cluster autoscaler add nodes for pending workloads within quota.

    For each such workload the controller creates a ProvisioningRequest of exactly its pods, or
    removes the scheduling gate from its pods. No nodes are requested for workloads that wait for
    quota or would exceed it.
    """

    max_nodes: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="The most GPU nodes that the pool may have, those that are requested"
            " included.",
        ),
    ]
    node: ElasticNode
    trigger: Annotated[
        ScaleUpTrigger,
        Meta(
            description="How the autoscaler learns of a pending workload. UnschedulablePods is for"
            " autoscalers that watch pods, such as Karpenter: the controller removes the scheduling"
            " gate, and the pods stay pending until they are placed."
        ),
    ] = "ProvisioningRequest"
    provisioning_class: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="provisioningClassName of the ProvisioningRequests.",
        ),
    ] = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    consolidate_after_minutes: Annotated[
        int,
        Meta(
            ge=0,
            le=10_080,
            description="Minutes that all pods of a node must have run before they may be moved to"
            " other used nodes that have room, so that the node becomes empty. 0: no node is"
            " emptied.",
        ),
    ] = 0


class GpuNodePoolSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    node_selector: Annotated[
        dict[str, str],
        Meta(
            description="Labels that select the pool's nodes. The pool `default` has every node"
            " that no other pool selects."
        ),
    ] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    policy: Annotated[
        PoolPolicy,
        Meta(
            description="How queues share the pool. FairShare: quotas first, then the rest by"
            " weight. DemandWeighted: in proportion to demand times weight. Priority: workloads of"
            " the highest priority first, whatever their project."
        ),
    ] = "FairShare"
    preemption: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(description="Whether running pods may be evicted for pending workloads."),
    ] = "Enabled"
    over_quota_weights: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(
            description="Enabled: projects share what the quotas leave in proportion to"
            " overQuotaWeight. Disabled: in proportion to quota."
        ),
    ] = "Enabled"
    unledgered_pods: Annotated[
        Literal["Report", "Evict"],
        Meta(
            description="What the controller does about a pod in a project's namespace that holds"
            " GPUs of the pool without a row in the ledger. Report: it writes an event. Evict: it"
            " also evicts the pod."
        ),
    ] = "Report"
    job_order: Annotated[
        JobOrder,
        Meta(
            description="In FairShare pools: whether later workloads of a queue may start before a"
            " blocked one (Fifo) or not (StrictFifo)."
        ),
    ] = "Fifo"
    time_based_fair_share: TimeBasedFairShare = field(default_factory=TimeBasedFairShare)
    time_slicing: TimeSlicing = field(default_factory=TimeSlicing)
    memory_lending: Annotated[
        Literal["Enabled", "Disabled"],
        Meta(
            description="Enabled: pods with the annotation gpu-memory-limit may also use, up to"
            " that limit, equal parts of the memory of their card that no pod requests. A pod that"
            " is placed on the card later starts once the memory that it requests is free."
        ),
    ] = "Disabled"
    disruption_budget_seconds: Annotated[
        Seconds,
        Meta(
            description="Seconds that a PodDisruptionBudget may delay an eviction for reclaim or"
            " preemption. Moves always respect PodDisruptionBudgets."
        ),
    ] = 120
    max_termination_grace_seconds: Annotated[
        Seconds,
        Meta(
            description="The longest grace period of an evicted pod, in seconds: a longer"
            " terminationGracePeriodSeconds is shortened to this."
        ),
    ] = 300
    reclaim_band_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="A project that has its quota reclaims only up to its fair share minus this"
            " percentage of it, rounded to whole GPUs; it gets the rest from free GPUs only.",
        ),
    ] = 15
    elastic: Annotated[
        Elastic | None,
        Meta(
            description="In FairShare pools: how a cluster autoscaler may add nodes to the pool."
            " When absent, Ballast requests no nodes."
        ),
    ] = None
    checkpoint_seconds: Annotated[
        Seconds,
        Meta(
            description="Assumed seconds between two checkpoints of a pod without the annotation"
            " ballast.dev/checkpoint-seconds; victims are chosen by the work that an eviction"
            " loses. 0: such a pod saves nothing."
        ),
    ] = 1800


class GpuNodePoolStatus(Struct, rename="camel", kw_only=True):
    """Nodes and GPUs of the pool; `past` is present if the pool counts past usage."""

    observed_generation: Natural = 0
    nodes: Natural = 0
    capacity: str = "0"
    allocated: str = "0"
    fragmented: str = "0"
    largest_node_gpus: Natural = 0
    largest_card_mib: Natural = field(default=0, name="largestCardMiB")
    past: PastUse | None = None
    conditions: list[Condition] = field(default_factory=list)


class GpuNodePool(Struct, rename="camel", kw_only=True):
    """A set of nodes that queues share by one policy."""

    metadata: ObjectMeta
    spec: GpuNodePoolSpec = field(default_factory=GpuNodePoolSpec)
    status: GpuNodePoolStatus = field(default_factory=GpuNodePoolStatus)
