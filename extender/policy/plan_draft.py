"""The placements, evictions and moves that a cycle has decided so far; see `plan` for the outcome.

Stages record them here when the simulation holds them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.policy.plan import Eviction, Move, Placement, State
from extender.state.model import PodView


@dataclass(slots=True)
class PlanDraft:
    """`placed` has the placements by workload key and state. `drops` are keys of workloads that
    lose their nominations; `gone` are the UIDs of pods that the cycle evicts or moves, or of which
    it drops the nomination."""

    placed: dict[tuple[str, State], list[Placement]] = field(default_factory=dict)
    evictions: list[Eviction] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
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

    def given_up(self) -> dict[str, Refused]:
        """By key, why nominations of earlier cycles are given up for other work."""
        return {
            each.workload: Refused(
                Reason.WAITING_FOR_TURN,
                f"{each.workload}: its promised place goes to other work; {each.note}".rstrip("; "),
            )
            for each in self.evictions
            if each.pod.state == "nominated"
        }
