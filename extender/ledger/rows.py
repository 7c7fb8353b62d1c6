"""The rules for rows of one GpuNode, without I/O.

The rule (A1): on every card, reserved and bound rows together hold at most 1000 milli and the MiB
of the card. A new reservation must also fit beside the nominated rows of other pods. Nominated rows
may overlap the rows of victims that are still terminating, but not each other. Existing rows are
never checked again, so that a card that shrank or became unhealthy can still be drained.

Pods without a row hold whole cards of unknown index (`GpuNode.n_foreign`), or shares of known
cards. A row may be the first on a card only if that leaves enough cards without a row for them.
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
    """All changes of one node in one write. `adds` are (change, row), in order.

    Rows with an identity in `frees` are removed first; rows of UIDs in `bound` become `bound`. The
    identity protects a pod's newer row from being freed by mistake.
    """

    frees: set[RowIdentity] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    adds: list[tuple[str, Row]] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Settled:
    """The node's rows after a batch, without any row of a refused change.

    `replaced` is, by change and UID, the row that an added row replaced, None if there was none.
    Rows that existed unchanged are not in it, because there is nothing to undo.
    """

    rows: Rows
    refused: Mapping[str, Refused]
    replaced: Mapping[str, Mapping[str, Row | None]]


def settle(gpu_node: GpuNode, batch: NodeBatch) -> Settled:
    """The node's rows after `batch`. Idempotent."""
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
    """The node's rows with `rows` added, or why one of them is refused."""
    after: Rows | Refused = tuple(gpu_node.spec.rows)
    for row in rows:
        if isinstance(after, Refused):
            break
        after = add_row(gpu_node, after, row)
    return after


def add_row(gpu_node: GpuNode, rows: Rows, row: Row) -> Rows | Refused:
    """`rows`, which are all of the node's, with `row` added, or why it is refused.

    A row replaces its pod's nominated row, or, from a newer plan, its pod's reserved row on the
    same cards. A row that exists already, even if bound since, is not changed.
    """
    node, devices = gpu_node.metadata.name, gpu_node.status.devices
    own = row_of(rows, row.uid)
    if own is not None and _satisfies(own, row):
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
    """`rows` after undoing `added`: each that is unchanged since is replaced by its `before`."""
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


def _free(rows: Iterable[Row], batch: NodeBatch) -> Rows:
    """The rows without freed ones; a freed row that is added again unchanged stays."""
    added = {row.uid: row for _, row in batch.adds}
    return tuple(
        row
        for row in rows
        if row.identity not in batch.frees or (row.uid in added and _satisfies(row, added[row.uid]))
    )


def _satisfies(own: Row, row: Row) -> bool:
    """Whether `own` already satisfies `row`; a bound row also satisfies a reserved one."""
    if own.state != row.state and not (own.state == "bound" and row.state == "reserved"):
        return False
    return replace(row, state=own.state, reserved_at=own.reserved_at) == own


def _refuse_shape(node: str, devices: Sequence[Device], row: Row) -> Refused | None:
    """Refuse a row with missing, duplicate or unhealthy cards; MIG instances need no card."""
    indexes = [card.index for card in row.cards]
    if (not indexes and not row.counted) or len(set(indexes)) != len(indexes):
        detail = f"{row.key}: row names cards {indexes} of {node}: each once, and at least one"
        return Refused(Reason.INVALID_REQUEST, detail)
    healthy = {device.index for device in devices if device.health == "Healthy"}
    for index in indexes:
        if index not in healthy:
            exists = any(device.index == index for device in devices)
            detail = "is unhealthy" if exists else "does not exist"
            return Refused(Reason.CARD_UNHEALTHY, f"{row.key}: {node}/gpu{index} {detail}")
    return None


def _refuse_change(node: str, own: Row, row: Row) -> Refused | None:
    """A pod's row goes from nominated to reserved to bound, and never back to an older plan."""
    if own.epoch > row.epoch:
        detail = f"{row.key}: {node} has its row of plan {own.epoch}, newer than {row.epoch}"
        return Refused(Reason.PLANNED_ELSEWHERE, detail)
    if own.state == "nominated":
        return None
    if own.state == "reserved" and row.state != "nominated" and _same_cards(own, row):
        return None
    detail = f"{row.key}: already has cards of {node} {own.state} by plan {own.epoch}"
    return Refused(Reason.CARDS_BUSY, detail)


def _refuse_space(gpu_node: GpuNode, rows: Rows, row: Row) -> Refused | None:
    """Refuse a row that does not fit on its cards beside the rows that count against it and the
    shares of pods without a row. Such shares do not count against a bound pod, which runs already.
    """
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
                f"{row.key}: needs {card.milli} milli and {card.memory_mib} MiB of"
                f" {gpu_node.metadata.name}/gpu{card.index}, free are {free_milli} and {free_mib}"
            )
            return Refused(Reason.CARDS_BUSY, detail)
    return None


def _refuse_crowding(gpu_node: GpuNode, rows: Rows, row: Row) -> Refused | None:
    """Refuse a row that leaves too few cards without a row for pods that have none.

    A bound pod has its cards already, and a card that has other rows already costs no further card.
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
        f"{row.key}: needs {len(wanted)} more cards of {node}, free are {max(0, n_free)}:"
        f" pods without a row hold {n_foreign}"
    )
    return Refused(Reason.CARDS_BUSY, detail)


def _had_nominated(own: Row | None, card: CardShare) -> bool:
    """Whether the pod's own row already held this much of the card, while victims terminated."""
    return own is not None and any(
        held.index == card.index and held.milli >= card.milli and held.memory_mib >= card.memory_mib
        for held in own.cards
    )


def held_on(index: int, rows: Iterable[Row], shares: Iterable[CardShare] = ()) -> tuple[int, int]:
    """Milli and MiB that `rows` and `shares` hold of one card."""
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
