"""Places for many pods of one shape, found in one go: what is left to do for each is to hold it."""

from array import array
from dataclasses import dataclass, field
from typing import Final

from extender.api.demand import Demand
from extender.kernels import nodes_bulk as bulk
from extender.policy.placement.simulation import Cards
from extender.state.card_shares import card_shares
from extender.state.model import Constraints
from extender.state.nodes import NodeTable

#: Pods of one shape that are placed in one go: the search is cheap beside the pods it places, yet
#: in vain when another shape comes between.
_FIRST_STREAK: Final = 8
_LONGEST_STREAK: Final = 512


@dataclass(slots=True, frozen=True)
class Wish:
    """Places wanted for `n_pods` of one shape; `is_packed`: on as few nodes as there can be."""

    demand: Demand
    candidates: "array[int]"
    rule: int
    n_pods: int
    is_packed: bool = False


@dataclass(slots=True)
class Streak:
    """The best places for the next pods of one shape, as long as nothing else changes the nodes.

    `n_steps` is how often the simulation had touched any node when the next of `places` was the
    best; `length` is how many were looked for at once, 0 while only one pod has asked.
    """

    demand: Demand
    constraints: Constraints
    length: int = 0
    n_steps: int = -1
    places: list[tuple[int, Cards]] = field(default_factory=list)

    def next_length(self) -> int:
        """How many are to be looked for at once now."""
        return min(_LONGEST_STREAK, 2 * self.length or _FIRST_STREAK)


def find_alike(table: NodeTable, wish: Wish) -> list[tuple[int, Cards]]:
    """The best places, as many as there are; none is held."""
    n_pods, demand = wish.n_pods, wish.demand
    out_ix, out_cards = array("i", bytes(4 * n_pods)), array("Q", bytes(8 * n_pods))
    find = bulk.pack_nodes if wish.is_packed else bulk.fill_nodes
    n_placed = find(table, demand, wish.candidates, wish.rule, out_ix, out_cards)
    known: dict[tuple[int, int], Cards] = {}
    found = []
    for ix, bits in zip(out_ix[:n_placed], out_cards, strict=False):
        key = table.cards.card_mib[ix], bits
        if key not in known:
            indices = [card for card in range(bits.bit_length()) if bits >> card & 1]
            known[key] = card_shares(demand, key[0], indices)
        found.append((ix, known[key]))
    return found
