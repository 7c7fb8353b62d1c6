"""A whole scenario file: one case, its settings and its cycles."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from extender.policy.plan import Stage
from extender.scenario.model.expectations import Expectation
from extender.scenario.model.fleet import Node, Placement, Pool, Topology
from extender.scenario.model.jobs import Budget, Change, Job
from extender.scenario.model.queues import Queue
from extender.scenario.model.simulation import Simulation
from extender.scenario.model.values import Amount, Duration, Name, Natural, Seconds, Written
from extender.state.model import JobOrder, PoolPolicy

#: Rounds take no time: a cluster has reached a steady state long before.
_MOST_ROUNDS: Final = 1000


class Settings(Written, frozen=True, kw_only=True):
    """Settings of a cycle, and defaults of node pools."""

    stages: list[Stage] = field(
        default_factory=lambda: ["allocate", "consolidate", "reclaim", "preempt", "empty-nodes"]
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
    consolidate_after: Seconds = 0
    job_order: JobOrder = "fifo"


class Rounds(Written, frozen=True, kw_only=True):
    """How many cycles are run and settled before the expectation is checked, and how many after."""

    until: Annotated[int, Meta(ge=1, le=_MOST_ROUNDS)] = 1
    after: Annotated[int, Meta(ge=0, le=_MOST_ROUNDS)] = 0

    @property
    def is_single(self) -> bool:
        """Whether the expectation is checked in the only cycle, before it settles."""
        return self.until == 1 and self.after == 0


class Step(Written, frozen=True, kw_only=True):
    """One more cycle: `after` seconds later, after jobs have ended, changed, and been added."""

    after: Seconds = 0
    finish: list[str] = []
    set: dict[str, Change] = {}
    add: list[Job] = []
    expect: Expectation = Expectation()


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
        """Whether it needs features that the format lacks."""
        return "out-of-format" in self.tags
