"""Lets pods that are placed on their own node again keep their cards.

The cards of a node are alike, so what two of them hold may be exchanged. A pod that was stopped in
one round and has whole cards of the same node in a later one then has the place that it had, and is
not stopped at all.
"""

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from extender.api.kinds import CardShare
from extender.api.units import MILLI_PER_GPU
from extender.state.model import PodView

#: A node, and the index of a card.
_Card = tuple[str, int]


def keep_cards(before: Iterable[PodView], ends: dict[str, PodView]) -> None:
    """Exchange cards in `ends` (by UID, all that is placed on cards which these pods hold or get)
    so that the pods hold the whole cards of their node that they held `before`."""
    held: dict[_Card, set[str]] = defaultdict(set)
    for uid, pod in ends.items():
        for share in pod.cards:
            held[pod.node, share.index].add(uid)
    for was in before:
        now = ends.get(was.uid)
        if now is None or now.node != was.node or not (_are_whole(was) and _are_whole(now)):
            continue
        old, new = ({share.index for share in pod.cards} for pod in (was, now))
        for one, other in zip(sorted(old - new), sorted(new - old), strict=False):
            _exchange(ends, held, (was.node, one), (was.node, other))


def _are_whole(pod: PodView) -> bool:
    return bool(pod.cards) and all(share.milli == MILLI_PER_GPU for share in pod.cards)


def _exchange(
    ends: dict[str, PodView], held: dict[_Card, set[str]], one: _Card, other: _Card
) -> None:
    index = {one[1]: other[1], other[1]: one[1]}
    for uid in held[one] | held[other]:
        pod = ends[uid]
        moved = (_moved(share, index) for share in pod.cards)
        cards = tuple(sorted(moved, key=lambda share: share.index))
        ends[uid] = replace(pod, cards=cards)
    held[one], held[other] = held[other], held[one]


def _moved(share: CardShare, index: dict[int, int]) -> CardShare:
    return replace(share, index=index.get(share.index, share.index))
