"""What each row held in which period, derived from the revisions of the ledger.

A row holds its cards from its `reservedAt` until the `changedAt` of the revision that removed it.
Both are in the ledger, so every replica that sees these revisions gets the same result.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from extender.api.demand import slices_milli
from extender.api.events import Event, Removed, Upserted
from extender.api.kinds import GpuNode, Row

#: Seconds for which ended holds are kept: longer than two bookings and an election.
KEPT_S: Final = 900
#: Clocks of a cluster differ by seconds. A time further ahead comes from a wrong clock and counts
#: as now.
_AHEAD_S: Final = 60


class Hold(Struct, gc=False, kw_only=True):
    """The allocation of one row: `milli` from `since` to `until` (None: still held), unix seconds.

    Node pool and model are those of its node when the row was first seen.
    """

    uid: str
    project: str
    node_pool: str
    model: str
    milli: int
    since: int
    until: int | None = None
    user: str | None = None


class Loss(Struct, frozen=True, gc=False):
    """Work lost by the eviction of this hold's pod, in milli-GPU-seconds."""

    hold: Hold
    at: int
    milli_s: int


class UsageMeter:
    """The holds of all nodes, and those that ended recently.

    `user_of` returns the user that a pod names, by UID; None while the pod is unknown.
    """

    def __init__(self, user_of: Callable[[str], str | None]) -> None:
        self._user_of = user_of
        self._open: dict[str, dict[str, Hold]] = {}
        self._ended: list[Hold] = []
        self._losses: list[Loss] = []

    def observe(self, event: Event, now_s: int) -> None:
        """Apply one event; events of other kinds than GpuNode are ignored."""
        match event:
            case Upserted(GpuNode() as node):
                self._take(node, now_s)
            case Removed(kind=kind, name=name) if kind is GpuNode:
                for hold in self._open.pop(name, {}).values():
                    self._end(hold, now_s)

    def lose(self, node: str, uid: str, milli_s: int, now_s: int) -> None:
        """Record that the pod with a row on the node is evicted and loses this much work."""
        hold = self._open.get(node, {}).get(uid)
        if hold is not None and milli_s > 0:
            self._losses.append(Loss(hold, now_s, milli_s))

    def holds(self) -> Iterator[Hold]:
        """Every current and recently ended hold, with its user if known."""
        for rows in self._open.values():
            yield from rows.values()
        yield from self._ended

    def losses(self) -> tuple[Loss, ...]:
        """The losses by recent evictions."""
        return tuple(self._losses)

    def forget(self, before_s: int) -> None:
        """Drop holds and losses that ended before this time."""
        self._ended = [hold for hold in self._ended if (hold.until or 0) >= before_s]
        self._losses = [loss for loss in self._losses if loss.at >= before_s]

    def name_users(self, holds: Iterable[Hold]) -> None:
        """Look up the users of pods that were unknown when their rows appeared."""
        for hold in holds:
            if hold.user is None:
                hold.user = self._user_of(hold.uid)

    def _take(self, node: GpuNode, now_s: int) -> None:
        before = self._open.get(node.metadata.name, {})
        changed_at = _no_later(node.spec.changed_at, now_s) or now_s
        after: dict[str, Hold] = {}
        for row in node.spec.rows:
            if row.state == "nominated":
                continue
            milli, hold = row.milli + slices_milli(row.counted.items()), before.get(row.uid)
            if hold is None:
                since = _no_later(row.reserved_at, now_s) or changed_at
                after[row.uid] = self._begin(node, row, milli, since)
            elif hold.milli != milli or hold.project != row.project:
                after[row.uid] = self._begin(node, row, milli, changed_at)
            else:
                after[row.uid] = hold
        for uid, hold in before.items():
            if after.get(uid) is not hold:
                self._end(hold, changed_at)
        self._open[node.metadata.name] = after

    def _begin(self, node: GpuNode, row: Row, milli: int, since: int) -> Hold:
        models = {device.index: device.model for device in node.status.devices}
        first = row.cards[0].index if row.cards else min(models, default=0)
        return Hold(
            uid=row.uid,
            project=row.project,
            node_pool=node.pool,
            model=models.get(first, ""),
            milli=milli,
            since=since,
            user=self._user_of(row.uid),
        )

    def _end(self, hold: Hold, at_s: int) -> None:
        hold.until = max(at_s, hold.since)
        if hold.user is None:
            hold.user = self._user_of(hold.uid)
        self._ended.append(hold)


def _no_later(at_s: int, now_s: int) -> int:
    return now_s if at_s > now_s + _AHEAD_S else at_s
