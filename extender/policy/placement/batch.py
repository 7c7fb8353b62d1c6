"""Places for many pods of one shape, found in one go: what is left to do for each is to hold it."""

from array import array
from dataclasses import dataclass

from extender.api.demand import Demand
from extender.kernels import nodes_bulk as bulk
from extender.policy.placement.simulation import Cards
from extender.state.card_shares import card_shares
from extender.state.nodes import NodeTable


@dataclass(slots=True, frozen=True)
class BatchRequest:
    """Places wanted for `n_pods` of one shape; `is_packed`: on as few nodes as there can be."""

    demand: Demand
    candidates: "array[int]"
    rule: int
    n_pods: int
    is_packed: bool = False


def find_alike(table: NodeTable, wish: BatchRequest) -> list[tuple[int, Cards]]:
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
