"""Lets pods that are placed on their own node again keep their cards.

The cards of a node are interchangeable, so all shares of two cards, or two equal shares, may be
exchanged. A pod evicted in one round and placed on the same node in a later one then has its old
cards, so that it need not be evicted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from extender.api.units import MILLI_PER_GPU
from extender.state.model import PodView

#: A node, and the index of a card.
_Card = tuple[str, int]


def keep_cards(before: Iterable[PodView], ends: dict[str, PodView]) -> None:
    """Exchange cards in `ends` so that pods on their old node hold the cards they had `before`.

    `ends` has, by UID, all pods on cards that the pods of `before` hold or get; some of the latter
    may have been pending. A share is exchanged for an equal share of another pod in `before`.
    Shares by claim keep their cards, since kube-scheduler allocates them.
    """
    held: dict[_Card, set[str]] = defaultdict(set)
    for uid, pod in ends.items():
        for share in pod.cards:
            held[pod.node, share.index].add(uid)
    movable = (was for was in before if was.constraints.delivery != "share")
    start = {was.uid: was for was in sorted(movable, key=lambda was: was.key)}
    for was in start.values():
        now = ends.get(was.uid)
        if now is None or now.node != was.node or not (was.cards and now.cards):
            continue
        is_whole = _are_whole(was) and _are_whole(now)
        old, new = ({share.index for share in pod.cards} for pod in (was, now))
        for one, other in zip(sorted(old - new), sorted(new - old), strict=False):
            if is_whole:
                _exchange(ends, held, (was.node, one), (was.node, other))
            else:
                _exchange_parts(start, ends, held, _Exchange(was.uid, was.node, one, other))


@dataclass(slots=True, frozen=True)
class _Exchange:
    """The pod `uid` held a share of card `one` of its node and now has one of card `other`."""

    uid: str
    node: str
    one: int
    other: int


def _exchange_parts(
    start: Mapping[str, PodView],
    ends: dict[str, PodView],
    held: dict[_Card, set[str]],
    wanted: _Exchange,
) -> None:
    """Exchange the share for an equal one of a pod that did not hold card `one` before."""
    node, one, other = wanted.node, wanted.one, wanted.other
    part = _part_of(ends[wanted.uid], other)
    for uid in sorted(held[node, one]):
        was = start.get(uid)
        if was is None or (was.node == node and _part_of(was, one)):
            continue
        if _part_of(ends[uid], one) == part and uid not in held[node, other]:
            for each, index in ((wanted.uid, {other: one}), (uid, {one: other})):
                ends[each] = _with_cards(ends[each], index)
            held[node, one] ^= {uid, wanted.uid}
            held[node, other] ^= {uid, wanted.uid}
            return


def _part_of(pod: PodView, index: int) -> tuple[int, int] | None:
    """The milli and MiB of the card that the pod holds."""
    return next(
        ((share.milli, share.memory_mib) for share in pod.cards if share.index == index), None
    )


def _are_whole(pod: PodView) -> bool:
    return bool(pod.cards) and all(share.milli == MILLI_PER_GPU for share in pod.cards)


def _exchange(
    ends: dict[str, PodView], held: dict[_Card, set[str]], one: _Card, other: _Card
) -> None:
    index = {one[1]: other[1], other[1]: one[1]}
    for uid in held[one] | held[other]:
        ends[uid] = _with_cards(ends[uid], index)
    held[one], held[other] = held[other], held[one]


def _with_cards(pod: PodView, index: Mapping[int, int]) -> PodView:
    """The pod with its card indices mapped by `index`."""
    moved = (replace(share, index=index.get(share.index, share.index)) for share in pod.cards)
    return replace(pod, cards=tuple(sorted(moved, key=lambda share: share.index)))
