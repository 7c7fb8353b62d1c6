"""Which ledger rows no longer match their pods, kept up to date pod by pod.

Nothing is decided here. A row may be newer than our view of its pod, so a row of an unknown pod is
only a candidate until a live read confirms that the pod is absent.
"""

from collections.abc import Mapping, Set
from typing import Final, Literal

from msgspec import Struct

from extender.api.kinds import CardShare, MoveHold, Row
from extender.api.ledger import read_cards
from extender.api.versions import is_older
from extender.state.fleet.foreign import ForeignPods, was_given
from extender.state.model import PodView
from extender.state.nodes import RowIndex
from extender.state.pods.facts import PodFacts
from extender.state.workloads.assembly import is_revoked
from extender.state.workloads.collection import Workloads

#: Removed UIDs remembered. A row of an older one only costs another live read.
_MAX_GONE: Final = 65_536

#: `ended`: the pod is gone or terminal. `elsewhere`: it is bound to another node. `superseded`: it
#: is unbound and another of its rows takes precedence. `absent`: the model never had the pod.
Cause = Literal["ended", "elsewhere", "superseded", "absent"]


class StrayRow(Struct, frozen=True):
    """A row that is no longer needed, as far as the model knows.

    `is_confirmed`: it may be freed at once. Otherwise an `absent` pod needs a live read first,
    and a `superseded` row needs the fence: a patch of the pod that makes older releases fail.
    """

    node: str
    row: Row
    cause: Cause
    is_confirmed: bool


class KeptPlace(Struct, frozen=True):
    """A nominated row that reserves cards for the successor of a pod that was moved.

    `is_gone`: the moved pod is gone; until then it is terminating.
    """

    node: str
    row: Row
    move: MoveHold
    is_gone: bool


class LostRow(Struct, frozen=True):
    """A pod without a row on the node it is bound to; `cards` are those in its Binding, empty for
    MIG instances."""

    pod: PodView
    cards: tuple[CardShare, ...]


class GoneUids:
    """The last UIDs that ended or were removed, each with its version then.

    A UID comes back only if the cluster's store is restored from a backup. Its version is then the
    old one, which its reflector notices, or a later one if something has written the object.
    """

    def __init__(self, capacity: int = _MAX_GONE) -> None:
        self._capacity = capacity
        self._uids: dict[str, str] = {}
        #: UIDs that no longer have a row: if a row appears later, it needs a live read.
        self._vacated: set[str] = set()

    def add(self, uid: str, version: str = "") -> None:
        """Remember the UID; if there are too many, forget the oldest."""
        if not uid:
            return
        self._uids[uid] = version
        if len(self._uids) > self._capacity:
            self.discard(next(iter(self._uids)))

    def discard(self, uid: str) -> None:
        """The UID exists again, or is the oldest of too many."""
        self._uids.pop(uid, None)
        self._vacated.discard(uid)

    def is_outdated(self, uid: str, version: str) -> bool:
        """Whether an object in this version is not newer than the removal of its UID."""
        gone_in = self._uids.get(uid)
        if gone_in is None:
            return False
        return not is_older(gone_in, version)

    def vacate(self, uid: str) -> None:
        """The UID no longer has a row."""
        if uid in self._uids:
            self._vacated.add(uid)

    def ends_rows_of(self, uid: str) -> bool:
        """Whether the UID was removed, and has had its row since before that."""
        return uid in self._uids and uid not in self._vacated

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids


class Upkeep:
    """Sorts every UID that has a pod or a row by the repair that it needs."""

    def __init__(
        self, rows: RowIndex, workloads: Workloads, foreign: ForeignPods, gone: GoneUids
    ) -> None:
        self._rows = rows
        self._workloads = workloads
        self._foreign = foreign
        self._gone = gone
        self._stray: set[str] = set()
        #: The node of each pod with a row to mark, and the reverse.
        self._marked_on: dict[str, str] = {}
        self._to_mark: dict[str, set[str]] = {}
        self._lost: set[str] = set()
        self._unplanned: set[str] = set()
        self._kept: set[str] = set()

    def refresh(self, uid: str) -> None:
        """Update the UID after its pod or its rows have changed."""
        facts = self._facts_of(uid)
        rows = self._rows.held_of(uid)
        _set_member(self._stray, uid, bool(self._strays_of(uid)))
        _set_member(self._kept, uid, bool(_reserved_on(rows, facts)))
        if facts is None:
            if not rows:
                self._gone.vacate(uid)
            self._set_mark(uid, "")
            self._lost.discard(uid)
            self._unplanned.discard(uid)
            return
        row = rows.get(facts.node) if facts.node else None
        is_ours = uid in self._workloads.facts
        is_unmarked = is_ours and row is not None and row.state != "bound"
        self._set_mark(uid, facts.node if is_unmarked else "")
        is_lost = is_ours and bool(facts.node) and row is None and was_given(facts)
        _set_member(self._lost, uid, is_lost)
        is_released = not facts.node and not facts.is_gated and bool(facts.plan)
        _set_member(self._unplanned, uid, is_released and not rows)

    def strays(self, has_all_pods: bool) -> list[StrayRow]:
        """Rows that may have to be freed, by node; `absent` ones only if `has_all_pods`."""
        found = [stray for uid in self._stray for stray in self._strays_of(uid)]
        found = [stray for stray in found if has_all_pods or stray.cause != "absent"]
        return sorted(found, key=lambda stray: (stray.node, stray.row.uid))

    def kept_places(self) -> list[KeptPlace]:
        """Reservations for successors, by node."""
        found: list[KeptPlace] = []
        for uid in self._kept:
            facts, rows = self._facts_of(uid), self._rows.held_of(uid)
            node = _reserved_on(rows, facts)
            if (move := rows[node].move) is not None:
                found.append(KeptPlace(node, rows[node], move, is_gone=facts is None))
        return sorted(found, key=lambda kept: (kept.node, kept.row.uid))

    @property
    def to_mark_bound(self) -> Mapping[str, Set[str]]:
        """By node, UIDs of bound pods with a row that is not marked `bound` yet. A live view."""
        return self._to_mark

    def lost_rows(self) -> list[LostRow]:
        """Bound managed pods without a row on their node, by UID."""
        return [
            LostRow(pod, read_cards(self._workloads.facts[uid].written_cards))
            for uid in sorted(self._lost)
            if (pod := self._workloads.pod(uid)) is not None
        ]

    def lost_cards(self, uid: str) -> tuple[CardShare, ...]:
        """The pod's cards by its Binding if it has no row on its node, else none."""
        return read_cards(self._workloads.facts[uid].written_cards) if uid in self._lost else ()

    def released_without_row(self) -> list[PodView]:
        """Unbound pods that were released and no longer have a row, by UID."""
        pods = (self._workloads.pod(uid) for uid in sorted(self._unplanned))
        return [pod for pod in pods if pod is not None]

    def validate(self, uids: set[str]) -> None:
        """Assert that a rebuild from `uids` gives the same."""
        fresh = Upkeep(self._rows, self._workloads, self._foreign, self._gone)
        for uid in uids:
            fresh.refresh(uid)
        for name in ("_stray", "_to_mark", "_lost", "_unplanned", "_kept"):
            assert getattr(fresh, name) == getattr(self, name), name

    def _set_mark(self, uid: str, node: str) -> None:
        """The pod's row on the node is to be marked; none if `node` is empty."""
        if before := self._marked_on.pop(uid, ""):
            self._to_mark[before].discard(uid)
            if not self._to_mark[before]:
                del self._to_mark[before]
        if node:
            self._marked_on[uid] = node
            self._to_mark.setdefault(node, set()).add(uid)

    def _facts_of(self, uid: str) -> PodFacts | None:
        return self._workloads.facts.get(uid) or self._foreign.facts.get(uid)

    def _strays_of(self, uid: str) -> list[StrayRow]:
        rows = self._rows.held_of(uid)
        facts = self._facts_of(uid)
        reserved_on = _reserved_on(rows, facts)
        if facts is None:
            is_gone = self._gone.ends_rows_of(uid)
            absent: Cause = "ended" if is_gone else "absent"
            return [
                StrayRow(node, row, absent, is_gone)
                if row.move is None
                else StrayRow(node, row, "superseded", True)
                for node, row in rows.items()
                if node != reserved_on
            ]
        if len(rows) < 2 and not (facts.node or facts.revoked):
            return []
        place = facts.node or self._workloads.place_of(uid)[0]
        cause: Cause = "elsewhere" if facts.node else "superseded"
        return [
            StrayRow(node, row, cause, _can_free_now(facts, node, row))
            for node, row in rows.items()
            if node not in (place, reserved_on)
        ]


def _can_free_now(facts: PodFacts, node: str, row: Row) -> bool:
    """Whether the pod's unneeded row may be freed without a fence."""
    return bool(facts.node) or row.state == "nominated" or is_revoked(facts, node, row)


def _reserved_on(rows: Mapping[str, Row], facts: PodFacts | None) -> str:
    """The node whose row reserves cards for the pod's successor; empty if there is none.

    The reservation counts once the pod is terminating or gone: a pod that is not evicted after all
    needs no second allocation. If two leaders planned the move to different nodes, the later plan
    counts.
    """
    if facts is not None and not (facts.node and facts.is_terminating):
        return ""
    moves = [(row.epoch, node) for node, row in rows.items() if row.move is not None]
    return max(moves)[1] if moves else ""


def _set_member(uids: set[str], uid: str, is_in: bool) -> None:
    if is_in:
        uids.add(uid)
    else:
        uids.discard(uid)
