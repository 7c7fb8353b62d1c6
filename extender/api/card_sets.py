"""Sets of cards of a node that are near one another, from labels of its Node.

The cluster's administrator sets one label for each kind of nearness: NUMA node, PCIe switch,
NVLink. Its value lists sets of cards, separated by dots: `0-3.4-7`. A set is a list of cards and
ranges of cards, separated by `_`: `0_2.1_3`. A card is in at most one set of a label.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from extender.api import names
from extender.api.units import UnitError

#: From the widest kind of nearness to the narrowest.
LABELS: Final = (names.LABEL_CARDS_BY_NUMA, names.LABEL_CARDS_BY_PCIE, names.LABEL_CARDS_BY_NVLINK)
_PART: Final = re.compile(r"([0-9]|[1-5][0-9]|6[0-3])(?:-([0-9]|[1-5][0-9]|6[0-3]))?", re.ASCII)

#: Sets of card indices.
CardSets = tuple[frozenset[int], ...]


def read_card_sets(labels: Mapping[str, str]) -> tuple[CardSets, ...]:
    """The sets of each label that is present, the widest kind first; raises UnitError."""
    return tuple(_parse(key, labels[key]) for key in LABELS if key in labels)


def known_card_sets(labels: Mapping[str, str]) -> tuple[CardSets, ...]:
    """Like `read_card_sets`, but skips labels that are not understood."""
    found = []
    for key in LABELS:
        if key in labels:
            with suppress(UnitError):
                found.append(_parse(key, labels[key]))
    return tuple(found)


@lru_cache(maxsize=1024)
def _parse(key: str, text: str) -> CardSets:
    sets = tuple(_cards(key, text, part) for part in text.split("."))
    if len(frozenset().union(*sets)) < sum(map(len, sets)):
        raise UnitError(f"{key}: {text[:80]!r} has a card twice; a card is in one set at most")
    return sets


def _cards(key: str, text: str, part: str) -> frozenset[int]:
    found: set[int] = set()
    for each in part.split("_"):
        match = _PART.fullmatch(each)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            accepted = 'list of sets of the cards 0 to 63, such as "0-3.4-7"'
            raise UnitError(f"{key}: {text[:80]!r} is no {accepted}")
        found.update(range(first, last + 1))
    return frozenset(found)
