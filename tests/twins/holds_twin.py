"""The Python twin of `holds.pyx`: room is found by trying one more, holds are made on a copy."""

from array import array
from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.kernels.nodes import Need, Nodes


def count_room(
    nodes: "Nodes", demand: "Need", candidates: "array[int]", most: int, out: "array[int]"
) -> None:
    """As `holds.count_room`."""
    for at, ix in enumerate(candidates):
        out[at] = room_on(nodes, demand, ix, most)


class Holds:
    """As `holds.Holds`."""

    def __init__(self, nodes: "Nodes", demand: "Need", rule: int) -> None:
        self._nodes, self._demand = nodes, demand

    def has_room(self, candidates: "array[int]") -> bool:
        """As `Holds.has_room`."""
        return any(room_on(self._nodes, self._demand, ix, 1) for ix in candidates)


def room_on(nodes: "Nodes", demand: "Need", ix: int, most: int) -> int:
    """The number of pods that the node takes, found by trying one more each time."""
    count = 0
    while count < most and _takes(nodes, demand, ix, count + 1):
        count += 1
    return count


def _takes(nodes: "Nodes", demand: "Need", ix: int, count: int) -> bool:
    """Whether the node has what `count` pods need together, each of its cards once a pod."""
    return (
        nodes.free_pods[ix] >= count
        and (demand.cpu_milli == 0 or nodes.free_cpu_milli[ix] >= count * demand.cpu_milli)
        and (demand.memory_mib == 0 or nodes.free_memory_mib[ix] >= count * demand.memory_mib)
        and (demand.devices == 0 or _slots(nodes, demand, ix, count) >= count * demand.devices)
    )


def _slots(nodes: "Nodes", demand: "Need", ix: int, count: int) -> int:
    """Parts of cards for `count` pods, none of which uses a card twice."""
    need = _need(nodes, demand, ix)
    at = ix * nodes.cards.stride
    free = nodes.cards.card_free[at : at + nodes.cards.n_cards[ix]]
    return 0 if need > 1000 else sum(min(count, max(0, milli) // need) for milli in free)


def _need(nodes: "Nodes", demand: "Need", ix: int) -> int:
    if demand.gpu_memory_mib == 0:
        return demand.milli
    mib = nodes.cards.card_mib[ix]
    return -(-demand.gpu_memory_mib * 1000 // mib) if mib > 0 else 1001


def hold(held: "Nodes", demand: "Need", ix: int, cards: list[int]) -> None:
    """One pod's place on these cards of the node is taken."""
    for card in cards:
        held.cards.card_free[ix * held.cards.stride + card] -= _need(held, demand, ix)
    held.free_cpu_milli[ix] -= demand.cpu_milli
    held.free_memory_mib[ix] -= demand.memory_mib
    held.free_pods[ix] -= 1


def copied(nodes: "Nodes") -> "Nodes":
    """A table with free figures of its own."""
    held, cards = copy(nodes), copy(nodes.cards)
    cards.card_free = cards.card_free[:]
    object.__setattr__(held, "cards", cards)
    held.free_cpu_milli, held.free_memory_mib = nodes.free_cpu_milli[:], nodes.free_memory_mib[:]
    held.free_pods = nodes.free_pods[:]
    return held
