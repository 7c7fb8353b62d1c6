"""What a cycle has decided so far; see `plan` for the outcome.

Stages record placements, evictions and moves here when the simulation holds them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.policy.plan import (
    ALL_STAGES,
    Admission,
    Eviction,
    HeldBack,
    Move,
    Placement,
    Plan,
    Stage,
    State,
)
from extender.state.model import PodView, WorkloadView


@dataclass(slots=True)
class PlanDraft:
    """`placed` has the placements by workload key and state. `drops` are keys of workloads that
    lose their nominations; `gone` are the UIDs of pods that the cycle evicts or moves, or of which
    it drops the nomination. `waits` says, by key, why workloads are not placed; `incomplete`, why
    more pods of a placed workload are not. `held_back` are by UID the victims that disruption
    budgets protected. `turns` has the keys of workloads in the order in which `allocate` first
    considered them."""

    placed: dict[tuple[str, State], list[Placement]] = field(default_factory=dict)
    evictions: list[Eviction] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    waits: dict[str, Refused] = field(default_factory=dict)
    incomplete: dict[str, Refused] = field(default_factory=dict)
    held_back: dict[str, HeldBack] = field(default_factory=dict)
    turns: dict[str, None] = field(default_factory=dict)
    _cut: dict[str, Stage] = field(default_factory=dict)
    _with_victims: set[str] = field(default_factory=set)
    _shrinking: set[str] = field(default_factory=set)

    def place(self, key: str, placements: Iterable[Placement], state: State) -> None:
        """Add placements of the workload."""
        self.placed.setdefault((key, state), []).extend(placements)

    def replace(self, key: str, old: Sequence[Placement], new: Sequence[Placement]) -> None:
        """Replace nominated placements of the workload, as the caller did in the simulation."""
        gone = {id(placement) for placement in old}
        placed = self.placed[key, "nominated"]
        placed[:] = [*(each for each in placed if id(each) not in gone), *new]

    def nominated_of(self, key: str) -> Sequence[Placement]:
        """The placements that this cycle nominates for the workload."""
        return self.placed.get((key, "nominated"), ())

    def reserved_of(self, key: str) -> Sequence[Placement]:
        """The placements that this cycle reserves for the workload."""
        return self.placed.get((key, "reserved"), ())

    def placed_of(self, key: str) -> list[Placement]:
        """All placements of the workload in this cycle."""
        return [*self.reserved_of(key), *self.nominated_of(key)]

    def served(self) -> set[str]:
        """Keys of all workloads with pods that this cycle places."""
        return {key for key, _ in self.placed}

    def drop(self, key: str, pods: Iterable[PodView]) -> None:
        """Drop the nominations of the workload's pods."""
        self.drops.append(key)
        self.gone.update(pod.uid for pod in pods)

    def evict(self, eviction: Eviction) -> None:
        """Add an eviction; that of a nominated pod gives its nomination up."""
        self.evictions.append(eviction)
        self.gone.add(eviction.pod.uid)
        self._shrinking.add(eviction.workload)
        self._with_victims.add(eviction.workload)

    def move(self, move: Move) -> None:
        """Add a move."""
        self.moves.append(move)
        self.gone.add(move.pod.uid)
        self._with_victims.add(move.workload)

    def keep(self, uids: Collection[str]) -> None:
        """Remove the evictions and moves of these pods; `has_victims` and `is_shrinking` stay."""
        self.evictions = [each for each in self.evictions if each.pod.uid not in uids]
        self.moves = [each for each in self.moves if each.pod.uid not in uids]
        self.gone.difference_update(uids)

    def cut(self, key: str, stage: Stage) -> None:
        """Record that the stage had no time for the workload."""
        self._cut.setdefault(key, stage)

    def has_victims(self, key: str) -> bool:
        """Whether this cycle evicts or moves pods of the workload."""
        return key in self._with_victims

    def is_shrinking(self, key: str) -> bool:
        """Whether this cycle evicts pods of the workload without a new placement."""
        return key in self._shrinking

    def has_leaving_pods(self) -> bool:
        """Whether this cycle evicts or moves a pod."""
        return bool(self.evictions or self.moves)

    def nodes(self) -> Iterator[str]:
        """The nodes on which this cycle places, evicts or moves pods."""
        yield from (place.node for placed in self.placed.values() for place in placed)
        yield from (eviction.pod.node for eviction in self.evictions)
        for move in self.moves:
            yield from (move.pod.node, move.placement.node)

    def plan(self, workloads: Mapping[str, WorkloadView]) -> Plan:
        """The plan so far, without the queues' shares."""
        given_up = self._given_up()
        evictions = [each for each in self.evictions if each.workload not in given_up]
        plan = Plan(evictions=evictions, moves=self.moves, drops=[*self.drops, *given_up])
        plan.held_back = [self.held_back[uid] for uid in sorted(self.held_back)]
        for (key, state), placements in self.placed.items():
            if key not in given_up:
                plan.admissions.append(Admission(workloads[key], tuple(placements), state))
        waits = self.incomplete | self.waits | given_up
        plan.waits = {key: waits[key] for key in sorted(waits)}
        plan.turns = tuple(self.turns)
        plan.cut = frozenset(self._cut)
        plan.cut_stages = tuple(sorted(set(self._cut.values()), key=ALL_STAGES.index))
        return plan

    def _given_up(self) -> dict[str, Refused]:
        """By key, why nominations of earlier cycles are given up for other work."""
        return {
            each.workload: Refused(
                Reason.WAITING_FOR_TURN,
                f"{each.workload}: its promised place goes to other work; {each.note}".rstrip("; "),
            )
            for each in self.evictions
            if each.pod.state == "nominated"
        }
