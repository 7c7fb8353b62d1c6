"""The Python twin of `fragments.pyx`: the same results from plain code."""

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.twins import nodes_twin

if TYPE_CHECKING:
    from extender.kernels.fragments import Fragments, Scores, Typical
    from extender.kernels.nodes import Need, Nodes


def measure_nodes(nodes: "Nodes", fragments: "Fragments", candidates: "array[int]") -> None:
    """As `fragments.measure_nodes`."""
    for ix in candidates:
        free, cpu = free_of(nodes, ix), nodes.free_cpu_milli[ix]
        fragments.waste[ix] = _waste(fragments.typical, fragments.model_ix[ix], free, cpu)


def score_nodes(
    nodes: "Nodes",
    fragments: "Fragments",
    demand: "Need",
    candidates: "array[int]",
    scores: "Scores",
) -> None:
    """As `fragments.score_nodes`."""
    typical = fragments.typical

    def rate(ix: int, taken: Sequence[int]) -> int:
        free, cpu = left_with(nodes, demand, ix, taken)
        fall = fragments.waste[ix] - _waste(typical, fragments.model_ix[ix], free, cpu)
        return sum(step <= fall for step in typical.steps)

    for ix in candidates:
        scores.score[ix], scores.card[ix] = best_place(nodes, demand, ix, rate)


def best_of(
    scores: "Scores",
    candidates: "array[int]",
    model_ix: "array[int]",
    cost: "array[int]",
) -> int:
    """As `fragments.best_of`."""
    fitting = [ix for ix in candidates if scores.score[ix] >= 0]
    return max(fitting, key=lambda ix: scores.score[ix] - cost[model_ix[ix]], default=-1)


Rating = Callable[[int, Sequence[int]], int]


def best_place(nodes: "Nodes", demand: "Need", ix: int, rate: Rating) -> tuple[int, int]:
    """(score, card) of one node; `rate` scores the node for a choice of cards."""
    if not fits(nodes, ix, demand):
        return -1, -1
    need = need_of(nodes, ix, demand)
    if demand.devices == 1 and need < nodes_twin.WHOLE:
        fitting = [at for at, milli in enumerate(free_of(nodes, ix)) if milli >= need]
        rated = [(rate(ix, [at]), at) for at in fitting]
        return max(rated, key=lambda each: each[0])
    taken = nodes_twin.pick_cards(nodes.cards, ix, demand, nodes_twin.BINPACK)
    return rate(ix, taken), -1


def left_with(
    nodes: "Nodes", demand: "Need", ix: int, taken: Sequence[int]
) -> tuple[list[int], int]:
    """Free milli of each card, and free milli-CPU, with the pod on the cards `taken` of the
    node."""
    free = free_of(nodes, ix)
    for at in taken:
        free[at] -= need_of(nodes, ix, demand)
    return free, nodes.free_cpu_milli[ix] - demand.cpu_milli


def need_of(nodes: "Nodes", ix: int, demand: "Need") -> int:
    """Milli that the demand needs of each card of the node; above 1000 if the cards are too
    small."""
    if not demand.gpu_memory_mib:
        return demand.milli
    mib = nodes.cards.card_mib[ix]
    too_much = nodes_twin.WHOLE + 1
    return min(too_much, -(-demand.gpu_memory_mib * 1000 // mib)) if mib > 0 else too_much


def fits(nodes: "Nodes", ix: int, demand: "Need") -> bool:
    """Whether the node has a pod slot, CPU, memory and cards for the pod."""
    need = need_of(nodes, ix, demand)
    n_fitting = sum(milli >= need for milli in free_of(nodes, ix))
    return (
        nodes.free_pods[ix] >= 1
        and (demand.cpu_milli <= nodes.free_cpu_milli[ix] or not demand.cpu_milli)
        and (demand.memory_mib <= nodes.free_memory_mib[ix] or not demand.memory_mib)
        and (not demand.devices or (need <= nodes_twin.WHOLE and n_fitting >= demand.devices))
    )


def free_of(nodes: "Nodes", ix: int) -> list[int]:
    """Free milli of each card of the node."""
    at = ix * nodes.cards.stride
    return list(nodes.cards.card_free[at : at + nodes.cards.n_cards[ix]])


def _waste(typical: "Typical", model: int, free: Sequence[int], cpu: int) -> int:
    """Fragmentation of a node: the smallest idle amount of the draws, summed over all cases."""
    left = [_left(typical, t, model, free, cpu) for t in range(len(typical.weight))]
    total = 0
    for least in set(left):
        at_least = sum(w for w, milli in zip(typical.weight, left, strict=True) if milli >= least)
        above = sum(w for w, milli in zip(typical.weight, left, strict=True) if milli > least)
        total += least * (typical.chance[at_least] - typical.chance[above])
    return total


def _left(typical: "Typical", t: int, model: int, free: Sequence[int], cpu: int) -> int:
    """Idle milli after one pod of type `t`; if deep, plus that after as many as fit."""
    idle = [max(0, milli) for milli in free]
    devices, need, need_cpu = typical.devices[t], typical.milli[t], typical.cpu_milli[t]
    is_allowed = bool(typical.models[t] & 1 << model)
    fitting = [milli for milli in idle if devices and milli >= need]
    if not devices or not is_allowed or cpu < need_cpu or len(fitting) < devices:
        return sum(idle) * (2 if typical.is_deep else 1)
    after_one = sum(idle) - sum(fitting)
    if not typical.is_deep:
        return after_one
    copies = sum(milli // need for milli in fitting) // devices
    if need_cpu:
        copies = min(copies, cpu // need_cpu)
    return after_one + sum(idle) - copies * devices * need
