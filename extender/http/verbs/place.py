"""Which nodes and cards take a demand: the kernels, as the verbs need them."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.kinds import CardShare, GpuNode, GpuNodeSpec, Row
from extender.api.units import share_mib, share_milli
from extender.kernels import nodes as kernel
from extender.state.model import PlacementRule
from extender.state.nodes import CardTable

#: Placement rule -> the kernel's word for it. Fragmentation is judged over all that waits, which
#: the extender does not see: a direct pod goes where it fills best.
_RULES: Final[Mapping[PlacementRule, int]] = {
    "binpack": kernel.BINPACK,
    "spread": kernel.SPREAD,
    "fgd": kernel.BEST_FIT,
    "best-fit": kernel.BEST_FIT,
    "first-fit": kernel.FIRST_FIT,
}
#: What the kernel gives a perfect node.
FULL_SCORE: Final = 1_000_000


def find_fitting(table: CardTable, demand: Demand) -> bytearray:
    """uint8[n]: 1 for each node with room for `demand` on its cards. One pass over all."""
    out = bytearray(len(table))
    kernel.fit_nodes(table, demand, out)
    return out


def find_scores(table: CardTable, demand: Demand, placement: PlacementRule) -> Sequence[int]:
    """int32[n]: 0 to FULL_SCORE for each node with room for `demand` on its cards, else -1."""
    out = array("i", bytes(4 * len(table)))
    kernel.score_nodes(table, demand, _RULES[placement], out)
    return out


def pick_on(
    node: GpuNode, rows: Iterable[Row], demand: Demand, placement: PlacementRule
) -> tuple[CardShare, ...]:
    """The cards that `demand` gets on `node` if `rows` are all its rows; empty if it fits none."""
    table = CardTable()
    ix = table.set_node(replace(node, spec=GpuNodeSpec(rows=list(rows))))
    chosen = kernel.pick_cards(table, ix, demand, _RULES[placement])
    card_mib = table.card_mib[ix]
    milli, mib = demand.milli, demand.gpu_memory_mib
    if mib:
        milli = share_milli(mib, card_mib)
    else:
        mib = share_mib(milli, card_mib)
    return tuple(CardShare(index, milli, mib) for index in chosen)
