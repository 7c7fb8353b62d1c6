"""Workloads of a scenario file: jobs, their tasks and groups, disruption budgets, and changes."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from extender.api.demand import MAX_DEVICES, Delivery
from extender.scenario.model.values import (
    Amount,
    Count,
    Kind,
    Name,
    Natural,
    PreemptionPolicy,
    Rank,
    Seconds,
    StartState,
    Weight,
    Written,
)
from extender.state.model import ReplicaOf


class Stale(Written, frozen=True, kw_only=True):
    """Seconds since a gang fell below its minimum, and how long it may stay below."""

    for_: Seconds = field(default=0, name="for")
    grace: Seconds | None = 60


class Nearness(Written, frozen=True, kw_only=True):
    """Levels of a topology within which the pods of a group must or should be."""

    name: str
    required: str | None = None
    preferred: str | None = None


class Group(Written, frozen=True, kw_only=True):
    """A job's group, or a nested one. Without `min` or `min_groups`, all of it is needed."""

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
    """A toleration as in Kubernetes."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Task(Written, frozen=True, kw_only=True):
    """`n` pods with the same request, which get their cards by `delivery`."""

    name: Name
    n: Count = 1
    state: StartState = "pending"
    node: str | None = None
    cards: list[str] = []
    group: str = ""
    order: Rank = 0
    gpu: Amount | UnsetType = UNSET
    gpu_memory: Natural | None = None
    devices: Annotated[int, Meta(ge=1, le=MAX_DEVICES)] = 1
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
    preemption_policy: PreemptionPolicy = "PreemptLowerPriority"
    stale: Stale | None = None
    deleted: bool = False
    replica_of: str = ""
    floor: Natural = 0
    group: Group = Group()

    @property
    def is_preemptible(self) -> bool:
        """As stated, else by its priority; replicas with a floor are preemptible by default."""
        usual = self.priority < 100 or self.replica is not None
        return usual if self.preemptible is None else self.preemptible

    @property
    def replica(self) -> ReplicaOf | None:
        """The owner that it is a replica of, if a floor is stated."""
        is_one = self.replica_of and self.floor
        return ReplicaOf(self.replica_of, self.floor) if is_one else None


class Budget(Written, frozen=True, kw_only=True):
    """A PodDisruptionBudget over the tasks of these jobs; one of the two bounds is given."""

    name: Name
    namespace: str = "default"
    jobs: list[str]
    min_available: Natural | None = None
    max_unavailable: Natural | None = None


class Change(Written, frozen=True, kw_only=True):
    """Changes of a job; absent fields stay as they are."""

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
    preemption_policy: PreemptionPolicy | UnsetType = UNSET
    stale: Stale | UnsetType | None = UNSET
    deleted: bool | UnsetType = UNSET

    def of(self, job: Job) -> Job:
        """The changed job."""
        names = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return replace(job, **{name: value for name, value in names if value is not UNSET})
