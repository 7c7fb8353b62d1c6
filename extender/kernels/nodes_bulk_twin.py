"""The Python twin of `nodes_bulk.pyx`: one pod after the other, on copies of what changes."""

from array import array
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from extender.kernels.nodes_twin import pick_cards, rate

if TYPE_CHECKING:
    from extender.kernels.nodes import Need, Nodes


def count_room(
    nodes: "Nodes", demand: "Need", candidates: "array[int]", most: int, out: "array[int]"
) -> None:
    """As `nodes_bulk.count_room`."""
    for at, ix in enumerate(candidates):
        out[at] = _room(nodes, demand, ix, most)


def fill_nodes(
    nodes: "Nodes",
    demand: "Need",
    candidates: "array[int]",
    rule: int,
    out_ix: "array[int]",
    out_cards: "array[int]",
) -> int:
    """As `nodes_bulk.fill_nodes`."""
    held = _copied(nodes)

    def choose(_left: int) -> int:
        scores = [(rate(held, ix, demand, rule), -at) for at, ix in enumerate(candidates)]
        best, at = max(scores, default=(-1, 0))
        return -1 if best < 0 else candidates[-at]

    return _place(held, demand, rule, (choose, out_ix, out_cards))


def pack_nodes(
    nodes: "Nodes",
    demand: "Need",
    candidates: "array[int]",
    rule: int,
    out_ix: "array[int]",
    out_cards: "array[int]",
) -> int:
    """As `nodes_bulk.pack_nodes`."""
    held = _copied(nodes)
    n = len(out_ix)
    open_nodes = {
        ix: (min(n, _room(held, demand, ix, n)), rate(held, ix, demand, rule), -at)
        for at, ix in enumerate(candidates)
    }
    current = -1

    def choose(left: int) -> int:
        nonlocal current
        if current >= 0 and rate(held, current, demand, rule) >= 0:
            return current
        current = -1
        open_rooms = {ix: key for ix, key in open_nodes.items() if key[0] > 0}
        enough = {ix: (-r, s, at) for ix, (r, s, at) in open_rooms.items() if r >= left}
        among = enough or open_rooms
        if among:
            current = max(among, key=lambda ix: among[ix])
            del open_nodes[current]
        return current

    return _place(held, demand, rule, (choose, out_ix, out_cards))


_Choice = tuple[Callable[[int], int], "array[int]", "array[int]"]


def _place(held: "Nodes", demand: "Need", rule: int, choice: _Choice) -> int:
    choose, out_ix, out_cards = choice
    for placed in range(len(out_ix)):
        ix = choose(len(out_ix) - placed)
        if ix < 0:
            return placed
        cards = pick_cards(held.cards, ix, demand, rule)
        out_ix[placed], out_cards[placed] = ix, sum(1 << card for card in cards)
        _hold(held, demand, ix, cards)
    return len(out_ix)


def _room(nodes: "Nodes", demand: "Need", ix: int, most: int) -> int:
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


def _hold(held: "Nodes", demand: "Need", ix: int, cards: list[int]) -> None:
    for card in cards:
        held.cards.card_free[ix * held.cards.stride + card] -= _need(held, demand, ix)
    held.free_cpu_milli[ix] -= demand.cpu_milli
    held.free_memory_mib[ix] -= demand.memory_mib
    held.free_pods[ix] -= 1


def _copied(nodes: "Nodes") -> "Nodes":
    """A table whose free figures are its own."""
    held, cards = copy(nodes), copy(nodes.cards)
    cards.card_free = cards.card_free[:]
    object.__setattr__(held, "cards", cards)
    held.free_cpu_milli, held.free_memory_mib = nodes.free_cpu_milli[:], nodes.free_memory_mib[:]
    held.free_pods = nodes.free_pods[:]
    return held
