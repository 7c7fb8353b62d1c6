"""Which ledger rows no longer match their pods, kept up to date pod by pod.

Nothing is decided here: a row may be newer than our picture of its pod, so a pod that we do not
know is only a candidate until a live read confirms that it is absent.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from extender.api.kinds import CardShare, MoveHold, Row
from extender.state.fleet.foreign import ForeignPods, was_given
from extender.state.model import PodView
from extender.state.nodes import RowIndex
from extender.state.pods.facts import PodFacts, read_cards
from extender.state.workloads.assembly import is_revoked
from extender.state.workloads.collection import Workloads

#: Gone UIDs remembered. Older ones are merely confirmed by a live read again.
_MAX_GONE: Final = 65_536

#: `ended`: the pod is gone or terminal. `elsewhere`: it is bound to another node. `superseded`: it
#: is unbound and has a row that counts more. `absent`: we have never seen it.
Cause = Literal["ended", "elsewhere", "superseded", "absent"]


class StrayRow(Struct, frozen=True):
    """A row that nothing needs any more, as far as we know.

    `is_confirmed`: it may be freed at once. Otherwise an `absent` pod must be looked up live first,
    and a `superseded` row needs the fence: a patch of the pod that makes older releases fail.
    """

    node: str
    row: Row
    cause: Cause
    is_confirmed: bool


class KeptPlace(Struct, frozen=True):
    """A nominated row that keeps a place for the successor of a pod that was moved.

    `is_gone`: the pod that was moved is there no more; until then it is on its way out.
    """

    node: str
    row: Row
    move: MoveHold
    is_gone: bool


class LostRow(Struct, frozen=True):
    """A pod without a row on the node it is bound to; `cards` are what its Binding says, none for a
    pod with instances."""

    pod: PodView
    cards: tuple[CardShare, ...]


class GoneUids:
    """The last UIDs that were seen to end or to be removed, and in which version.

    A UID comes back only where the cluster's store is restored from a backup. Then the object has
    the version that it had, which its reflector notices, or a later one where something wrote it.
    """

    def __init__(self, capacity: int = _MAX_GONE) -> None:
        self._capacity = capacity
        self._uids: dict[str, str] = {}
        #: Of these no row was left: one that is seen later needs a live read.
        self._vacated: set[str] = set()

    def add(self, uid: str, version: str = "") -> None:
        """Remember the UID, and forget the oldest when there are too many."""
        if not uid:
            return
        self._uids[uid] = version
        if len(self._uids) > self._capacity:
            self.discard(next(iter(self._uids)))

    def discard(self, uid: str) -> None:
        """The UID exists again, or is too old to be remembered."""
        self._uids.pop(uid, None)
        self._vacated.discard(uid)

    def is_passed_over(self, uid: str, version: str) -> bool:
        """Whether an object in this version is from before the UID was seen to go."""
        gone_in = self._uids.get(uid)
        if gone_in is None:
            return False
        is_later = gone_in.isdecimal() and version.isdecimal() and int(version) > int(gone_in)
        return not is_later

    def vacate(self, uid: str) -> None:
        """The UID has no row any more."""
        if uid in self._uids:
            self._vacated.add(uid)

    def ends_rows_of(self, uid: str) -> bool:
        """Whether the row that the UID has was there when it was seen to go."""
        return uid in self._uids and uid not in self._vacated

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids


class Upkeep:
    """Sorts every UID that has a pod or a row by what is to be done about it."""

    def __init__(
        self, rows: RowIndex, workloads: Workloads, foreign: ForeignPods, gone: GoneUids
    ) -> None:
        self._rows = rows
        self._workloads = workloads
        self._foreign = foreign
        self._gone = gone
        self._stray: set[str] = set()
        self._to_mark: set[str] = set()
        self._lost: set[str] = set()
        self._unplanned: set[str] = set()
        self._kept: set[str] = set()

    def look_at(self, uid: str) -> None:
        """The pod or its rows have changed."""
        facts = self._facts_of(uid)
        rows = self._rows.held_of(uid)
        _keep(self._stray, uid, bool(self._strays_of(uid)))
        _keep(self._kept, uid, bool(_kept_on(rows, facts)))
        if facts is None:
            if not rows:
                self._gone.vacate(uid)
            for uids in (self._to_mark, self._lost, self._unplanned):
                uids.discard(uid)
            return
        row = rows.get(facts.node) if facts.node else None
        is_ours = uid in self._workloads.facts
        _keep(self._to_mark, uid, is_ours and row is not None and row.state != "bound")
        is_lost = is_ours and bool(facts.node) and row is None and was_given(facts)
        _keep(self._lost, uid, is_lost)
        is_released = not facts.node and not facts.is_gated and bool(facts.plan)
        _keep(self._unplanned, uid, is_released and not rows)

    def strays(self, has_all_pods: bool) -> list[StrayRow]:
        """Rows that may have to be freed, by node; unseen pods count only with `has_all_pods`."""
        found = [stray for uid in self._stray for stray in self._strays_of(uid)]
        found = [stray for stray in found if has_all_pods or stray.cause != "absent"]
        return sorted(found, key=lambda stray: (stray.node, stray.row.uid))

    def kept_places(self) -> list[KeptPlace]:
        """Places kept for successors, by node."""
        found: list[KeptPlace] = []
        for uid in self._kept:
            facts, rows = self._facts_of(uid), self._rows.held_of(uid)
            node = _kept_on(rows, facts)
            if (move := rows[node].move) is not None:
                found.append(KeptPlace(node, rows[node], move, is_gone=facts is None))
        return sorted(found, key=lambda kept: (kept.node, kept.row.uid))

    def to_mark_bound(self) -> dict[str, list[str]]:
        """UIDs of bound pods, by node, that their rows do not have as bound yet."""
        found: dict[str, list[str]] = {}
        for uid in sorted(self._to_mark):
            found.setdefault(self._workloads.facts[uid].node, []).append(uid)
        return found

    def lost_rows(self) -> list[LostRow]:
        """Bound pods of ours without a row on their node, by UID."""
        return [
            LostRow(pod, read_cards(self._workloads.facts[uid].written_cards))
            for uid in sorted(self._lost)
            if (pod := self._workloads.pod(uid)) is not None
        ]

    def lost_cards(self, uid: str) -> tuple[CardShare, ...]:
        """The cards of the pod, by its Binding, where it has no row on its node; else none."""
        return read_cards(self._workloads.facts[uid].written_cards) if uid in self._lost else ()

    def released_without_row(self) -> list[PodView]:
        """Unbound pods that a plan released and that have no row any more, by UID."""
        pods = (self._workloads.pod(uid) for uid in sorted(self._unplanned))
        return [pod for pod in pods if pod is not None]

    def validate(self, uids: set[str]) -> None:
        """Assert that looking at all of `uids` anew changes nothing."""
        fresh = Upkeep(self._rows, self._workloads, self._foreign, self._gone)
        for uid in uids:
            fresh.look_at(uid)
        for name in ("_stray", "_to_mark", "_lost", "_unplanned", "_kept"):
            assert getattr(fresh, name) == getattr(self, name), name

    def _facts_of(self, uid: str) -> PodFacts | None:
        return self._workloads.facts.get(uid) or self._foreign.facts.get(uid)

    def _strays_of(self, uid: str) -> list[StrayRow]:
        rows = self._rows.held_of(uid)
        facts = self._facts_of(uid)
        kept_on = _kept_on(rows, facts)
        if facts is None:
            is_gone = self._gone.ends_rows_of(uid)
            absent: Cause = "ended" if is_gone else "absent"
            return [
                StrayRow(node, row, absent, is_gone)
                if row.move is None
                else StrayRow(node, row, "superseded", True)
                for node, row in rows.items()
                if node != kept_on
            ]
        if len(rows) < 2 and not (facts.node or facts.revoked):
            return []
        place = facts.node or self._workloads.place_of(uid)[0]
        cause: Cause = "elsewhere" if facts.node else "superseded"
        return [
            StrayRow(node, row, cause, _may_go(facts, node, row))
            for node, row in rows.items()
            if node not in (place, kept_on)
        ]


def _may_go(facts: PodFacts, node: str, row: Row) -> bool:
    """Whether the pod's row, which it does not need, may be freed at once."""
    return bool(facts.node) or row.state == "nominated" or is_revoked(facts, node, row)


def _kept_on(rows: Mapping[str, Row], facts: PodFacts | None) -> str:
    """The node on which a row keeps the place of the pod's successor; empty if none does.

    A place is kept once the pod was told to leave, or has left: a pod that stays after all has no
    need of a second place. Two leaders may each have planned the move, to different nodes; the
    place of the later plan is kept.
    """
    if facts is not None and not (facts.node and facts.is_terminating):
        return ""
    moves = [(row.epoch, node) for node, row in rows.items() if row.move is not None]
    return max(moves)[1] if moves else ""


def _keep(uids: set[str], uid: str, is_in: bool) -> None:
    if is_in:
        uids.add(uid)
    else:
        uids.discard(uid)
