"""Which cards of its node a pod gets where the node says which of them are near one another.

A pod of whole cards gets cards of the tightest set that has as many free: NVLink before PCIe before
NUMA. Of several such sets it gets the one with the fewest free cards, so that the others stay
whole. A part of a card that no partly used card takes opens a card by the same rule, save where the
pool spreads. On a node that says nothing, the kernel chooses.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from extender.api.card_sets import CardSets, known_card_sets
from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.kernels import nodes as kernel
from extender.state.nodes import NodeTable

#: Cards in order.
_Cards = tuple[int, ...]


def pick_near(table: NodeTable, ix: int, demand: Demand, rule: int) -> Sequence[int]:
    """The cards of node `ix` that such a pod gets, in order; none where it does not fit."""
    chosen = kernel.pick_cards(table.cards, ix, demand, rule)
    kinds = known_card_sets(table.labels[ix])
    if not kinds or not chosen:
        return chosen
    free = table.cards.free_of(ix)
    is_whole = demand.milli == MILLI_PER_GPU
    opens = demand.devices == 1 and free[chosen[0]] == MILLI_PER_GPU and rule != kernel.SPREAD
    if not is_whole and not opens:
        return chosen
    idle = tuple(at for at, milli in enumerate(free) if milli == MILLI_PER_GPU)
    return sorted(nearest(idle, demand.devices, kinds))


@lru_cache(maxsize=4096)
def nearest(idle: _Cards, n: int, kinds: tuple[CardSets, ...]) -> _Cards:
    """`n` of the idle cards, as near one another as there are; `kinds` are the widest first.

    Remembered: nodes of one model have the same sets, and few different cards are idle.
    """
    for at in range(len(kinds) - 1, -1, -1):
        holding = [cards for cards in _split(idle, kinds[at]) if len(cards) >= n]
        if holding:
            around = [list(_split(idle, wider)) for wider in kinds[:at]]
            return _fill(min(holding, key=lambda each: _left(each, around)), n, kinds[at + 1 :])
    return _fill(idle, n, kinds)


def _fill(idle: _Cards, n: int, kinds: tuple[CardSets, ...]) -> _Cards:
    """`n` of these cards, of which no set of the `kinds` has so many: the largest first."""
    if not kinds:
        return idle[:n]
    largest = max(_split(idle, kinds[0]), key=lambda cards: (len(cards), -cards[0]))
    rest = tuple(card for card in idle if card not in largest)
    return (*largest, *nearest(rest, n - len(largest), kinds))


def _split(idle: _Cards, sets: CardSets) -> Iterator[_Cards]:
    """The idle cards by set; a card of no set is by itself."""
    for each in sets:
        if found := tuple(card for card in idle if card in each):
            yield found
    known = frozenset().union(*sets)
    yield from ((card,) for card in idle if card not in known)


def _left(cards: _Cards, around: Sequence[Sequence[_Cards]]) -> tuple[int, ...]:
    """How many cards are idle there, then in the sets around it from the tightest; the first
    card, so that no two are equal."""
    wider = (next(each for each in split if cards[0] in each) for split in reversed(around))
    return len(cards), *map(len, wider), cards[0]
