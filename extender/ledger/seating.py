"""Moves the row of a claimed share to the card of its allocation, just before the bind.

kube-scheduler allocates such a share on the planned node, on the first card with enough memory. So
pods that are released together may get each other's cards. The row of the pod that is bound moves
to the card of its allocation; rows of pods that are not yet allocated make room.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from extender.api.kinds import Device, GpuNode, Row
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.ledger.rows import Rows, held_on, row_of


def seat(gpu_node: GpuNode, uid: str, epoch: int, allocated: Collection[str]) -> Rows | Refused:
    """The node's rows with the row of pod `uid` and plan `epoch` on the card allocated to its
    claim, or why that is refused. `allocated` are device names (`Device.device`).

    The sums of every card stay within the card. Idempotent.
    """
    rows, devices = tuple(gpu_node.spec.rows), gpu_node.status.devices
    own = row_of(rows, uid)
    if own is None or own.epoch != epoch or own.state == "nominated":
        return Refused(Reason.PLAN_NOT_RESERVED, f"{uid} has no row of plan {epoch}")
    if own.device or own.state == "bound":
        return rows
    card = next((each for each in devices if each.device and each.device in allocated), None)
    if card is None:
        detail = f"{own.key}: its claims have no card of {gpu_node.metadata.name}"
        return Refused(Reason.CLAIMS_NOT_MET, detail)
    if card.health != "Healthy":
        return Refused(Reason.CARD_UNHEALTHY, f"{own.key}: {card.device} is unhealthy")
    others = [row for row in rows if row.state != "nominated" and row.uid != uid]
    movable = [row for row in others if _is_movable(row, card.index)]
    fixed = [row for row in others if row not in movable]
    seated = _moved_to(own, card, fixed)
    placed = _place_movable(movable, devices, [*fixed, seated])
    if placed is None or not _has_room(card, placed):
        return Refused(Reason.CARDS_BUSY, f"{own.key}: rows of other pods hold {card.device}")
    after = {row.uid: row for row in placed}
    return tuple(after.get(row.uid, row) for row in rows)


def _is_movable(row: Row, index: int) -> bool:
    """Whether the row is on this card only by plan: its pod has no recorded allocation."""
    is_planned = row.state == "reserved" and row.epoch > 0 and not row.device
    return is_planned and [card.index for card in row.cards] == [index]


def _moved_to(own: Row, card: Device, fixed: Sequence[Row]) -> Row:
    """The row on the card. Milli are rounded up, but kube-scheduler counts only memory, so they are
    limited to what the card has free."""
    (share,) = own.cards
    left = MILLI_PER_GPU - held_on(card.index, fixed)[0]
    milli = min(share_milli(share.memory_mib, card.memory_mib), left)
    moved = replace(share, index=card.index, milli=max(1, milli))
    return replace(own, cards=[moved], device=card.device)


def _place_movable(
    movable: Sequence[Row], devices: Sequence[Device], placed: list[Row]
) -> list[Row] | None:
    """`placed` and the movable rows, each on its own card if it fits there, else on the first card
    where it fits; None if one fits on none."""
    for row in sorted(movable, key=lambda each: (-each.cards[0].memory_mib, each.uid)):
        (share,) = row.cards
        for device in sorted(devices, key=lambda each: (each.index != share.index, each.index)):
            moved = replace(row, cards=[replace(share, index=device.index)])
            if device.health == "Healthy" and _has_room(device, [*placed, moved]):
                placed = [*placed, moved]
                break
        else:
            return None
    return placed


def _has_room(device: Device, rows: Sequence[Row]) -> bool:
    milli, mib = held_on(device.index, rows)
    return milli <= MILLI_PER_GPU and mib <= device.memory_mib
