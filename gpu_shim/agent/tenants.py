"""Converts ledger rows into tenants of the arbiter: pods that share cards, with caps and shares.

Only the row counts; the pod's annotations are not read here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from extender.api.kinds import Device, Row
from extender.api.ledger import guaranteed_milli
from extender.api.units import MILLI_PER_GPU
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.policy.shares import Claim, Mode

#: States of pods that run here or are about to: `reserved` becomes `bound` only with the
#: controller's next write of the node, possibly long after the pod's containers start.
_LIVE: Final = ("reserved", "bound")


@dataclass(slots=True, frozen=True)
class SharingPod:
    """A pod that shares cards. `uid` is part of its paths, so it is validated."""

    uid: str
    namespace: str
    pod: str
    claim: Claim
    cards: tuple[ContainerCard, ...]


@dataclass(slots=True, frozen=True)
class Rejected:
    """A row that cannot be served, and why."""

    uid: str
    why: str


def tenants_of(
    rows: Iterable[Row], devices: Mapping[int, Device], mode: Mode
) -> tuple[list[SharingPod], list[Rejected]]:
    """Tenants of all live rows that share a card; rows with whole cards are left out."""
    tenants, rejected = list[SharingPod](), list[Rejected]()
    for row in live(rows):
        if is_whole(row):
            continue
        if why := _fault(row, devices):
            rejected.append(Rejected(row.uid, why))
        else:
            tenants.append(_tenant(row, devices, mode))
    return tenants, rejected


def live(rows: Iterable[Row]) -> list[Row]:
    """The rows of pods that run here or are about to."""
    return [row for row in rows if row.state in _LIVE]


def whole_cards(
    rows: Iterable[Row], devices: Mapping[int, Device]
) -> Mapping[str, tuple[str, ...]]:
    """UUIDs of the cards that pods use exclusively, by uid."""
    return {
        row.uid: tuple(devices[card.index].uuid for card in row.cards)
        for row in live(rows)
        if is_whole(row) and all(card.index in devices for card in row.cards)
    }


def is_whole(row: Row) -> bool:
    """Whether the pod uses its cards exclusively."""
    return all(card.milli == MILLI_PER_GPU for card in row.cards)


def _fault(row: Row, devices: Mapping[int, Device]) -> str:
    if not row.uid.replace("-", "").isalnum() or not row.uid.isascii():
        return "its uid is malformed"
    missing = [card.index for card in row.cards if card.index not in devices]
    if missing:
        return f"card {missing[0]} is not on this node, or not ours yet"
    if row.compute_request_milli > row.compute_limit_milli:
        return f"request {row.compute_request_milli} milli is above {row.compute_limit_milli}"
    return ""


def _tenant(row: Row, devices: Mapping[int, Device], mode: Mode) -> SharingPod:
    # A row whose request exceeds its part of the cards must not shut out its neighbours.
    guaranteed = guaranteed_milli(row.compute_request_milli, row.cards)
    request = Fraction(guaranteed, MILLI_PER_GPU)
    limit = Fraction(row.compute_limit_milli, MILLI_PER_GPU)
    # A limit of 1 was not stated; in strict mode the request is then the limit.
    if mode == "strict" and limit == 1 and request:
        limit = request
    cards = tuple(ContainerCard(devices[each.index].uuid, each.memory_mib) for each in row.cards)
    return SharingPod(row.uid, row.namespace, row.name, Claim(row.uid, request, limit), cards)
