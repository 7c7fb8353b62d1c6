"""The rows of the comparison: each is a set of queues and settings for our own `decide`.

What settings cannot express is expressed by queues and pools: one queue for all jobs is first come,
first served; a node pool for each tenant is a private partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from extender.api.kinds import GpuNodePoolSpec
from extender.api.units import MILLI_PER_GPU
from extender.lab.philly.trace import GPUS_PER_NODE, WINDOW_START_S, PhillyTrace, TraceJob
from extender.policy.plan import Settings, Stage
from extender.state.model import Figures, JobOrder, PoolQuota, PoolView, QueueView, department_queue

Sharing = Literal["one-queue", "tenants", "partitions"]
Order = Literal["skip", "strict", "shortest"]
POOL: Final = "default"
EVERYBODY: Final = "everybody"
#: A job saves a checkpoint every half hour, and restarts from it within a minute.
CHECKPOINT_S: Final = 1800
RESTART_S: Final = 60
_NEVER_S: Final = 1 << 40
_CONSOLIDATE: Final[tuple[Stage, ...]] = ("allocate", "consolidate")
_RECLAIM: Final[tuple[Stage, ...]] = ("allocate", "reclaim")
_DEFAULT_PRIORITY: Final = 50
_INSTALLED: Final = GpuNodePoolSpec()


@dataclass(slots=True, frozen=True)
class ReplayRule:
    """One row: `title` is its name in the note.

    `order` is the order of jobs in a queue: by age, with backfill (`skip`) or without (`strict`),
    or by run time, which only an oracle knows (`shortest`). `reclaim_band_percent` and
    `checkpoint_s` are the node pool's (`PoolView`).
    """

    name: str
    title: str
    sharing: Sharing
    stages: tuple[Stage, ...] = ("allocate",)
    placement: Literal["binpack", "spread"] = "binpack"
    order: Order = "skip"
    moves_reclaimed: bool = False
    reclaim_band_percent: int = 0
    checkpoint_s: int = 0

    @property
    def may_stop(self) -> bool:
        """Whether running jobs are evicted or moved."""
        return self.stages != ("allocate",)

    @property
    def settings(self) -> Settings:
        """The settings for `decide`."""
        return Settings(stages=self.stages, moves_reclaimed=self.moves_reclaimed)

    def waits_since(self, began_s: int) -> int:
        """The start of the waiting time: for a big job that waits long, `decide` may reserve nodes.

        The simple schedulers that most rows represent do not.
        """
        return began_s if self.may_stop else _NEVER_S

    def priority_of(self, job: TraceJob) -> int:
        """The job's priority in its queue."""
        return -job.run_s if self.order == "shortest" else _DEFAULT_PRIORITY

    def project_of(self, job: TraceJob) -> str:
        """The queue of the job."""
        return EVERYBODY if self.sharing == "one-queue" else job.tenant


@dataclass(slots=True, frozen=True)
class ReplayPace:
    """How often cycles run, and how soon jobs are evicted.

    A started job is safe for `min_runtime_s`; other jobs are evicted or moved for a pending one
    only after `preemption_delay_s`. A given `reclaim_band_percent` or `checkpoint_s` replaces the
    rule's; jobs save their work every 30 minutes, whatever the node pool assumes.
    """

    cycle_s: int = 1
    min_runtime_s: int = 0
    preemption_delay_s: int = 0
    reclaim_band_percent: int | None = None
    checkpoint_s: int | None = None

    @property
    def is_patient(self) -> bool:
        """Whether time alone may change a cycle's result."""
        return self.min_runtime_s > 0 or self.preemption_delay_s > 0


RULES: Final[tuple[ReplayRule, ...]] = (
    ReplayRule("private", "private partitions", "partitions"),
    ReplayRule("strict-fifo", "strict FIFO", "one-queue", order="strict"),
    ReplayRule("fifo-skip", "FIFO with skip, binpack", "one-queue"),
    ReplayRule("fifo-skip-spread", "FIFO with skip, spread", "one-queue", placement="spread"),
    ReplayRule("sjf", "SJF, oracle", "one-queue", order="shortest"),
    ReplayRule("fairshare", "fair share, no reclaim, binpack", "tenants"),
    ReplayRule("fairshare-spread", "fair share, no reclaim, spread", "tenants", placement="spread"),
    ReplayRule("fairshare+consolidation", "fair share + consolidation", "tenants", _CONSOLIDATE),
    ReplayRule("fairshare+reclaim", "fair share + reclaim", "tenants", _RECLAIM),
    ReplayRule(
        "ballast",
        "fair share + reclaim + consolidation",
        "tenants",
        # All jobs have one priority, so `preempt` has nothing to do.
        ("allocate", "consolidate", "reclaim"),
        moves_reclaimed=True,
        reclaim_band_percent=_INSTALLED.reclaim_band_percent,
        checkpoint_s=_INSTALLED.checkpoint_seconds,
    ),
)


def rule_named(name: str) -> ReplayRule:
    """The rule of that name; KeyError if there is none."""
    return next(rule for rule in RULES if rule.name == name)


@dataclass(slots=True, frozen=True)
class Part:
    """Nodes that are scheduled on their own: the pool and queues of a snapshot.

    `quota_gpus` is by project; it sums to the GPUs of all nodes.
    """

    tenants: frozenset[str]
    n_nodes: int
    quota_gpus: Mapping[str, int]
    pools: Mapping[str, PoolView]
    queues: Mapping[str, QueueView]


def lay_out(rule: ReplayRule, trace: PhillyTrace, pace: ReplayPace = ReplayPace()) -> list[Part]:
    """The parts of the cluster under this rule: one for each tenant, or one for all.

    A tenant is a department with one project of the same quota.
    """
    if rule.sharing == "partitions":
        return [
            _part(rule, frozenset([tenant]), {tenant: nodes}, pace)
            for tenant, nodes in trace.quota_nodes.items()
        ]
    quota = {EVERYBODY: trace.nodes} if rule.sharing == "one-queue" else trace.quota_nodes
    return [_part(rule, frozenset(trace.quota_nodes), quota, pace)]


def _part(
    rule: ReplayRule, tenants: frozenset[str], quota: Mapping[str, int], pace: ReplayPace
) -> Part:
    queues = {}
    for age, (name, nodes) in enumerate(quota.items()):
        milli = nodes * GPUS_PER_NODE * MILLI_PER_GPU
        department, made_s = department_queue(name), WINDOW_START_S + age
        # A department has its quota as its weight, as the controller's model gives it.
        for view, parent, weight in ((department, "", milli), (name, department, 1)):
            figures = {POOL: PoolQuota(Figures(quota=milli, weight=weight))}
            queues[view] = QueueView(
                name=view,
                parent=parent,
                created_at=made_s,
                pools=figures,
                reclaim_min_runtime_s=pace.min_runtime_s,
                preempt_min_runtime_s=pace.min_runtime_s,
            )
    job_order: JobOrder = "strict-fifo" if rule.order == "strict" else "fifo"
    band, checkpoint_s = pace.reclaim_band_percent, pace.checkpoint_s
    pool = PoolView(
        POOL,
        gpu_placement=rule.placement,
        job_order=job_order,
        reclaim_band_percent=rule.reclaim_band_percent if band is None else band,
        checkpoint_s=rule.checkpoint_s if checkpoint_s is None else checkpoint_s,
    )
    quota_gpus = {name: nodes * GPUS_PER_NODE for name, nodes in quota.items()}
    return Part(tenants, sum(quota.values()), quota_gpus, {POOL: pool}, queues)
