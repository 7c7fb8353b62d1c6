"""The rows of the comparison: each is a set of queues and settings for our own `decide`.

What a row can't say by settings it says by the queues it lays out: one queue for all jobs is first
come, first served; a node pool for each tenant is a private partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from extender.api.units import MILLI_PER_GPU
from extender.lab.philly.trace import GPUS_PER_NODE, WINDOW_START_S, PhillyTrace, TraceJob
from extender.policy.plan import Settings, Stage
from extender.state.model import Figures, JobOrder, PoolQuota, PoolView, QueueView, department_queue

Sharing = Literal["one-queue", "tenants", "partitions"]
Order = Literal["skip", "strict", "shortest"]
POOL: Final = "default"
EVERYBODY: Final = "everybody"
_NEVER_S: Final = 1 << 40
_CONSOLIDATE: Final[tuple[Stage, ...]] = ("allocate", "consolidate")
_RECLAIM: Final[tuple[Stage, ...]] = ("allocate", "reclaim")
_DEFAULT_PRIORITY: Final = 50


@dataclass(slots=True, frozen=True)
class ReplayRule:
    """One row: `title` is how the note calls it.

    `order` is the order of jobs in a queue: by age, passing over what does not fit (`skip`) or not
    (`strict`), or by run time, which only an oracle knows (`shortest`).
    """

    name: str
    title: str
    sharing: Sharing
    stages: tuple[Stage, ...] = ("allocate",)
    placement: Literal["binpack", "spread"] = "binpack"
    order: Order = "skip"
    moves_reclaimed: bool = False

    @property
    def may_stop(self) -> bool:
        """Whether running jobs are stopped or moved."""
        return self.stages != ("allocate",)

    def settings(self, reclaim_band_percent: int = 0) -> Settings:
        """What `decide` is told."""
        return Settings(
            stages=self.stages,
            moves_reclaimed=self.moves_reclaimed,
            reclaim_band_percent=reclaim_band_percent,
        )

    def waits_since(self, began_s: int) -> int:
        """From when on waiting counts: a big job that waits long may have a place kept for it.

        The simple schedulers that most rows stand for do not keep any.
        """
        return began_s if self.may_stop else _NEVER_S

    def priority_of(self, job: TraceJob) -> int:
        """The job's priority in its queue."""
        return -job.run_s if self.order == "shortest" else _DEFAULT_PRIORITY

    def project_of(self, job: TraceJob) -> str:
        """The queue that the job waits in."""
        return EVERYBODY if self.sharing == "one-queue" else job.tenant


@dataclass(slots=True, frozen=True)
class ReplayPace:
    """How often cycles run, and how soon jobs are stopped.

    A job that has started is safe for `min_runtime_s`; one that waits has others stopped or moved
    for it only after `preemption_delay_s`. `reclaim_band_percent` is as in `Settings`. All jobs
    save their work alike; with `says_checkpoints` they also say so.
    """

    cycle_s: int = 1
    min_runtime_s: int = 0
    preemption_delay_s: int = 0
    reclaim_band_percent: int = 0
    says_checkpoints: bool = False

    @property
    def is_patient(self) -> bool:
        """Whether time alone may change what a cycle decides."""
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
    ),
)


def rule_named(name: str) -> ReplayRule:
    """The row of that name; KeyError if there is none."""
    return next(rule for rule in RULES if rule.name == name)


@dataclass(slots=True, frozen=True)
class Part:
    """Nodes that are scheduled on their own: what a snapshot says of their pool and queues.

    `quota_gpus` is by project; it sums to the GPUs of all nodes.
    """

    tenants: frozenset[str]
    n_nodes: int
    quota_gpus: Mapping[str, int]
    pools: Mapping[str, PoolView]
    queues: Mapping[str, QueueView]


def lay_out(rule: ReplayRule, trace: PhillyTrace, min_runtime_s: int = 0) -> list[Part]:
    """The parts of the cluster under this rule: one for each tenant, or one for all.

    A tenant is a department with one project of the same quota.
    """
    if rule.sharing == "partitions":
        return [
            _part(rule, frozenset([tenant]), {tenant: nodes}, min_runtime_s)
            for tenant, nodes in trace.quota_nodes.items()
        ]
    quota = {EVERYBODY: trace.nodes} if rule.sharing == "one-queue" else trace.quota_nodes
    return [_part(rule, frozenset(trace.quota_nodes), quota, min_runtime_s)]


def _part(
    rule: ReplayRule, tenants: frozenset[str], quota: Mapping[str, int], min_runtime_s: int
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
                reclaim_min_runtime_s=min_runtime_s,
                preempt_min_runtime_s=min_runtime_s,
            )
    job_order: JobOrder = "strict-fifo" if rule.order == "strict" else "fifo"
    pool = PoolView(POOL, gpu_placement=rule.placement, job_order=job_order)
    quota_gpus = {name: nodes * GPUS_PER_NODE for name, nodes in quota.items()}
    return Part(tenants, sum(quota.values()), quota_gpus, {POOL: pool}, queues)
