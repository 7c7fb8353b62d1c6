"""The Python twin of `vacancy.pyx`: a node is added up anew for every set of pods that are gone."""

from array import array
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.twins.nodes_twin import WHOLE

if TYPE_CHECKING:
    from extender.kernels.nodes import Need, Nodes
    from extender.kernels.vacancy import Pods


@dataclass(slots=True, frozen=True)
class Left:
    """What a node has: milli by card, then milli-CPU, MiB, pod slots, and what is counted."""

    cards: list[int]
    cpu: int
    memory: int
    slots: int
    extra: list[int]


@dataclass(slots=True)
class Vacancy:
    """As `vacancy.Vacancy`."""

    nodes: "Nodes"
    herd: "Pods"
    demand: "Need"
    extra_need: "array[int]"
    extra_free: "array[int]"
    extra_held: "array[int]"

    def room(self, ix: int, gone: "array[int]", most: int) -> int:
        """As `Vacancy.room`."""
        left, count = self.left(ix, gone), 0
        while count < most and self.takes(ix, left, count + 1):
            count += 1
        return count

    def pods_on(self, ix: int) -> range:
        """The pods of the node."""
        return range(self.herd.start[ix], self.herd.start[ix + 1])

    def left(self, ix: int, gone: Collection[int]) -> Left:
        """What the node has with these pods gone."""
        nodes, amounts, kinds = self.nodes, self.herd.amounts, range(len(self.extra_need))
        first, n = ix * nodes.cards.stride, len(self.extra_need)
        return Left(
            cards=[
                nodes.cards.card_free[first + card] + sum(self.held(p, card) for p in gone)
                for card in range(nodes.cards.n_cards[ix])
            ],
            cpu=nodes.free_cpu_milli[ix] + sum(amounts[3 * p + 1] for p in gone),
            memory=nodes.free_memory_mib[ix] + sum(amounts[3 * p + 2] for p in gone),
            slots=nodes.free_pods[ix] + len(gone),
            extra=[
                self.extra_free[ix * n + kind] + sum(self.extra_held[p * n + kind] for p in gone)
                for kind in kinds
            ],
        )

    def held(self, p: int, card: int) -> int:
        """The milli of the card that the pod holds."""
        own = range(self.herd.card_start[p], self.herd.card_start[p + 1])
        return sum(self.herd.card_milli[at] for at in own if self.herd.card_ix[at] == card)

    def need(self, ix: int) -> int:
        """Milli wanted of each card of the node; above 1000 where its cards are too small."""
        if self.demand.gpu_memory_mib == 0:
            return self.demand.milli
        mib = self.nodes.cards.card_mib[ix]
        return min(WHOLE + 1, -(-self.demand.gpu_memory_mib * WHOLE // mib)) if mib > 0 else 1001

    def takes(self, ix: int, left: Left, count: int = 1) -> bool:
        """Whether the node, having what is left, takes so many of the pods."""
        return self.has_cards(ix, left, count) and not self.lacks(left, count)

    def has_cards(self, ix: int, left: Left, count: int = 1) -> bool:
        """Whether its cards do; each serves a pod at most once."""
        devices, need = self.demand.devices, self.need(ix)
        if devices == 0:
            return True
        if need > WHOLE:
            return False
        places = sum(min(count, milli // need) for milli in left.cards if milli > 0)
        return places >= count * devices

    def lacks(self, left: Left, count: int = 1) -> set[str]:
        """What is too little of all else: slots, cpu, memory, or the number of a counted kind."""
        demand = self.demand
        short = {
            "slots": left.slots < count,
            "cpu": demand.cpu_milli > 0 and left.cpu < count * demand.cpu_milli,
            "memory": demand.memory_mib > 0 and left.memory < count * demand.memory_mib,
        }
        short |= {
            str(kind): left.extra[kind] < count * need for kind, need in enumerate(self.extra_need)
        }
        return {name for name, is_short in short.items() if is_short}

    def helps(self, p: int, short: Collection[str]) -> bool:
        """Whether the pod holds any of what is short."""
        n = len(self.extra_need)
        gives = {"slots"}
        gives |= {str(kind) for kind in range(n) if self.extra_held[p * n + kind] > 0}
        gives |= {"cpu"} if self.herd.amounts[3 * p + 1] > 0 else set()
        gives |= {"memory"} if self.herd.amounts[3 * p + 2] > 0 else set()
        return not gives.isdisjoint(short)
