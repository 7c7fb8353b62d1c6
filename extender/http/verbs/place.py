"""Which nodes and cards take a demand: the kernels, as the verbs need them."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.kinds import CardShare, GpuNode, GpuNodeSpec, Row
from extender.api.units import share_mib, share_milli
from extender.kernels.nodes import fit_nodes, pick_cards, score_nodes
from extender.state.model import PlacementRule
from extender.state.nodes import CardTable

#: What the kernel gives a perfect node.
FULL_SCORE: Final = 1_000_000


def find_fitting(table: CardTable, demand: Demand) -> bytearray:
    """uint8[n]: 1 for each node whose cards take `demand` now. One pass over all cards."""
    out = bytearray(len(table))
    fit_nodes(table, demand, out)
    return out


def find_scores(table: CardTable, demand: Demand, placement: PlacementRule) -> Sequence[int]:
    """int32[n]: 0 to FULL_SCORE for each node whose cards take `demand`, -1 for others."""
    out = array("i", bytes(4 * len(table)))
    score_nodes(table, demand, placement == "spread", out)
    return out


def pick_on(
    node: GpuNode, rows: Iterable[Row], demand: Demand, placement: PlacementRule
) -> tuple[CardShare, ...]:
    """The cards that `demand` gets on `node` if `rows` are all its rows; empty if it fits none."""
    table = CardTable()
    ix = table.set_node(replace(node, spec=GpuNodeSpec(rows=list(rows))))
    chosen = pick_cards(table, ix, demand, placement == "spread")
    card_mib = table.card_mib[ix]
    milli, mib = demand.milli, demand.gpu_memory_mib
    if mib:
        milli = share_milli(mib, card_mib)
    else:
        mib = share_mib(milli, card_mib)
    return tuple(CardShare(index, milli, mib) for index in chosen)
