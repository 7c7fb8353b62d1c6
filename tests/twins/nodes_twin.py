"""The Python twin of `nodes.pyx`: the same results from plain code."""

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from extender.kernels.nodes import Cards, Need, Nodes

BINPACK: Final = 0
SPREAD: Final = 1
BEST_FIT: Final = 2
FIRST_FIT: Final = 3

WHOLE: Final = 1000
BEST_SCORE: Final = 1_000_000


def fit_nodes(cards: "Cards", demand: "Need", out: bytearray) -> None:
    """As `nodes.fit_nodes`."""
    for ix in range(len(cards.n_cards)):
        out[ix] = _fits(_free(cards, ix), demand.devices, _need(cards, ix, demand))


def score_nodes(cards: "Cards", demand: "Need", rule: int, out: "array[int]") -> None:
    """As `nodes.score_nodes`."""
    for ix in range(len(cards.n_cards)):
        fits = _fits(_free(cards, ix), demand.devices, _need(cards, ix, demand))
        out[ix] = _score(cards, ix, demand, rule) if fits else -1


def best_node(nodes: "Nodes", demand: "Need", candidates: "array[int]", rule: int) -> int:
    """As `nodes.best_node`."""
    best, best_score = -1, -1
    for ix in candidates:
        score = _rate(nodes, ix, demand, rule)
        if score > best_score:
            best, best_score = ix, score
    return best


def pick_cards(cards: "Cards", ix: int, demand: "Need", rule: int) -> list[int]:
    """As `nodes.pick_cards`."""
    free, need = _free(cards, ix), _need(cards, ix, demand)
    if demand.devices == 0 or not _fits(free, demand.devices, need):
        return []
    fitting = [c for c, milli in enumerate(free) if milli >= need]
    if rule == SPREAD:
        fitting.sort(key=lambda c: (-free[c], c))
    elif rule != FIRST_FIT:
        fitting.sort(key=lambda c: (free[c], c))
    return sorted(fitting[: demand.devices])


def count_room(
    nodes: "Nodes", demand: "Need", candidates: "array[int]", most: int, out: "array[int]"
) -> None:
    """As `nodes.count_room`, found by trying one more pod each time."""
    for at, ix in enumerate(candidates):
        out[at] = 0
        while out[at] < most and _takes(nodes, demand, ix, out[at] + 1):
            out[at] += 1


def _rate(nodes: "Nodes", ix: int, demand: "Need", rule: int) -> int:
    """The node's score for `demand`, or -1 if it does not fit."""
    if not _host_fits(nodes, ix, demand):
        return -1
    if demand.devices == 0:
        return _host_score(nodes, ix, demand, rule)
    if not _fits(_free(nodes.cards, ix), demand.devices, _need(nodes.cards, ix, demand)):
        return -1
    return _score(nodes.cards, ix, demand, rule)


def _takes(nodes: "Nodes", demand: "Need", ix: int, count: int) -> bool:
    """Whether `count` pods fit on the node together; a pod uses each card at most once."""
    need = _need(nodes.cards, ix, demand)
    free = _free(nodes.cards, ix) if need <= WHOLE else ()
    slots = sum(min(count, max(0, milli) // need) for milli in free) if demand.devices else 0
    return (
        nodes.free_pods[ix] >= count
        and (demand.cpu_milli == 0 or nodes.free_cpu_milli[ix] >= count * demand.cpu_milli)
        and (demand.memory_mib == 0 or nodes.free_memory_mib[ix] >= count * demand.memory_mib)
        and slots >= count * demand.devices
    )


def _free(cards: "Cards", ix: int) -> "array[int]":
    at = ix * cards.stride
    return cards.card_free[at : at + cards.n_cards[ix]]


def _need(cards: "Cards", ix: int, demand: "Need") -> int:
    """Milli that the demand needs of each card of the node; above 1000 if the cards are too
    small."""
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


def _host_score(nodes: "Nodes", ix: int, demand: "Need", rule: int) -> int:
    """0..1_000_000: nodes without cards first, then by used CPU and memory."""
    worse = 0 if nodes.cards.n_cards[ix] > 0 else BEST_SCORE // 2
    if rule == FIRST_FIT:
        return worse
    used = 0
    for free, whole, wanted in (
        (nodes.free_cpu_milli[ix], nodes.cpu_milli[ix], demand.cpu_milli),
        (nodes.free_memory_mib[ix], nodes.memory_mib[ix], demand.memory_mib),
    ):
        left = free - wanted
        if whole > 0 and left < whole:
            used += 250_000 - 250_000 * max(0, left) // whole
    return worse + (500_000 - used if rule == SPREAD else used)


def _score(cards: "Cards", ix: int, demand: "Need", rule: int) -> int:
    """The score of a node that fits, 0..1_000_000, as in `nodes.score_nodes`."""
    free, need = _free(cards, ix), _need(cards, ix, demand)
    capacity, devices = cards.capacity_milli[ix], demand.devices
    idle = sum(milli for milli in free if milli > 0)
    if rule == FIRST_FIT or capacity <= 0:
        return 0 if rule == FIRST_FIT else BEST_SCORE
    if rule == BEST_FIT:
        return BEST_SCORE - 10 * (idle - devices * need)
    used = capacity - idle + devices * need
    if devices and need == WHOLE:
        full = used * BEST_SCORE // capacity
        return BEST_SCORE - full if rule == SPREAD else full
    full = used * WHOLE // capacity
    if rule == SPREAD:
        return 500 * (WHOLE - full) if devices == 0 else 900 * (WHOLE - full) + 100 * max(free)
    if devices == 0:
        return 500 * full
    partial = [milli for milli in free if need <= milli < WHOLE]
    tightness = 500_000 + 100 * (WHOLE - (min(partial) - need)) if partial else 0
    return 400 * full + (tightness if len(partial) >= devices else 0)
