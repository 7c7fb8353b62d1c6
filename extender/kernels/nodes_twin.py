"""The Python twin of `nodes.pyx`: the same answers from plain code, for tests and for reading."""

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from extender.kernels.nodes import Cards, Need, Nodes

WHOLE: Final = 1000
BEST_SCORE: Final = 1_000_000


def fit_nodes(cards: "Cards", demand: "Need", out: bytearray) -> None:
    """As `nodes.fit_nodes`."""
    for ix in range(len(cards.n_cards)):
        out[ix] = _fits(_free(cards, ix), demand.devices, _need(cards, ix, demand))


def score_nodes(cards: "Cards", demand: "Need", is_spread: bool, out: "array[int]") -> None:
    """As `nodes.score_nodes`."""
    for ix in range(len(cards.n_cards)):
        fits = _fits(_free(cards, ix), demand.devices, _need(cards, ix, demand))
        out[ix] = _score(cards, ix, demand, is_spread) if fits else -1


def best_node(nodes: "Nodes", demand: "Need", candidates: "array[int]", is_spread: bool) -> int:
    """As `nodes.best_node`."""
    best, best_score = -1, -1
    for ix in candidates:
        if not _host_fits(nodes, ix, demand):
            continue
        if not _fits(_free(nodes.cards, ix), demand.devices, _need(nodes.cards, ix, demand)):
            continue
        score = _score(nodes.cards, ix, demand, is_spread)
        if score > best_score:
            best, best_score = ix, score
    return best


def pick_cards(cards: "Cards", ix: int, demand: "Need", is_spread: bool) -> list[int]:
    """As `nodes.pick_cards`."""
    free, need = _free(cards, ix), _need(cards, ix, demand)
    if demand.devices == 0 or not _fits(free, demand.devices, need):
        return []
    fitting = [c for c, milli in enumerate(free) if milli >= need]
    fitting.sort(key=lambda c: (-free[c] if is_spread else free[c], c))
    return sorted(fitting[: demand.devices])


def _free(cards: "Cards", ix: int) -> "array[int]":
    at = ix * cards.stride
    return cards.card_free[at : at + cards.n_cards[ix]]


def _need(cards: "Cards", ix: int, demand: "Need") -> int:
    """Milli wanted of each card of the node; above 1000 where its cards are too small."""
    if demand.gpu_memory_mib == 0:
        return demand.milli
    if cards.card_mib[ix] <= 0:
        return WHOLE + 1
    return min(WHOLE + 1, -(-demand.gpu_memory_mib * WHOLE // cards.card_mib[ix]))


def _fits(free: "array[int]", devices: int, need: int) -> bool:
    if devices == 0:
        return True
    return need <= WHOLE and sum(milli >= need for milli in free) >= devices


def _host_fits(nodes: "Nodes", ix: int, demand: "Need") -> bool:
    return (
        nodes.free_pods[ix] >= 1
        and (demand.cpu_milli == 0 or nodes.free_cpu_milli[ix] >= demand.cpu_milli)
        and (demand.memory_mib == 0 or nodes.free_memory_mib[ix] >= demand.memory_mib)
    )


def _score(cards: "Cards", ix: int, demand: "Need", is_spread: bool) -> int:
    """0..1_000_000 of a node that fits; the meaning is at `nodes.score_nodes`."""
    free, need = _free(cards, ix), _need(cards, ix, demand)
    capacity, devices = cards.capacity_milli[ix], demand.devices
    if capacity <= 0:
        return BEST_SCORE
    used = capacity - sum(milli for milli in free if milli > 0) + devices * need
    if devices and need == WHOLE:
        full = used * BEST_SCORE // capacity
        return BEST_SCORE - full if is_spread else full
    full = used * WHOLE // capacity
    if devices == 0:
        return 500 * (WHOLE - full if is_spread else full)
    if is_spread:
        return 900 * (WHOLE - full) + 100 * max(free)
    partial = [milli for milli in free if need <= milli < WHOLE]
    if len(partial) < devices:
        return 400 * full
    return 400 * full + 500_000 + 100 * (WHOLE - (min(partial) - need))
