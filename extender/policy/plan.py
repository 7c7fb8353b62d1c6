"""What a cycle decides: placements, evictions for them, and why other work is pending."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from extender.api.kinds import CardShare
from extender.api.reasons import Reason, Refused
from extender.state.model import (
    GPU,
    NOTHING,
    UNLIMITED,
    Amounts,
    MonthHours,
    PodView,
    WorkloadView,
)

Stage = Literal["allocate", "consolidate", "reclaim", "preempt", "stale-gangs", "empty-nodes"]
ALL_STAGES: tuple[Stage, ...] = (
    "allocate",
    "consolidate",
    "reclaim",
    "preempt",
    "stale-gangs",
    "empty-nodes",
)

#: A placed pod starts now, or once the pods that hold its resources are gone.
State = Literal["reserved", "nominated"]


def never() -> bool:
    """The `Settings.is_spent` of a cycle without a time limit."""
    return False


def ignore_stage(_stage: Stage) -> None:
    """The `Settings.enter` of a caller that times no stages."""


@dataclass(slots=True, frozen=True)
class Settings:
    """What a cycle does. Stages run in the order given.

    `protected_pods` are UIDs of pods that a disruption budget protected lately. `held_since` is
    when (unix seconds) budgets began to hold back earlier plans, by `disruption_budgets.hold_key`.
    `max_moves` bounds the pods that consolidation moves for one workload (None: no bound).
    `moves_reclaimed`: reclaim may move a victim instead of stopping it. `usage_weight_milli` is how
    strongly past usage bends weights (0: not at all). `is_spent`: whether the cycle's time is up,
    which is checked between workloads, never within one. `enter` is called when each stage begins,
    so that a caller with a clock can time them. `first` are keys of workloads that the last cycle
    had no time for.
    """

    stages: tuple[Stage, ...] = ALL_STAGES
    protected_pods: frozenset[str] = frozenset()
    held_since: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    max_moves: int | None = None
    moves_reclaimed: bool = True
    usage_weight_milli: int = 1000
    is_spent: Callable[[], bool] = never
    enter: Callable[[Stage], None] = ignore_stage
    first: frozenset[str] = frozenset()


class Placement(Struct, frozen=True, gc=False):
    """A pod's placement: a node, and the shares of its cards."""

    pod: PodView
    node: str
    cards: tuple[CardShare, ...]

    @property
    def milli(self) -> int:
        """Milli-GPU over all cards."""
        if len(self.cards) == 1:
            return self.cards[0].milli
        return sum(card.milli for card in self.cards)

    @property
    def amounts(self) -> Amounts:
        """What the queue is charged for the pod."""
        demand, milli = self.pod.demand, self.milli
        if demand.counted:
            milli += demand.counted_milli
        return milli, demand.cpu_milli, demand.memory_mib


class Admission(Struct, frozen=True, gc=False):
    """Placements for pods of one workload.

    `reserved`: the resources are free, so write rows that may be bound; for nominated pods these
    are their nominations. `nominated`: terminating pods still hold some of the resources.
    """

    workload: WorkloadView
    placements: tuple[Placement, ...]
    state: State


class Eviction(Struct, frozen=True, gc=False):
    """A pod to evict. `workload` and `beneficiary` are workload keys."""

    pod: PodView
    workload: str
    reason: Reason
    beneficiary: str
    note: str


class Move(Struct, frozen=True, gc=False):
    """A pod to evict that is placed elsewhere in the same plan, where its work starts again.

    The pod's successor gets the placement. Other fields as in `Eviction`.
    """

    placement: Placement
    workload: str
    reason: Reason
    beneficiary: str

    @property
    def pod(self) -> PodView:
        """The evicted pod."""
        return self.placement.pod


def leaves_with(each: Eviction | Move) -> str:
    """The workload that must hold all its nominations before the pod is evicted: the beneficiary,
    or the pod's own workload if there is none. Empty for pods of an emptied node, evicted
    together."""
    if each.reason is Reason.NODE_EMPTIED:
        return ""
    return each.beneficiary or each.workload


class HeldBack(Struct, frozen=True, gc=False):
    """A victim that would be evicted now if no disruption budget protected it.

    `until` (unix seconds) is when budgets stop holding it back; `budgets` as in `PodView`.
    """

    uid: str
    budgets: tuple[str, ...]
    until: int


@dataclass(slots=True, frozen=True)
class QueueShare:
    """A queue's figures in one node pool, as the snapshot was before this plan.

    `allocated` is what its reserved and bound rows hold, terminating pods included; `requested` is
    what its live pods hold or request. `month` is its budget of GPU-hours.
    """

    quota: Amounts = NOTHING
    limit: Amounts = (UNLIMITED, UNLIMITED, UNLIMITED)
    month: MonthHours | None = None
    fair_share: Amounts = NOTHING
    allocated: Amounts = NOTHING
    allocated_non_preemptible: Amounts = NOTHING
    requested: Amounts = NOTHING

    @property
    def owed_milli(self) -> int:
        """Milli-GPU that the queue is owed: the smaller of fair share and request."""
        return min(self.fair_share[GPU], self.requested[GPU])

    @property
    def borrowed_milli(self) -> int:
        """Milli-GPU that the queue holds above its quota."""
        return max(0, self.allocated[GPU] - self.quota[GPU])

    @property
    def waiting_milli(self) -> int:
        """Milli-GPU that the queue requests and does not hold."""
        return max(0, self.requested[GPU] - self.allocated[GPU])


@dataclass(slots=True)
class Plan:
    """The outcome of one cycle. Shares are keyed by (queue, node pool), the rest by workload key.

    `waits` has every workload with pods that are not placed, and why; `drops` has those that
    lose their nominations, because the resources will never come free or go to other work.
    `held_back` are victims that disruption budgets protected. `cut` are workloads that the cycle
    had no time for, and `cut_stages` the stages in which that happened. `kept` are running replicas
    that are not evicted, because they belong to the floor of their owner. `turns` has the keys of
    pending workloads in the order in which `allocate` considered them, placed or not; not those
    that can have no place, and not those of `priority` pools.
    """

    admissions: list[Admission] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    waits: dict[str, Refused] = field(default_factory=dict)
    shares: dict[tuple[str, str], QueueShare] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
    held_back: list[HeldBack] = field(default_factory=list)
    cut: frozenset[str] = frozenset()
    cut_stages: tuple[Stage, ...] = ()
    kept: frozenset[str] = frozenset()
    turns: tuple[str, ...] = ()

    def placed_uids(self) -> set[str]:
        """UIDs of the pods that start or are nominated. A moved pod is not among them."""
        return {each.pod.uid for admission in self.admissions for each in admission.placements}
