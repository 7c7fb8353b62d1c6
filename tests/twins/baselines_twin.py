"""The Python twin of `baselines.pyx`: the same results from plain code."""

from array import array
from fractions import Fraction
from math import trunc
from typing import TYPE_CHECKING, Final

from tests.twins import nodes_twin
from tests.twins.fragments_twin import fits, free_of, need_of

if TYPE_CHECKING:
    from extender.kernels.fragments import Scores
    from extender.kernels.nodes import Need, Nodes
    from extender.lab.kernels.baselines import Baseline

DOT_PRODUCT: Final = 0
CLUSTERING: Final = 1
PACKING: Final = 2
BEST_FIT: Final = 3

MOST_CPU: Final = 128_000
MOST_GPU: Final = 8_000


def score_nodes(
    nodes: "Nodes",
    baseline: "Baseline",
    demand: "Need",
    candidates: "array[int]",
    scores: "Scores",
) -> None:
    """As `baselines.score_nodes`."""
    rules = {
        DOT_PRODUCT: _dot_product,
        CLUSTERING: _clustering,
        PACKING: _packing,
        BEST_FIT: _best_fit,
    }
    for ix in candidates:
        if fits(nodes, ix, demand):
            scores.score[ix] = max(0, rules[baseline.rule](nodes, baseline, demand, ix))
        else:
            scores.score[ix] = -1


def _dot_product(nodes: "Nodes", _: "Baseline", demand: "Need", ix: int) -> int:
    cpu = Fraction(nodes.free_cpu_milli[ix], MOST_CPU) * Fraction(demand.cpu_milli, MOST_CPU)
    gpu = Fraction(_idle(nodes, ix), MOST_GPU) * Fraction(_asked(nodes, ix, demand), MOST_GPU)
    return trunc(100 * (1 - (cpu + gpu) / 2))


def _clustering(nodes: "Nodes", baseline: "Baseline", demand: "Need", ix: int) -> int:
    if not demand.devices:
        return 0
    is_whole = need_of(nodes, ix, demand) == nodes_twin.WHOLE
    tag = 1 << (demand.devices if is_whole else 0)
    tags = baseline.tags[ix]
    if tags == 0:
        rank = 1
    elif not tags & tag:
        rank = 0
    else:
        rank = 3 if tags == tag else 2
    return 25 * rank + trunc(Fraction(25 * (MOST_GPU - _idle(nodes, ix)), MOST_GPU))


def _packing(nodes: "Nodes", _: "Baseline", demand: "Need", ix: int) -> int:
    if not demand.devices:
        return 0
    free = free_of(nodes, ix)
    if all(milli == nodes_twin.WHOLE for milli in free):
        return max(33 - len(free), len(free))
    taken = [free[at] for at in nodes_twin.pick_cards(nodes.cards, ix, demand, nodes_twin.BINPACK)]
    n_idle = taken.count(nodes_twin.WHOLE)
    if n_idle:
        return max(50 - n_idle, 33)
    return max(100 - sum(milli // 10 for milli in taken) // 10, 50)


def _best_fit(nodes: "Nodes", _: "Baseline", demand: "Need", ix: int) -> int:
    cpu = Fraction(nodes.free_cpu_milli[ix] - demand.cpu_milli, MOST_CPU)
    gpu = Fraction(_idle(nodes, ix) - _asked(nodes, ix, demand), MOST_GPU)
    return trunc(100 * (1 - (cpu + gpu) / 2))


def _idle(nodes: "Nodes", ix: int) -> int:
    return sum(milli for milli in free_of(nodes, ix) if milli > 0)


def _asked(nodes: "Nodes", ix: int, demand: "Need") -> int:
    return demand.devices * need_of(nodes, ix, demand)
