"""A job of a snapshot that a test builds: its pods and its workload; see `snapshots`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.api.names import CLASS_OF_KIND, NON_PREEMPTIBLE_FROM, PRIORITY_CLASSES
from extender.api.reasons import Refused
from extender.api.units import MILLI_PER_GPU, parse_gpus
from extender.state.model import ANYWHERE, Constraints, GroupView, PodState, PodView, WorkloadView
from extender.state.refusals import NONE, Refusals

NOW_S = 1_000_000

Gpus = int | str


def demand_of(
    gpus: Gpus = 1,
    *,
    devices: int = 1,
    mib: int = 0,
    cpu: int = 0,
    counted: tuple[tuple[str, int], ...] = (),
) -> Demand:
    """A demand: 2 GPUs, half a GPU ("0.5"), a share of several (`devices`), MiB of one, or MIG
    instances (`counted`)."""
    if counted:
        return Demand(cpu_milli=cpu, counted=counted)
    if mib:
        return Demand(devices=devices, gpu_memory_mib=mib, cpu_milli=cpu)
    milli = parse_gpus(gpus)
    if milli == 0:
        return Demand(cpu_milli=cpu)
    if milli % MILLI_PER_GPU == 0:
        return Demand(devices=milli // MILLI_PER_GPU, milli=MILLI_PER_GPU, cpu_milli=cpu)
    return Demand(devices=devices, milli=milli, cpu_milli=cpu)


@dataclass(slots=True)
class Job:
    """A job that a test describes. Its pods run `on` nodes: one name for all, or a list.

    `min` is all pods by default. `age`, `ran` and `run` (expected) are seconds, `cards` indices on
    the node; `waiting` further pods are pending; `max` is maxConcurrentPods. `labels` are those of
    each pod, `refusals` those of each pending one; `groups` has the leaf of each pod, and `orders`
    its order. `budgets` are names of disruption budgets that select its pods; `Cluster.budgets` has
    what they allow. `of_job`: a Job creates them.
    """

    name: str
    project: str
    gpus: Gpus
    pods: int
    on: str | Sequence[str] = ()
    waiting: int = 0
    min: int | None = None
    max: int | None = None
    kind: str = "training"
    priority: int | None = None
    preemptible: bool | None = None
    pools: Sequence[str] = ("default",)
    age: int | None = None
    ran: int = 60
    run: int | None = None
    state: PodState = "bound"
    terminating: bool = False
    cards: Sequence[int] | None = None
    devices: int = 1
    mib: int = 0
    cpu: int = 0
    counted: tuple[tuple[str, int], ...] = ()
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    groups: Sequence[str] | None = None
    orders: Sequence[int] | None = None
    tree: GroupView | None = None
    constraints: Constraints = ANYWHERE
    budgets: Sequence[str] = ()
    of_job: bool = False
    refusals: Refusals = NONE
    problem: Refused | None = None
    doubt: Refused | None = None

    @property
    def nodes(self) -> Sequence[str]:
        """The node of each running pod."""
        return [self.on] * self.pods if isinstance(self.on, str) else self.on

    @property
    def n_pods(self) -> int:
        """All pods, running and pending."""
        return max(self.pods, len(self.nodes)) + self.waiting

    @property
    def demand(self) -> Demand:
        """What each pod requests."""
        return demand_of(
            self.gpus, devices=self.devices, mib=self.mib, cpu=self.cpu, counted=self.counted
        )

    @property
    def class_value(self) -> int:
        """The priority, that of the kind's class by default."""
        usual = PRIORITY_CLASSES[CLASS_OF_KIND[self.kind]]
        return usual if self.priority is None else self.priority

    @property
    def created_at(self) -> int:
        """Unix seconds."""
        return NOW_S - (self.age or 0)

    def pod(self, at: int, node: str, cards: tuple[CardShare, ...]) -> PodView:
        """The pod with this number; it is pending without a node."""
        is_held = bool(node)
        return PodView(
            uid=f"{self.name}-{at}",
            namespace="ns",
            name=f"{self.name}-{at}",
            group=self.groups[at] if self.groups else "",
            order=self.orders[at] if self.orders else 0,
            labels=tuple(sorted(self.labels.items())),
            budgets=tuple(self.budgets),
            demand=self.demand,
            state=self.state if is_held else "gated",
            is_gated=not is_held or self.state == "nominated",
            is_terminating=self.terminating and is_held,
            is_of_job=self.of_job,
            node=node,
            cards=cards,
            priority=self.class_value,
            created_at=self.created_at,
            started_at=NOW_S - self.ran if is_held and self.state == "bound" else 0,
            constraints=self.constraints,
            refusals=NONE if is_held else self.refusals,
        )

    def workload(self, pods: Sequence[PodView]) -> WorkloadView:
        """The workload of these pods."""
        is_preemptible = self.class_value < NON_PREEMPTIBLE_FROM
        return WorkloadView(
            key=f"ns/{self.name}",
            namespace="ns",
            name=self.name,
            is_group=self.n_pods > 1,
            project=self.project,
            kind=self.kind,
            priority=self.class_value,
            is_preemptible=is_preemptible if self.preemptible is None else self.preemptible,
            min_member=self.n_pods if self.min is None else self.min,
            pools=tuple(self.pools),
            created_at=self.created_at,
            pods=tuple(pods),
            max_concurrent_pods=self.max,
            user=self.user,
            expected_run_s=self.run,
            tree=self.tree,
            problem=self.problem,
            doubt=self.doubt,
        )
