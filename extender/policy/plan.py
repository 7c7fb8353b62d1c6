"""What a cycle decides: placements, evictions for them, and why other work waits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from extender.api.kinds import CardShare
from extender.api.reasons import Reason, Refused
from extender.state.model import (
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

#: What becomes of a place: the pod starts now, or when others have left.
State = Literal["reserved", "nominated"]


def never() -> bool:
    """A budget that is never spent."""
    return False


def unheard(_stage: Stage) -> None:
    """Ignore which stage begins."""


@dataclass(slots=True, frozen=True)
class Settings:
    """What a cycle does. Stages run in the order given.

    `protected_pods` are UIDs of pods that a disruption budget protected lately. `held_since` says,
    by `disruption_budgets.hold_key`, since when (unix seconds) budgets hold back former plans.
    `max_moves` bounds the pods that consolidation moves for one workload (None: no bound).
    `moves_reclaimed`: reclaim may move a victim instead of stopping it.
    `usage_weight_milli` is how strongly past usage bends weights (0: not at all). `is_spent` says
    when the cycle's time is up: it is asked between workloads, never within one. `enter` is told
    each stage as it begins, so that a caller with a clock can time them. `first` are keys of
    workloads that the last cycle had no time for.
    """

    stages: tuple[Stage, ...] = ALL_STAGES
    protected_pods: frozenset[str] = frozenset()
    held_since: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    max_moves: int | None = None
    moves_reclaimed: bool = True
    usage_weight_milli: int = 1000
    is_spent: Callable[[], bool] = never
    enter: Callable[[Stage], None] = unheard
    first: frozenset[str] = frozenset()


class Placement(Struct, frozen=True, gc=False):
    """One pod's place: a node, and the shares of its cards."""

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
        """What its queue is charged for it."""
        demand, milli = self.pod.demand, self.milli
        if demand.counted:
            milli += demand.counted_milli
        return milli, demand.cpu_milli, demand.memory_mib


class Admission(Struct, frozen=True, gc=False):
    """Pods of one workload that get their places.

    `reserved`: the places are free, write rows that may be bound (for pods that were nominated: the
    same places, now free). `nominated`: some place is still held by pods that leave.
    """

    workload: WorkloadView
    placements: tuple[Placement, ...]
    state: State


class Eviction(Struct, frozen=True, gc=False):
    """A pod that must leave. `workload` and `beneficiary` are workload keys."""

    pod: PodView
    workload: str
    reason: Reason
    beneficiary: str
    note: str


class Move(Struct, frozen=True, gc=False):
    """A pod that must leave and has its new place in the same plan, where its work starts again.

    `placement.pod` is the pod that leaves; its successor gets the place. Other fields as in
    `Eviction`.
    """

    placement: Placement
    workload: str
    reason: Reason
    beneficiary: str
    note: str


def leaves_with(each: Eviction | Move) -> str:
    """The workload that must hold all its nominated places before the pod leaves: the beneficiary,
    or the pod's own workload if there is none. Empty for pods of a node that is emptied, which
    leave together."""
    if each.reason is Reason.NODE_EMPTIED:
        return ""
    return each.beneficiary or each.workload


class HeldBack(Struct, frozen=True, gc=False):
    """A victim that some workload would get now, if no disruption budget protected it.

    `until` (unix seconds) is when budgets stop holding it back; `budgets` as in `PodView`.
    """

    uid: str
    budgets: tuple[str, ...]
    until: int


@dataclass(slots=True, frozen=True)
class QueueShare:
    """A queue's figures in one node pool, as the snapshot was before this plan.

    `allocated` is what rows hold that are reserved or bound, pods on their way out included;
    `requested` is what its live pods hold or ask for. `month` is its budget of GPU-hours.
    """

    quota: Amounts = NOTHING
    limit: Amounts = (UNLIMITED, UNLIMITED, UNLIMITED)
    month: MonthHours | None = None
    fair_share: Amounts = NOTHING
    allocated: Amounts = NOTHING
    allocated_non_preemptible: Amounts = NOTHING
    requested: Amounts = NOTHING


@dataclass(slots=True)
class Plan:
    """The outcome of one cycle. Shares are keyed by (queue, node pool), the rest by workload key.

    `waits` names every workload that still has pods without a place, `drops` the nominated ones
    that must be given up because their places will never come free. `held_back` are victims that
    disruption budgets kept from being taken. `cut` are workloads that there was no time to look at,
    and `cut_stages` the stages in which that was so. `kept` are replicas that run and are not
    evicted, because they belong to the floor of their owner.
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
