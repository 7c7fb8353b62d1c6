"""The scenario file as it is written: one Struct for each kind of mapping, with the defaults.

Fields have the names of the file in snake case. Amounts stay as they were written here; they are
read by `extender.scenario.amounts`, so that a wrong one can be named with its place. What a mapping
means is said where it is used: `world` (jobs), `cluster` (nodes, queues), `expect`.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from extender.api.demand import Delivery
from extender.api.units import MAX_WEIGHT
from extender.policy.plan import Stage
from extender.state.model import JobOrder, PlacementRule, PoolPolicy, ReplicaOf

Amount = int | float | str
Limit = Amount | None
#: Bounds that no cluster comes near, so that sums stay far below what 64 bits hold.
MOST: Final = 1_000_000
_MOST_SECONDS: Final = 1_000_000_000
#: Rounds take no time: a cluster has long come to rest.
_MOST_ROUNDS: Final = 1000
#: Cards of a node: a set of them is a word of 64 bits.
MOST_CARDS: Final = 64
_USUAL_MODEL: Final = "A100"
Name = Annotated[str, Meta(min_length=1)]
Natural = Annotated[int, Meta(ge=0, le=MOST)]
Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
Count = Annotated[int, Meta(ge=1, le=MOST)]
Rank = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seconds = (
    Annotated[int, Meta(ge=0, le=_MOST_SECONDS)] | Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]
)
Duration = (
    Annotated[int, Meta(ge=1, le=_MOST_SECONDS)] | Annotated[float, Meta(ge=1, le=_MOST_SECONDS)]
)
Kind = Literal["interactive", "build", "training", "inference"]
#: What a file may say that a task is at the start; what is bound runs when the first cycle begins.
StartState = Literal["pending", "bound", "running", "nominated", "evicted"]
Status = Literal["pending", "bound", "running", "nominated", "evicted"]


class Written(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, gc=False):
    """A mapping of the file. What it does not declare is an error."""


class Level(Written, frozen=True, kw_only=True):
    """One level of a topology: the value of this node label names the domain."""

    label: Name


class Topology(Written, frozen=True, kw_only=True):
    """Levels, the widest first."""

    name: Name
    levels: list[Level]


class Placement(Written, frozen=True, kw_only=True):
    """Which node is preferred, for work with GPUs and work without."""

    gpu: PlacementRule = "binpack"
    cpu: PlacementRule = "binpack"


class Settings(Written, frozen=True, kw_only=True):
    """What a cycle does, and what node pools do where they do not say."""

    stages: list[Stage] = field(
        default_factory=lambda: ["allocate", "consolidate", "reclaim", "preempt"]
    )
    policy: PoolPolicy = "fairshare"
    preemption: bool = True
    placement: Placement = Placement()
    max_consolidation_victims: Natural | None = None
    reclaim_moves_victims: bool = True
    usage_weight: Amount = 1
    usage_half_life: Duration = 604_800
    over_quota_weights: bool = True
    reclaim_band: Annotated[int, Meta(ge=0, le=100)] = 0
    checkpoint: Seconds = 0
    job_order: JobOrder = "fifo"


class Rounds(Written, frozen=True, kw_only=True):
    """How many cycles are run and settled before the expectation is read, and how many after."""

    until: Annotated[int, Meta(ge=1, le=_MOST_ROUNDS)] = 1
    after: Annotated[int, Meta(ge=0, le=_MOST_ROUNDS)] = 0

    @property
    def is_single(self) -> bool:
        """Whether the expectation is read in the one cycle there is, before it settles."""
        return self.until == 1 and self.after == 0


class Pool(Written, frozen=True, kw_only=True):
    """A node pool: the nodes with all labels of `match`. What it does not say, the settings do."""

    name: Name
    match: dict[str, str] = {}
    policy: PoolPolicy | UnsetType = UNSET
    preemption: bool | UnsetType = UNSET
    placement: Placement | UnsetType = UNSET


class NodeTaint(Written, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Mig(Written, frozen=True, kw_only=True):
    """How the node's cards are cut. With strategy `mixed` only instances can be asked for."""

    strategy: Literal["none", "single", "mixed"] = "none"
    instances: dict[str, Natural] = {}


class Node(Written, frozen=True, kw_only=True):
    """A node and what it has. A model that is stated is a label of the node, too. `offers` is how
    pods can get its cards; a DRA driver offers them by claims, and no shares."""

    name: Name
    labels: dict[str, str] = {}
    taints: list[NodeTaint] = []
    gpus: Amount = 0
    gpu_memory_mib: Natural = field(default=16384, name="gpuMemoryMiB")
    gpu_model: Name | UnsetType = UNSET
    cpu: Amount = "64"
    memory: Amount = "256Gi"
    max_pods: Natural = 110
    mig: Mig = Mig()
    offers: tuple[Delivery, ...] = ("resource", "agent")
    numa: dict[str, object] = {}
    unschedulable: bool = False

    @property
    def model(self) -> str:
        """The model of its cards."""
        return _USUAL_MODEL if self.gpu_model is UNSET else self.gpu_model


class Figures(Written, frozen=True, kw_only=True):
    """A queue's figures for one resource; what is not given has the default of the resource."""

    quota: Limit | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    weight: Amount | UnsetType = UNSET


class GpuFigures(Figures, frozen=True, kw_only=True):
    """A queue's figures for GPUs; `gpu_hours_per_month` is a project's budget in each node pool."""

    gpu_hours_per_month: Natural | None = None
    gpu_hours_used: Amount = 0


class QueuePool(Written, frozen=True, kw_only=True):
    """A queue's figures in one node pool; what is not given is the queue's own."""

    gpu: GpuFigures = GpuFigures()
    cpu: Figures = Figures()
    memory: Figures = Figures()


class Usage(Written, frozen=True, kw_only=True):
    """What a queue used in the past, decayed: part of what the cluster has."""

    gpu: Amount = 0
    cpu: Amount = 0
    memory: Amount = 0


class Queue(Written, frozen=True, kw_only=True):
    """A department, a project, or a level in between."""

    name: Name
    parent: str | None = None
    priority: Rank = 100
    gpu: GpuFigures = GpuFigures()
    cpu: Figures = Figures()
    memory: Figures = Figures()
    usage: Usage = Usage()
    reclaim_min_runtime: Seconds | UnsetType = UNSET
    preempt_min_runtime: Seconds | UnsetType = UNSET
    node_pools: list[str] = []
    pools: dict[str, QueuePool] = {}
    node_types: dict[Kind, dict[str, list[str]]] = {}


class Stale(Written, frozen=True, kw_only=True):
    """Seconds since a gang fell below its minimum, and how many it may stay so."""

    for_: Seconds = field(default=0, name="for")
    grace: Seconds | None = 60


class Nearness(Written, frozen=True, kw_only=True):
    """Levels of a topology in which the pods of a group must or should be together."""

    name: str
    required: str | None = None
    preferred: str | None = None


class Group(Written, frozen=True, kw_only=True):
    """A job's group, or one inside it. Without `min` or `min_groups`, all of it is needed."""

    name: str = ""
    min: Natural | None = None
    min_groups: Natural | None = None
    topology: Nearness | None = None
    children: "list[Group]" = []


class Requirement(Written, frozen=True, kw_only=True):
    """One expression of a node affinity."""

    key: Name
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = "In"
    values: list[str] = []


class PodTerm(Written, frozen=True, kw_only=True):
    """Pods with all these labels, in the same domain."""

    topology_key: Name
    labels: dict[str, str] = {}


class Toleration(Written, frozen=True, kw_only=True):
    """A toleration as Kubernetes has it."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Task(Written, frozen=True, kw_only=True):
    """`n` pods that ask for the same, and get their cards by `delivery`."""

    name: Name
    n: Count = 1
    state: StartState = "pending"
    node: str | None = None
    cards: list[str] = []
    group: str = ""
    order: Rank = 0
    gpu: Amount | UnsetType = UNSET
    gpu_memory: Natural | None = None
    devices: Annotated[int, Meta(ge=1, le=MOST_CARDS)] = 1
    cpu: Amount = "1"
    memory: Amount = "1G"
    mig: dict[str, Natural] = {}
    resources: dict[str, Natural] = {}
    delivery: Delivery = "resource"
    node_selector: dict[str, str] = {}
    node_affinity: list[Requirement] = []
    pod_affinity: list[PodTerm] = []
    pod_anti_affinity: list[PodTerm] = []
    tolerations: list[Toleration] = []


class Job(Written, frozen=True, kw_only=True):
    """A workload."""

    name: Name
    tasks: list[Task]
    queue: str = ""
    namespace: str = "default"
    priority: Rank = 50
    preemptible: bool | None = None
    kind: Kind = "training"
    node_pools: list[str] = []
    user: str = ""
    max_concurrent_pods: Natural | None = None
    expected_run: Seconds | None = None
    checkpoint: Seconds | None = None
    weight: Weight = 1
    age: Seconds | None = None
    running_for: Seconds = 0
    preemption_delay: Seconds = 0
    stale: Stale | None = None
    deleted: bool = False
    replica_of: str = ""
    floor: Natural = 0
    group: Group = Group()

    @property
    def is_preemptible(self) -> bool:
        """What it says, or what its priority says; a floor keeps replicas of any priority."""
        usual = self.priority < 100 or self.replica is not None
        return usual if self.preemptible is None else self.preemptible

    @property
    def replica(self) -> ReplicaOf | None:
        """The owner that it is a replica of, where a floor is stated."""
        is_one = self.replica_of and self.floor
        return ReplicaOf(self.replica_of, self.floor) if is_one else None


class Budget(Written, frozen=True, kw_only=True):
    """A PodDisruptionBudget over the tasks of these jobs: one of the two bounds is given."""

    name: Name
    namespace: str = "default"
    jobs: list[str]
    min_available: Natural | None = None
    max_unavailable: Natural | None = None


class JobExpectation(Written, frozen=True, kw_only=True):
    """What must be true of all tasks of a job, or of `count` of them."""

    status: Status | list[Status] | None = None
    node: str | None = None
    count: Natural | None = None
    gpus: Amount | None = None
    reason: str | None = None


class TaskExpectation(Written, frozen=True, kw_only=True):
    """What must be true of one task; tasks with the same letter `card` share a card."""

    status: Status | list[Status] | None = None
    node: str | None = None
    card: str | None = None


class NodeExpectation(Written, frozen=True, kw_only=True):
    """How many cards of a node are idle, and how many are being left."""

    idle_gpus: int | None = None
    releasing_gpus: int | None = None


class AtMost(Written, frozen=True, kw_only=True):
    """What one cycle may newly decide."""

    bound: Natural | None = None
    evicted: Natural | None = None
    nominated: Natural | None = None


class ShareExpectation(Written, frozen=True, kw_only=True):
    """A queue's fair share, over all node pools."""

    gpu: Limit | UnsetType = UNSET
    cpu: Limit | UnsetType = UNSET
    memory: Limit | UnsetType = UNSET


class Expectation(Written, frozen=True, kw_only=True):
    """What must come out. What is absent is not asserted."""

    jobs: dict[str, JobExpectation] = {}
    tasks: dict[str, TaskExpectation] = {}
    nodes: dict[str, NodeExpectation] = {}
    at_most: AtMost = AtMost()
    fair_share: dict[str, ShareExpectation] = {}


class Change(Written, frozen=True, kw_only=True):
    """What changes of a job; what is not given stays as it is."""

    queue: str | UnsetType = UNSET
    priority: Rank | UnsetType = UNSET
    preemptible: bool | UnsetType | None = UNSET
    kind: Kind | UnsetType = UNSET
    node_pools: list[str] | UnsetType = UNSET
    user: str | UnsetType = UNSET
    max_concurrent_pods: Natural | UnsetType | None = UNSET
    expected_run: Seconds | UnsetType | None = UNSET
    checkpoint: Seconds | UnsetType | None = UNSET
    weight: Weight | UnsetType = UNSET
    preemption_delay: Seconds | UnsetType = UNSET
    stale: Stale | UnsetType | None = UNSET
    deleted: bool | UnsetType = UNSET

    def of(self, job: Job) -> Job:
        """The job with what changes."""
        names = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return replace(job, **{name: value for name, value in names if value is not UNSET})


class Step(Written, frozen=True, kw_only=True):
    """One more cycle: `after` seconds later, some jobs have ended, changed, and come."""

    after: Seconds = 0
    finish: list[str] = []
    set: dict[str, Change] = {}
    add: list[Job] = []
    expect: Expectation = Expectation()


#: A number, or two between which one is drawn.
Span = Seconds | Annotated[list[Seconds], Meta(min_length=2, max_length=2)]


class Arrivals(Written, frozen=True, kw_only=True):
    """Jobs that come during a simulation, all made like `job`: their names begin with its
    name; each has `run` seconds of work (None: it never ends).

    When they come is said by one of `at` (with `every` and `count`), `per_day` and `keep`. Of each
    list one value is drawn for each job.
    """

    job: Job
    at: Seconds | None = None
    every: Seconds | None = None
    count: Count = 1
    per_day: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    keep: Count | None = None
    from_: Seconds = field(default=0, name="from")
    until: Seconds | None = None
    run: Span | None = None
    gpu: list[Amount] = []
    priority: list[Rank] = []
    user: list[str] = []


class Happening(Written, frozen=True, kw_only=True):
    """What happens at one moment of a simulation, as in a step."""

    at: Seconds
    finish: list[str] = []
    set: dict[str, Change] = {}


class Simulation(Written, frozen=True, kw_only=True):
    """A long run. `runs` are the seconds of work that jobs of `jobs` have from their start; those
    without run until the end. Bars are figures of the report by their path."""

    days: Annotated[float, Meta(gt=0, le=3660)] = 1
    seed: int = 0
    restart: Seconds = 0
    look_every: Count = 60
    runs: dict[str, Span] = {}
    arrivals: list[Arrivals] = []
    events: list[Happening] = []
    at_most: dict[str, float] = {}
    at_least: dict[str, float] = {}


class Case(Written, frozen=True, kw_only=True):
    """One scenario."""

    scenario: Literal["v1"]
    id: Name
    nodes: list[Node]
    about: str = ""
    source: dict[str, str | int | float | None] = {}
    tags: list[str] = []
    settings: Settings = Settings()
    rounds: Rounds = Rounds()
    topologies: list[Topology] = []
    node_pools: list[Pool] = []
    queues: list[Queue] = []
    jobs: list[Job] = []
    budgets: list[Budget] = []
    expect: Expectation = Expectation()
    steps: list[Step] = []
    simulate: Simulation = Simulation()

    @property
    def is_out_of_format(self) -> bool:
        """Whether it needs what the format cannot say."""
        return "out-of-format" in self.tags
