"""Places for the pods of one chunk: nodes and cards, all of them or none.

A shape that found no place is remembered: no chunk that wants as much or more is tried again until
something is released, so a queue of identical pods that don't fit costs one search.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.api.units import MILLI_PER_GPU, share_mib, share_milli
from extender.kernels import nodes as kernel
from extender.policy.match import Matcher
from extender.policy.plan import Placement
from extender.policy.simulation import Simulation
from extender.state.model import Constraints, PodView

Moment = Literal["now", "later"]


@dataclass(slots=True)
class Shape:
    """`count` pods that ask for the same, under the same constraints."""

    demand: Demand
    constraints: Constraints
    count: int

    def is_no_easier_than(self, other: "Shape") -> bool:
        """Whether it can't have a place where `other` has none."""
        mine, its = self.demand, other.demand
        return (
            self.constraints is other.constraints
            and self.count >= other.count
            and mine.devices >= its.devices
            and mine.milli >= its.milli
            and mine.gpu_memory_mib >= its.gpu_memory_mib
            and (mine.gpu_memory_mib > 0) == (its.gpu_memory_mib > 0)
            and mine.cpu_milli >= its.cpu_milli
            and mine.memory_mib >= its.memory_mib
        )


def shapes_of(pods: Iterable[PodView]) -> list[Shape]:
    """The distinct shapes among the pods."""
    found: dict[tuple[Demand, int], Shape] = {}
    for pod in pods:
        key = pod.demand, id(pod.constraints)
        if key in found:
            found[key].count += 1
        else:
            found[key] = Shape(pod.demand, pod.constraints, 1)
    return list(found.values())


def card_shares(card_mib: int, demand: Demand, indices: Iterable[int]) -> tuple[CardShare, ...]:
    """What a pod gets of each of the cards `indices`, which have `card_mib` MiB each."""
    if demand.gpu_memory_mib:
        milli, mib = share_milli(demand.gpu_memory_mib, card_mib), demand.gpu_memory_mib
    elif demand.milli == MILLI_PER_GPU:
        milli, mib = MILLI_PER_GPU, card_mib
    else:
        milli, mib = demand.milli, share_mib(demand.milli, card_mib)
    return tuple(CardShare(index=index, milli=milli, memory_mib=mib) for index in indices)


@dataclass(slots=True)
class Places:
    """The search, on a simulation. `spread` names the pools that spread instead of bin-packing."""

    sim: Simulation
    matcher: Matcher
    spread: frozenset[str]
    _failed: dict[tuple[str, Moment], list[Shape]] = field(default_factory=dict)

    def place_chunk(
        self, pods: Sequence[PodView], pool: str, moment: Moment
    ) -> list[Placement] | None:
        """Hold a place for every pod in the simulation, or for none and return None."""
        shapes = shapes_of(pods)
        if self.has_failed(shapes, pool, moment):
            return None
        mark = self.sim.checkpoint()
        placed = []
        for pod in in_packing_order(pods):
            placement = self.place_pod(pod, pool, moment)
            if placement is None:
                self.sim.rollback(mark)
                self._remember(shapes, pool, moment)
                return None
            placed.append(placement)
        return placed

    def place_pod(self, pod: PodView, pool: str, moment: Moment) -> Placement | None:
        """Hold the best place for one pod in the simulation, or None."""
        table = self.sim.now if moment == "now" else self.sim.later
        candidates = self.matcher.candidates(pool, pod.constraints)
        ix = kernel.best_node(table, pod.demand, candidates, pool in self.spread)
        return None if ix < 0 else self.place_on(pod, ix, pool, moment)

    def place_on(self, pod: PodView, ix: int, pool: str, moment: Moment) -> Placement:
        """Hold a place on node `ix`, which has it."""
        cards = (self.sim.now if moment == "now" else self.sim.later).cards
        indices = kernel.pick_cards(cards, ix, pod.demand, pool in self.spread)
        shares = card_shares(cards.card_mib[ix], pod.demand, indices)
        self.sim.hold(ix, pod.demand, shares)
        return Placement(pod, cards.names[ix], shares)

    def has_failed(self, shapes: Iterable[Shape], pool: str, moment: Moment) -> bool:
        """Whether something no harder was tried before and had no place."""
        failed = self._failed.get((pool, moment))
        return bool(failed) and any(
            shape.is_no_easier_than(known) for shape in shapes for known in failed or ()
        )

    def forget_failures(self, pool: str) -> None:
        """Something of the pool was released: what had no place later may have one."""
        self._failed.pop((pool, "later"), None)

    def _remember(self, shapes: list[Shape], pool: str, moment: Moment) -> None:
        # Of a mixed chunk it isn't known which shape failed, so only its own repetition is caught.
        if len(shapes) != 1:
            return
        failed = self._failed.setdefault((pool, moment), [])
        failed[:] = [known for known in failed if not known.is_no_easier_than(shapes[0])]
        failed.append(shapes[0])


def in_packing_order(pods: Sequence[PodView]) -> list[PodView]:
    """The largest first, so that small ones take what they leave; otherwise as given."""
    if len(Counter(id(pod.demand) for pod in pods)) == 1:
        return list(pods)
    return sorted(pods, key=lambda pod: (-_size(pod.demand), -pod.demand.cpu_milli))


def _size(demand: Demand) -> int:
    return demand.devices * (demand.milli or MILLI_PER_GPU) + demand.gpu_memory_mib
