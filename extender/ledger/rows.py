"""What may be written into a ledger: algebra on the rows of one GpuNode, without I/O.

The rule (A1): on every card, reserved and bound rows together hold at most 1000 milli and the MiB
of the card. A new reservation also leaves room for what others have nominated; nominated rows may
overlap rows of victims that still leave, but not each other. Rows that are there are never judged
again, so that a card that shrank or fell ill can still be emptied.

Pods without a row hold whole cards of unknown index (`GpuNode.n_foreign`), or shares of certain
cards. A row that would be the first on a card leaves that many cards without a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from extender.api.kinds import CardShare, Device, GpuNode, Row
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU

Rows = tuple[Row, ...]
#: UID, epoch, and when it was reserved: `Row.identity`.
RowIdentity = tuple[str, int, int]


@dataclass(slots=True)
class NodeBatch:
    """Everything to be changed on one node by one write. `adds` are (change, row), in order.

    Rows with an identity in `frees` go before anything is added; rows of UIDs in `bound` become
    `bound`. A pod's newer row is never freed in place of the one that was meant.
    """

    frees: set[RowIdentity] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    adds: list[tuple[str, Row]] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Settled:
    """The node's rows after a batch. None of a refused change's rows are among them.

    `replaced` is, by change and UID, the row that stood where one was added; None for an empty
    place. Rows that were there already are not in it: there is nothing to take back.
    """

    rows: Rows
    refused: Mapping[str, Refused]
    replaced: Mapping[str, Mapping[str, Row | None]]


def settle(gpu_node: GpuNode, batch: NodeBatch) -> Settled:
    """What `batch` makes of the node's rows. Doing it twice changes nothing more."""
    rows = _free(gpu_node.spec.rows, batch)
    rows = tuple(
        replace(row, state="bound") if row.uid in batch.bound and row.state == "reserved" else row
        for row in rows
    )
    refused: dict[str, Refused] = {}
    replaced: dict[str, dict[str, Row | None]] = {}
    for change in dict.fromkeys(change for change, _ in batch.adds):
        after = rows
        undo: dict[str, Row | None] = {}
        for row in (row for named, row in batch.adds if named == change):
            outcome = add_row(gpu_node, after, row)
            if isinstance(outcome, Refused):
                refused[change] = outcome
                break
            if outcome != after:
                undo[row.uid] = row_of(after, row.uid)
            after = outcome
        else:
            rows, replaced[change] = after, undo
    return Settled(rows, refused, replaced)


def add_rows(gpu_node: GpuNode, rows: Iterable[Row]) -> Rows | Refused:
    """The node's rows with `rows` among them, or why one of them may not be there."""
    after: Rows | Refused = tuple(gpu_node.spec.rows)
    for row in rows:
        if isinstance(after, Refused):
            break
        after = add_row(gpu_node, after, row)
    return after


def add_row(gpu_node: GpuNode, rows: Rows, row: Row) -> Rows | Refused:
    """`rows` with `row` among them if they are all of the node, or why it may not be there.

    A row replaces its pod's nominated row, or, from a newer plan, its pod's reserved row on the
    same cards. A row that is there already, bound by now or not, stays as it is.
    """
    node, devices = gpu_node.metadata.name, gpu_node.status.devices
    own = row_of(rows, row.uid)
    if own is not None and _is_kept(own, row):
        return rows
    refused = _refuse_shape(node, devices, row)
    if refused is None and own is not None:
        refused = _refuse_change(node, own, row)
    takes_over = own is not None and own.state == "reserved"
    if refused is None and not takes_over:
        refused = _refuse_space(gpu_node, rows, row)
        if refused is None and gpu_node.n_foreign:
            refused = _refuse_crowding(gpu_node, rows, row)
    if refused is not None:
        return refused
    if own is None:
        return (*rows, row)
    return tuple(row if other.uid == row.uid else other for other in rows)


def restore_rows(rows: Rows, added: Iterable[Row], before: Mapping[str, Row | None]) -> Rows:
    """`rows` with each of `added` that is still there as it was written put back to `before`."""
    back = {row.uid: row for row in added if row.uid in before}
    put: list[Row] = []
    for row in rows:
        if back.get(row.uid) != row:
            put.append(row)
        elif (old := before[row.uid]) is not None:
            put.append(old)
    return tuple(put)


def row_of(rows: Iterable[Row], uid: str) -> Row | None:
    """The pod's row, if it has one."""
    return next((row for row in rows if row.uid == uid), None)


def overbooked(gpu_node: GpuNode) -> list[str]:
    """Where the rows of the node break A1, one sentence each; empty on a sound ledger."""
    devices = {device.index: device for device in gpu_node.status.devices}
    firm = [row for row in gpu_node.spec.rows if row.state != "nominated"]
    found = []
    for index in sorted({card.index for row in firm for card in row.cards}):
        place = f"{gpu_node.metadata.name}/gpu{index}"
        milli, mib = held_on(index, firm)
        device = devices.get(index)
        if device is None:
            found.append(f"{place}: rows hold a card that does not exist")
        elif milli > MILLI_PER_GPU or mib > device.memory_mib:
            found.append(
                f"{place}: rows hold {milli} milli and {mib} MiB"
                f" of {MILLI_PER_GPU} and {device.memory_mib}"
            )
    return found


def _free(rows: Iterable[Row], batch: NodeBatch) -> Rows:
    """The rows without those to be freed; a row that would be added again as it is stays."""
    added = {row.uid: row for _, row in batch.adds}
    return tuple(
        row
        for row in rows
        if row.identity not in batch.frees or (row.uid in added and _is_kept(row, added[row.uid]))
    )


def _is_kept(own: Row, row: Row) -> bool:
    """Whether `own` already is what `row` asks for. A bound row is more than a reserved one."""
    if own.state != row.state and not (own.state == "bound" and row.state == "reserved"):
        return False
    return replace(row, state=own.state, reserved_at=own.reserved_at) == own


def _refuse_shape(node: str, devices: Sequence[Device], row: Row) -> Refused | None:
    """Cards must be named, once each, exist and be healthy; a row may have instances instead."""
    indexes = [card.index for card in row.cards]
    if (not indexes and not row.counted) or len(set(indexes)) != len(indexes):
        detail = f"{_pod(row)}: row names cards {indexes} of {node}: each once, and at least one"
        return Refused(Reason.INVALID_REQUEST, detail)
    healthy = {device.index for device in devices if device.health == "Healthy"}
    for index in indexes:
        if index not in healthy:
            exists = any(device.index == index for device in devices)
            detail = "is unhealthy" if exists else "does not exist"
            return Refused(Reason.CARD_UNHEALTHY, f"{_pod(row)}: {node}/gpu{index} {detail}")
    return None


def _refuse_change(node: str, own: Row, row: Row) -> Refused | None:
    """A pod's row moves from nominated to reserved to bound, and never to an older plan's."""
    if own.epoch > row.epoch:
        detail = f"{_pod(row)}: {node} has its row of plan {own.epoch}, newer than {row.epoch}"
        return Refused(Reason.PLANNED_ELSEWHERE, detail)
    if own.state == "nominated":
        return None
    if own.state == "reserved" and row.state != "nominated" and _same_cards(own, row):
        return None
    detail = f"{_pod(row)}: already has cards of {node} {own.state} by plan {own.epoch}"
    return Refused(Reason.CARDS_BUSY, detail)


def _refuse_space(gpu_node: GpuNode, rows: Rows, row: Row) -> Refused | None:
    """Every card must have room beside the rows that count against this one, and beside the shares
    of pods without a row; a bound pod has its cards already."""
    others = [other for other in rows if other.uid != row.uid]
    firm = [other for other in others if other.state != "nominated"]
    held_place = row_of(rows, row.uid)
    mib_of = {device.index: device.memory_mib for device in gpu_node.status.devices}
    shares = [] if row.state == "bound" else gpu_node.foreign_shares
    for card in row.cards:
        if row.state == "nominated":
            against = [other for other in others if other.state == "nominated"]
        elif row.state == "bound" or _had_nominated(held_place, card):
            against = firm
        else:
            against = others
        milli, mib = held_on(card.index, against, shares)
        free_milli, free_mib = MILLI_PER_GPU - milli, mib_of[card.index] - mib
        if card.milli > free_milli or card.memory_mib > free_mib:
            detail = (
                f"{_pod(row)}: needs {card.milli} milli and {card.memory_mib} MiB of"
                f" {gpu_node.metadata.name}/gpu{card.index}, free are {free_milli} and {free_mib}"
            )
            return Refused(Reason.CARDS_BUSY, detail)
    return None


def _refuse_crowding(gpu_node: GpuNode, rows: Rows, row: Row) -> Refused | None:
    """As many cards as pods without a row hold must be left without one.

    A bound pod has its cards already, and a card that others share already is not one more.
    """
    if row.state == "bound":
        return None
    own = row_of(rows, row.uid)
    others = [other for other in rows if other.uid != row.uid]
    if row.state == "nominated":
        others = [other for other in others if other.state == "nominated"]
    elif own is not None and all(_had_nominated(own, card) for card in row.cards):
        others = [other for other in others if other.state != "nominated"]
    node, n_foreign = gpu_node.metadata.name, gpu_node.n_foreign
    healthy = {each.index for each in gpu_node.status.devices if each.health == "Healthy"}
    used = {card.index for other in others for card in other.cards} & healthy
    wanted = {card.index for card in row.cards} - used
    n_free = len(healthy) - len(used) - n_foreign
    if not wanted or len(wanted) <= n_free:
        return None
    detail = (
        f"{_pod(row)}: needs {len(wanted)} more cards of {node}, free are {max(0, n_free)}:"
        f" pods without a row hold {n_foreign}"
    )
    return Refused(Reason.CARDS_BUSY, detail)


def _had_nominated(own: Row | None, card: CardShare) -> bool:
    """Whether the pod held this much of the card for itself while victims left."""
    return own is not None and any(
        held.index == card.index and held.milli >= card.milli and held.memory_mib >= card.memory_mib
        for held in own.cards
    )


def held_on(index: int, rows: Iterable[Row], shares: Iterable[CardShare] = ()) -> tuple[int, int]:
    """Milli and MiB that `rows` hold of one card, and the shares besides."""
    milli = mib = 0
    for card in (*(card for row in rows for card in row.cards), *shares):
        if card.index == index:
            milli += card.milli
            mib += card.memory_mib
    return milli, mib


def _same_cards(own: Row, row: Row) -> bool:
    return sorted(own.cards, key=_index) == sorted(row.cards, key=_index)


def _index(card: CardShare) -> int:
    return card.index


def _pod(row: Row) -> str:
    return f"{row.namespace}/{row.name}"
