"""Chooses cards that are near one another, on nodes whose labels describe card proximity.

A pod that requests whole cards gets them from the tightest set with enough idle cards: NVLink
before PCIe before NUMA. Among equally tight sets, the one with the fewest idle cards is used, so
that the others stay whole. A fractional request that fits no partly used card gets an idle card by
the same rule, unless the pool spreads. On nodes without such labels the kernel chooses.
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
    """The cards of node `ix` for a pod with this demand, in order; empty if it does not fit."""
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
    """`n` of the idle cards, as near one another as possible; `kinds` are the widest first.

    Cached: nodes of one model have the same sets, and few combinations of idle cards occur.
    """
    for at in range(len(kinds) - 1, -1, -1):
        holding = [cards for cards in _split(idle, kinds[at]) if len(cards) >= n]
        if holding:
            around = [list(_split(idle, wider)) for wider in kinds[:at]]
            return _fill(
                min(holding, key=lambda each: _idle_counts(each, around)), n, kinds[at + 1 :]
            )
    return _fill(idle, n, kinds)


def _fill(idle: _Cards, n: int, kinds: tuple[CardSets, ...]) -> _Cards:
    """`n` of the idle cards, more than any set of `kinds` has; the largest set is used up first."""
    if not kinds:
        return idle[:n]
    largest = max(_split(idle, kinds[0]), key=lambda cards: (len(cards), -cards[0]))
    rest = tuple(card for card in idle if card not in largest)
    return (*largest, *nearest(rest, n - len(largest), kinds))


def _split(idle: _Cards, sets: CardSets) -> Iterator[_Cards]:
    """The idle cards grouped by set; a card outside all sets is a group of its own."""
    for each in sets:
        if found := tuple(card for card in idle if card in each):
            yield found
    known = frozenset().union(*sets)
    yield from ((card,) for card in idle if card not in known)


def _idle_counts(cards: _Cards, around: Sequence[Sequence[_Cards]]) -> tuple[int, ...]:
    """Sort key: the number of idle cards in the set and in each wider set, then the first card."""
    wider = (next(each for each in split if cards[0] in each) for split in reversed(around))
    return len(cards), *map(len, wider), cards[0]
