"""What a decision reads: pods, workloads, queues and nodes as plain values in integers.

Built by `extender.state.cluster.ClusterState` for the live controller, and by hand in tests and
scenario runs. Nothing here refers to the API server. Views are immutable, so snapshots share them;
only `NodeTable` has arrays, and each snapshot has its own copy of it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from extender.api.demand import Delivery, Demand
from extender.api.kinds import CardShare, RestartPolicy
from extender.api.months import month_of
from extender.api.objects import NodeSelector, Toleration
from extender.api.reasons import Refused
from extender.state.refusals import NONE, Denial, Refusals

#: `gated`: pending without a row: held by our gate, or released and then its plan revoked.
#: `nominated`: pending, with cards reserved until its victims are gone.
#: `reserved`: has a row that may be bound, and is released or about to be. `bound`: has a node.
#: `foreign`: neither gated by us nor planned (a direct pod that waits for the extender).
PodState = Literal["gated", "nominated", "reserved", "bound", "foreign"]


#: GPUs in milli, CPU in milli, memory in MiB: what queues share, in this order everywhere.
Amounts = tuple[int, int, int]
GPU: Final = 0
CPU: Final = 1
MEMORY: Final = 2
NOTHING: Final[Amounts] = (0, 0, 0)
#: How long disruption budgets hold back reclaim and preemption by default: time for an application
#: to start a replica elsewhere.
DISRUPTION_BUDGET_S: Final = 120
#: The longest grace period of an evicted pod by default: time to save a large model, and short
#: enough for a quota owner to wait for.
MAX_GRACE_S: Final = 300
#: A pod that still exists so long after its grace period has a process that the kernel cannot
#: end, or a finalizer. Kubelet may need minutes to unmount its volumes.
STUCK_AFTER_S: Final = 300
#: `Snapshot.held_lately` counts in millionths of the units of `Amounts`.
LATELY: Final = 1_000_000
#: A quota or limit that never binds: larger than any cluster, and sums of it still fit 64 bits.
UNLIMITED: Final = 1 << 50

JobOrder = Literal["fifo", "strict-fifo"]
PoolPolicy = Literal["fairshare", "demand-weighted", "priority"]
PlacementRule = Literal["binpack", "spread", "fgd", "best-fit", "first-fit"]


#: Labels of a pod, by key.
Labels = tuple[tuple[str, str], ...]


class PodTerm(Struct, frozen=True, gc=False):
    """One required term of pod (anti-)affinity: it selects pods of the pod's own namespace with all
    `labels`; a topology domain is the nodes with one value of the label `topology_key`."""

    topology_key: str
    labels: Labels

    def matches(self, labels: Labels) -> bool:
        """Whether a pod of the namespace with these labels is selected."""
        return set(self.labels) <= set(labels)


class Bystanders(Struct, frozen=True, gc=False):
    """`n_pods` bound pods without a row, with equal labels, on a node with these labels."""

    namespace: str
    labels: Labels
    node_labels: Mapping[str, str]
    n_pods: int


class Constraints(Struct, frozen=True, gc=False):
    """Where a pod may run, by its own spec and history. Equal constraints are one shared object.

    `only_nodes` are the nodes that an unbound pod was released for; it can no longer use others.
    `barred` are nodes on which kube-scheduler did not bind it, and until when (unix seconds).
    `volumes` are the node affinities of its volumes; all of them must match.
    `delivery` is how it gets its cards, which its node has to offer; None if it may request none.
    `share_mib` is the exact share of one card that a claim requests.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    gpu_models: tuple[str, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    only_nodes: tuple[str, ...] = ()
    barred: tuple[tuple[str, int], ...] = ()
    volumes: tuple[NodeSelector, ...] = ()
    delivery: Delivery | None = "resource"
    share_mib: int = 0


ANYWHERE = Constraints()


def takes_model(wanted: Collection[str], model: str) -> bool:
    """Whether the card model is wanted: each of `wanted` may be any part of its name, in any case.
    Empty: every model."""
    return not wanted or any(each.lower() in model.lower() for each in wanted)


class PodView(Struct, frozen=True, gc=False, kw_only=True):
    """One live (not terminal) pod. Times are unix seconds; 0 where not yet known.

    `node` and `cards` are its allocation by its row, or by its Binding where it has no row. A pod
    that is moved keeps these until it is gone; `next_node` and `next_cards` are the reservation for
    its successor. `checkpoint_s` is how often it saves its work (0: never; None: it does not say).
    `grace_s` is the termination grace period that it requests; `ends_by` is when a terminating pod
    must be gone, by the API server.
    `group` names its leaf in the workload's tree of groups; pods with a higher `order` start first.
    `labels` are those that pod (anti-)affinity may select. `budgets` are the disruption budgets
    that select it, as `namespace/name`: the first two.
    `resource_version` is the version this view was read from, for patches that must not be stale.
    `is_gated` is about our gate; `other_gates` names the gates of others. `is_released`: its plan
    names its row; `is_direct`: the extender places it. `is_of_job`: a Job recreates it, after
    a delay that doubles with each pod. `stays`: it is bound, and a replacement may not fit on
    another node. `awaits_volume`: kube-scheduler has a volume made for it before it binds it.
    `answer` is why kube-scheduler does not bind it now, `refusals` where it did not before;
    `denial` is why it could not be released.
    """

    uid: str
    namespace: str
    name: str
    group: str = ""
    order: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    budgets: tuple[str, ...] = ()
    resource_version: str = ""
    demand: Demand = Demand()
    state: PodState = "gated"
    is_gated: bool = True
    is_released: bool = False
    is_direct: bool = False
    other_gates: tuple[str, ...] = ()
    is_terminating: bool = False
    is_controlled: bool = True
    is_of_job: bool = False
    stays: bool = False
    awaits_volume: bool = False
    refusals: Refusals = NONE
    answer: str = ""
    denial: Denial | None = None
    node: str = ""
    cards: tuple[CardShare, ...] = ()
    next_node: str = ""
    next_cards: tuple[CardShare, ...] = ()
    epoch: int = 0
    compute_request_milli: int = 0
    compute_limit_milli: int = 1000
    priority: int = 50
    created_at: int = 0
    started_at: int = 0
    checkpoint_s: int | None = None
    grace_s: int = 30
    ends_by: int = 0
    restart_policy: RestartPolicy = "Never"
    constraints: Constraints = ANYWHERE

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def held_milli(self) -> int:
        """Milli-GPU that the pod holds: of cards by its row, or as MIG instances."""
        instances = self.demand.counted_milli if self.node else 0
        return sum(card.milli for card in self.cards) + instances

    def is_leaving_at(self, now_s: int) -> bool:
        """Whether the pod is terminating and not stuck, so that its cards will soon be free."""
        is_stuck = 0 < self.ends_by < now_s - STUCK_AFTER_S
        return self.is_terminating and not is_stuck

    def made_again(self) -> "PodView":
        """The pending pod that its controller creates once this one is gone."""
        return replace(
            self, state="gated", is_gated=True, is_released=False, node="", cards=(), started_at=0
        )

    def after_eviction(self) -> "PodView | None":
        """The pod once it was evicted: pending again, or None without a controller."""
        return self.made_again() if self.is_controlled else None

    def started(self, node: str, cards: tuple[CardShare, ...], now_s: int) -> "PodView":
        """The pod as it runs on `node` with these cards, started at `now_s`."""
        return replace(
            self, state="bound", is_gated=False, node=node, cards=cards, started_at=now_s
        )


class TopologyRule(Struct, frozen=True, gc=False):
    """The topology levels within which pods must (`required`) or should (`preferred`) be placed; at
    least one is given."""

    topology: str
    required: str | None = None
    preferred: str | None = None


class GroupView(Struct, frozen=True, gc=False, kw_only=True):
    """A node of a workload's tree of groups; leaves hold pods (`PodView.group`).

    `min_member` counts pods of the whole subtree; `min_groups`, if stated, how many children
    must be satisfied. A group that holds any pod must itself be satisfied.
    """

    name: str
    min_member: int = 0
    min_groups: int | None = None
    topology: TopologyRule | None = None
    children: "tuple[GroupView, ...]" = ()


class ReplicaOf(Struct, frozen=True, gc=False):
    """The owner of a replica, by its name in the namespace, and how many replicas are protected."""

    owner: str
    floor: int


class WorkloadView(Struct, frozen=True, gc=False, kw_only=True):
    """Pods that are scheduled together: a pod group, or a single pod.

    `key` is `namespace/name` of the group or of the pod. `pools` are the node pools it may use,
    resolved and in order of preference. `problem` is why it can't be placed on any node.
    `doubt` is why kube-scheduler may refuse to bind it where it is placed: it may use free cards,
    but nothing is evicted for it.
    `tree` is its groups, if it has sub-groups or a topology constraint: the root stands for
    the workload, with the same minimum. `user` divides a project's share further, if pods name
    one. A pending workload evicts nothing in its first `preemption_delay_s` after `waits_since`,
    and never anything if `never_preempts`.
    `weight` is its weight in pools that share among workloads.
    `stale_since` is when it fell below its minimum (None: it did not); it may stay below for
    `stale_grace_s` (None: for ever).
    `replica` is None if its owner states no floor. Every cycle decides which replicas are protected
    (`policy.workloads.floors`); `is_preemptible` does not tell. `unknown_class` is the priority
    class that its group names, if it does not exist.
    """

    key: str
    namespace: str
    name: str
    is_group: bool = False
    project: str = ""
    kind: str = "training"
    priority: int = 50
    is_preemptible: bool = True
    min_member: int = 1
    pools: tuple[str, ...] = ("default",)
    created_at: int = 0
    pods: tuple[PodView, ...] = ()
    max_concurrent_pods: int | None = None
    expected_run_s: int | None = None
    user: str = ""
    tree: GroupView | None = None
    preemption_delay_s: int = 0
    never_preempts: bool = False
    waits_since: int = 0
    stale_since: int | None = None
    stale_grace_s: int | None = None
    weight: int = 1
    replica: ReplicaOf | None = None
    unknown_class: str = ""
    problem: Refused | None = None
    doubt: Refused | None = None


class MonthHours(Struct, frozen=True, gc=False):
    """A project's budget of one calendar month in a node pool, in milli-GPU-seconds.

    `used` is what it used in `month` (such as 2026-10), which is empty while that is not known.
    """

    budget: int
    used: int = 0
    month: str = ""

    def is_known_at(self, now_s: int) -> bool:
        """Whether `used` is of the month of this time."""
        return self.month == month_of(now_s)

    def is_spent_at(self, now_s: int) -> bool:
        """Whether the budget is known to be used up; a budget of 0 hours always is."""
        return not self.budget or (self.used >= self.budget and self.is_known_at(now_s))


@dataclass(slots=True, frozen=True)
class Figures:
    """A queue's figures for one resource, in its unit.

    `quota` and `limit` are `UNLIMITED` if nothing binds; a queue of `weight` 0 gets nothing over
    quota. `usage_ppm` is its decayed past use, in millionths of the pool's capacity.
    `month` is a project's budget of GPU-hours, if it has one.
    """

    quota: int = 0
    limit: int = UNLIMITED
    weight: int = 1
    usage_ppm: int = 0
    month: MonthHours | None = None


#: Figures of a resource that is not counted.
UNBOUND: Final = Figures(quota=UNLIMITED)


@dataclass(slots=True, frozen=True)
class PoolQuota:
    """A queue's figures in one node pool. Lower ranks get over-quota resources first."""

    gpu: Figures = Figures()
    cpu: Figures = UNBOUND
    memory: Figures = UNBOUND
    rank: int = 0

    @property
    def figures(self) -> tuple[Figures, Figures, Figures]:
        """By resource, in the order of `Amounts`."""
        return self.gpu, self.cpu, self.memory


def department_queue(name: str) -> str:
    """The queue of a GpuDepartment; the prefix keeps it apart from a GpuProject of that name."""
    return f"department/{name}"


def department_of(queue: str) -> str:
    """The GpuDepartment of a department's queue; empty for other queues."""
    name = queue.removeprefix(department_queue(""))
    return name if name != queue else ""


def user_queue(project: str, user: str) -> str:
    """The queue of one user in a project; an empty `user` is for workloads that name none."""
    return f"{project}/user/{user}"


@dataclass(slots=True, frozen=True)
class QueueView:
    """A queue: a department (`parent` empty), a project, or any level in between.

    `name` is unique among all queues: a project's own name, or `department_queue` of a department.
    A minimum run time, a budget hold or a grace period is None if the queue states none.
    """

    name: str
    parent: str = ""
    created_at: int = 0
    pools: Mapping[str, PoolQuota] = field(default_factory=dict)
    reclaim_min_runtime_s: int | None = None
    preempt_min_runtime_s: int | None = None
    disruption_budget_s: int | None = None
    max_grace_s: int | None = None


@dataclass(slots=True, frozen=True)
class ElasticView:
    """How a node pool may grow: to `max_nodes`, by empty nodes of this shape.

    `provisioning_class` is the autoscaler's name for the kind of scale-up. `reads_pods`: it takes
    no requests, and adds nodes for pods that kube-scheduler reports as unschedulable.
    """

    max_nodes: int
    n_gpus: int
    card_mib: int
    card_model: str
    cpu_milli: int
    memory_mib: int
    #: Labels that select its nodes, and all labels that a new node has.
    selector: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    provisioning_class: str
    reads_pods: bool = False


@dataclass(slots=True, frozen=True)
class PoolView:
    """A node pool's policy. `usage_weight_milli` None: the value in the cycle's settings.

    Disruption budgets hold back reclaim and preemption for `disruption_budget_s`, and an evicted
    pod has a grace period of at most `max_grace_s`, unless the project's queue says otherwise. A
    project above its quota reclaims only up to its fair share less `reclaim_band_percent` of it.
    Pods that do not state how often they save their work are taken to do so every `checkpoint_s`
    (0: never). Consolidation empties nodes whose pods have run for `consolidate_after_s` (0: none).
    `elastic` is None if the pool does not grow.
    """

    name: str
    gpu_placement: PlacementRule = "binpack"
    cpu_placement: PlacementRule = "binpack"
    policy: PoolPolicy = "fairshare"
    has_preemption: bool = True
    job_order: JobOrder = "fifo"
    usage_weight_milli: int | None = None
    disruption_budget_s: int = DISRUPTION_BUDGET_S
    max_grace_s: int = MAX_GRACE_S
    reclaim_band_percent: int = 0
    checkpoint_s: int = 0
    consolidate_after_s: int = 0
    elastic: ElasticView | None = None


def max_grace_s(queue: QueueView | None, pool: PoolView | None) -> int:
    """The longest grace period of an evicted pod, by its project or else its node pool."""
    if queue is not None and queue.max_grace_s is not None:
        return queue.max_grace_s
    return pool.max_grace_s if pool is not None else MAX_GRACE_S


def budget_hold_s(queue: QueueView | None, pool: PoolView | None) -> int:
    """How long disruption budgets hold back an eviction, by the project or else the node pool."""
    if queue is not None and queue.disruption_budget_s is not None:
        return queue.disruption_budget_s
    return pool.disruption_budget_s if pool is not None else 0
