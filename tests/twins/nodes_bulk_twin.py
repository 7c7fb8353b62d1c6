"""The Python twin of `nodes_bulk.pyx`: one pod after the other, on copies of what changes."""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.twins.holds_twin import copied, hold, room_on
from tests.twins.nodes_twin import pick_cards, rate

if TYPE_CHECKING:
    from extender.kernels.nodes import Need, Nodes


def fill_nodes(
    nodes: "Nodes",
    demand: "Need",
    candidates: "array[int]",
    rule: int,
    out_ix: "array[int]",
    out_cards: "array[int]",
) -> int:
    """As `nodes_bulk.fill_nodes`."""
    held = copied(nodes)

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
    held = copied(nodes)
    n = len(out_ix)
    open_nodes = {
        ix: (min(n, room_on(held, demand, ix, n)), rate(held, ix, demand, rule), -at)
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
        hold(held, demand, ix, cards)
    return len(out_ix)
