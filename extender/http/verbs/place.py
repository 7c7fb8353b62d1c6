"""Which nodes and cards fit a demand: calls the kernels for the verbs."""

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

#: Placement rule -> the kernel's constant. Fragmentation depends on all pending pods, which the
#: extender does not see, so for `fgd` a direct pod is placed by best fit.
_RULES: Final[Mapping[PlacementRule, int]] = {
    "binpack": kernel.BINPACK,
    "spread": kernel.SPREAD,
    "fgd": kernel.BEST_FIT,
    "best-fit": kernel.BEST_FIT,
    "first-fit": kernel.FIRST_FIT,
}
#: The kernel's score for a perfect node.
FULL_SCORE: Final = 1_000_000


def find_fitting(table: CardTable, demand: Demand) -> bytearray:
    """uint8[n]: 1 for each node where `demand` fits on the cards. One pass over all nodes."""
    out = bytearray(len(table))
    kernel.fit_nodes(table, demand, out)
    return out


def find_scores(table: CardTable, demand: Demand, placement: PlacementRule) -> Sequence[int]:
    """int32[n]: 0 to FULL_SCORE for each node where `demand` fits on the cards, else -1."""
    out = array("i", bytes(4 * len(table)))
    kernel.score_nodes(table, demand, _RULES[placement], out)
    return out


def pick_on(
    node: GpuNode, rows: Iterable[Row], demand: Demand, placement: PlacementRule
) -> tuple[CardShare, ...]:
    """The cards for `demand` on `node` if `rows` are all its rows; empty if it does not fit."""
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
