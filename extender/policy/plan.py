"""What a cycle decides: who gets which cards, who leaves for whom, and why the others wait."""

from dataclasses import dataclass, field
from typing import Literal

from extender.api.kinds import CardShare
from extender.api.reasons import Reason, Refused
from extender.state.model import PodView, WorkloadView

Stage = Literal["allocate", "reclaim"]


@dataclass(slots=True, frozen=True)
class Settings:
    """What a cycle does. Stages run in the order given.

    `protected_pods` are UIDs that are not to be victims for now: a disruption budget refused them.
    """

    stages: tuple[Stage, ...] = ("allocate", "reclaim")
    protected_pods: frozenset[str] = frozenset()


@dataclass(slots=True, frozen=True)
class Placement:
    """One pod's place: a node, and the shares of its cards."""

    pod: PodView
    node: str
    cards: tuple[CardShare, ...]

    @property
    def milli(self) -> int:
        """Milli-GPU over all cards."""
        return sum(card.milli for card in self.cards)


@dataclass(slots=True, frozen=True)
class Admission:
    """Pods of one workload that get their places.

    `reserved`: the places are free, write rows that may be bound (for pods that were nominated: the
    same places, now free). `nominated`: some place is still held by pods that leave.
    """

    workload: WorkloadView
    placements: tuple[Placement, ...]
    state: Literal["reserved", "nominated"]


@dataclass(slots=True, frozen=True)
class Eviction:
    """A pod that must leave. `workload` and `beneficiary` are workload keys."""

    pod: PodView
    workload: str
    reason: Reason
    beneficiary: str
    note: str


@dataclass(slots=True, frozen=True)
class QueueShare:
    """A queue's figures in one node pool, in milli-GPU, as the snapshot was before this plan.

    `allocated_milli` is what rows hold that are reserved or bound, pods on their way out included;
    `requested_milli` is what its live pods hold or ask for.
    """

    quota_milli: int = 0
    limit_milli: int | None = None
    fair_share_milli: int = 0
    allocated_milli: int = 0
    allocated_non_preemptible_milli: int = 0
    requested_milli: int = 0


@dataclass(slots=True)
class Plan:
    """The outcome of one cycle. Shares are keyed by (queue, node pool), the rest by workload key.

    `waits` names every workload that still has pods without a place, `drops` the nominated ones
    whose places will never come free and must be given up.
    """

    admissions: list[Admission] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    waits: dict[str, Refused] = field(default_factory=dict)
    project_shares: dict[tuple[str, str], QueueShare] = field(default_factory=dict)
    department_shares: dict[tuple[str, str], QueueShare] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
