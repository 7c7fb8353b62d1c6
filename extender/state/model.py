"""What a decision sees: pods, workloads, queues and nodes as plain values in integers.

Built by `extender.state.cluster.ClusterState` for the live controller, and by hand in tests and
scenario runs. Nothing here refers to the API server. Views are never changed after they are made,
so snapshots share them; only `NodeTable` has arrays, and a snapshot has its own copy of those.
"""

from collections.abc import Mapping
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

#: `gated`: waits for a plan and has no row: held by our gate, or released and its plan revoked.
#: `nominated`: waits as well, its place is held until victims are gone.
#: `reserved`: has a row that may be bound, and is released or about to be. `bound`: has a node.
#: `foreign`: neither gated by us nor planned (a direct pod that waits for the extender).
PodState = Literal["gated", "nominated", "reserved", "bound", "foreign"]


#: GPUs in milli, CPU in milli, memory in MiB: what queues share, in this order everywhere.
Amounts = tuple[int, int, int]
GPU: Final = 0
CPU: Final = 1
MEMORY: Final = 2
NOTHING: Final[Amounts] = (0, 0, 0)
#: How long disruption budgets hold back reclaim and preemption where nothing else is said: time
#: for an application to bring a replica up elsewhere.
DISRUPTION_BUDGET_S: Final = 120
#: The longest that an evicted pod has to end where nothing else is said: time to save a large
#: model, and short enough for an owner to wait for.
MAX_GRACE_S: Final = 300
#: A pod that is still there so long after its grace period has a process that the kernel cannot
#: end, or a finalizer. Kubelet may need minutes to unmount its volumes.
STUCK_AFTER_S: Final = 300
#: What queues held lately is counted in millionths of the units of `Amounts`.
LATELY: Final = 1_000_000
#: A quota or limit that never binds: more than there can be, and sums of it still fit 64 bits.
UNLIMITED: Final = 1 << 50

JobOrder = Literal["fifo", "strict-fifo"]
PoolPolicy = Literal["fairshare", "demand-weighted", "priority"]
PlacementRule = Literal["binpack", "spread", "fgd", "best-fit", "first-fit"]


class PodTerm(Struct, frozen=True, gc=False):
    """One required term of pod (anti-)affinity: pods of the own namespace that have all `labels`,
    in the domain of nodes that agree on the label `topology_key`."""

    topology_key: str
    labels: tuple[tuple[str, str], ...]


class Constraints(Struct, frozen=True, gc=False):
    """Where a pod may run, as it says itself. Equal constraints are one shared object.

    `only_nodes` are those that an unbound pod was released for: it can have no other any more.
    `barred` are nodes on which kube-scheduler did not bind it, and until when (unix seconds).
    `volumes` are the node affinities of the volumes it uses, which hold together.
    `delivery` is how it gets its cards, which its node has to offer, or None where it may ask for
    none; `share_mib` the share that a
    claim asks for, which a card of its node has to give as it is, neither more nor less.
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


class PodView(Struct, frozen=True, gc=False, kw_only=True):
    """One live (not terminal) pod. Times are unix seconds; 0 where not yet known.

    `node` and `cards` say what it holds by its row, or where it is bound without one. A pod that
    is moved still holds these until it is gone; `next_node` and `next_cards` are the place kept
    for its successor. It says that it saves its work after every `checkpoint_s` of running; 0:
    never; None: it says nothing. It asks for `grace_s` to end.
    It is to be gone by `ends_by`, where the API server has said so.
    `group` names its leaf in the workload's tree of groups; among the pods of a workload those with
    the higher `order` go first. `labels` are those that pod (anti-)affinity may ask for. `budgets`
    are the disruption budgets that select it, as `namespace/name`: of several, the first two.
    `resource_version` is the version this view was read from, for patches that must not be stale;
    `is_gated` speaks of our gate, `other_gates` names those of others. `is_released`: its plan
    names its row; `is_direct`: the extender places it. `is_of_job`: a Job makes it again, after
    a delay that doubles with each pod. `stays`: it is bound, and it is not certain
    that a pod in its stead could run elsewhere. `answer` is why kube-scheduler does not bind it
    now, `refusals` where it did not before; `denial` is about its release.
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
        """`namespace/name`, as people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def held_milli(self) -> int:
        """Milli-GPU that the pod holds: of cards by its row, or as instances that they are cut
        into."""
        instances = self.demand.counted_milli if self.node else 0
        return sum(card.milli for card in self.cards) + instances

    def is_leaving_at(self, now_s: int) -> bool:
        """Whether the pod is told to end, and its cards come free soon."""
        is_stuck = 0 < self.ends_by < now_s - STUCK_AFTER_S
        return self.is_terminating and not is_stuck

    def made_again(self) -> "PodView":
        """The pod that its controller makes once this one is gone: it waits."""
        return replace(
            self, state="gated", is_gated=True, is_released=False, node="", cards=(), started_at=0
        )

    def started(self, node: str, cards: tuple[CardShare, ...], now_s: int) -> "PodView":
        """The pod once it runs there on these cards, since `now_s`."""
        return replace(
            self, state="bound", is_gated=False, node=node, cards=cards, started_at=now_s
        )


class TopologyRule(Struct, frozen=True, gc=False):
    """How near to one another pods must (`required`) or should be: levels of a topology."""

    topology: str
    required: str | None = None
    preferred: str | None = None


class GroupView(Struct, frozen=True, gc=False, kw_only=True):
    """A node of a workload's tree of groups; leaves hold pods (`PodView.group`).

    `min_member` counts pods of the whole subtree; `min_groups`, where stated, how many children
    must be satisfied. A group that holds any pod must itself be satisfied.
    """

    name: str
    min_member: int = 0
    min_groups: int | None = None
    topology: TopologyRule | None = None
    children: "tuple[GroupView, ...]" = ()


class ReplicaOf(Struct, frozen=True, gc=False):
    """The owner of a replica, named within the namespace, and how many of its replicas are kept."""

    owner: str
    floor: int


class WorkloadView(Struct, frozen=True, gc=False, kw_only=True):
    """Pods that are decided as one: a pod group, or a single pod.

    `key` is `namespace/name` of the group or of the pod. `pools` are the node pools it may use, in
    order of preference, already resolved. `problem` is why it can't be placed whatever is free.
    `doubt` is why kube-scheduler may not bind it where it is placed: it may have free places, but
    nothing is evicted for it.
    `tree` is its groups, where it has any besides itself or asks for nearness: its root stands for
    the workload, with the same minimum. `user` divides a project's share further, where pods name
    one. A waiting workload evicts nothing in its first `preemption_delay_s` after `waits_since`.
    `weight` is its weight beside other workloads, where a pool shares among workloads.
    `stale_since` is when it fell below its minimum (None: it did not); it may stay so for
    `stale_grace_s` (None: for ever).
    `replica` is None where its owner states no floor; which replicas are kept is decided in every
    cycle (`policy.workloads.floors`), and `is_preemptible` does not say it.
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
    waits_since: int = 0
    stale_since: int | None = None
    stale_grace_s: int | None = None
    weight: int = 1
    replica: ReplicaOf | None = None
    problem: Refused | None = None
    doubt: Refused | None = None


class MonthHours(Struct, frozen=True, gc=False):
    """A project's budget of one calendar month in a node pool, in milli-GPU-seconds.

    `used` is what it used in `month` (such as 2026-10); empty where that is not known.
    """

    budget: int
    used: int = 0
    month: str = ""

    def is_known_at(self, now_s: int) -> bool:
        """Whether the use of the month of this time is known."""
        return self.month == month_of(now_s)

    def is_spent_at(self, now_s: int) -> bool:
        """Whether all of the budget is known to be used; of no hours, all always is."""
        return not self.budget or (self.used >= self.budget and self.is_known_at(now_s))


@dataclass(slots=True, frozen=True)
class Figures:
    """A queue's figures for one resource, in its unit.

    `quota` and `limit` are `UNLIMITED` where nothing binds; `weight` 0 has no part in what is over
    quota. `usage_ppm` is what it used in the past, decayed: millionths of what the pool had.
    `month` is a project's budget of GPU-hours, where it has one.
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
    """A queue's figures in one node pool. Lower ranks share what is over quota first."""

    gpu: Figures = Figures()
    cpu: Figures = UNBOUND
    memory: Figures = UNBOUND
    rank: int = 0

    @property
    def figures(self) -> tuple[Figures, Figures, Figures]:
        """By resource, in the order of `Amounts`."""
        return self.gpu, self.cpu, self.memory


def department_queue(name: str) -> str:
    """The queue that stands for a GpuDepartment: a GpuProject may have the same name."""
    return f"department/{name}"


def department_of(queue: str) -> str:
    """The GpuDepartment that the queue stands for; empty where it stands for none."""
    name = queue.removeprefix(department_queue(""))
    return name if name != queue else ""


def user_queue(project: str, user: str) -> str:
    """The queue of one user's work in a project, or of work without a user if `user` is empty."""
    return f"{project}/user/{user}"


@dataclass(slots=True, frozen=True)
class QueueView:
    """A queue: a department (`parent` empty), a project, or any level in between.

    `name` is unique among all queues: a project's own, or `department_queue` of a department's.
    A minimum run time is None where the queue states none.
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
    """How a node pool may grow: to `max_nodes`, by empty nodes of these figures.

    `provisioning_class` is the autoscaler's word for the kind of scale-up. `reads_pods`: it takes
    no requests, and adds nodes for pods that kube-scheduler calls unschedulable.
    """

    max_nodes: int
    n_gpus: int
    card_mib: int
    card_model: str
    cpu_milli: int
    memory_mib: int
    #: Labels by which its nodes are selected, and others that they have.
    selector: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    provisioning_class: str
    reads_pods: bool = False


@dataclass(slots=True, frozen=True)
class PoolView:
    """A node pool's policy. `usage_weight_milli` None: as the cycle's settings say.

    Disruption budgets hold back reclaim and preemption for `disruption_budget_s`, and an evicted
    pod has at most `max_grace_s` to end, unless the project's queue says otherwise. Above its quota
    a project reclaims only up to its share less `reclaim_band_percent` of it.
    Pods that do not say how often they save their work do so every `checkpoint_s` (0: never). Nodes
    are emptied whose pods have run for `consolidate_after_s` (0: none are).
    `elastic` is None where the pool does not grow.
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
    """The longest that an evicted pod has to end, as its project or else its node pool says."""
    if queue is not None and queue.max_grace_s is not None:
        return queue.max_grace_s
    return pool.max_grace_s if pool is not None else MAX_GRACE_S


def budget_hold_s(queue: QueueView | None, pool: PoolView | None) -> int:
    """How long disruption budgets hold back a stop, as its project or else its node pool says."""
    if queue is not None and queue.disruption_budget_s is not None:
        return queue.disruption_budget_s
    return pool.disruption_budget_s if pool is not None else 0
