"""Writes the ledger: rows of GpuNodes, by compare-and-swap, one write per node and batch.

A stale view or a second writer costs a conflict and another read, never a double booking:
`extender.ledger.rows` checks each write against the exact version that it replaces. If the answer
to a write is lost, the node is read again. What can't be completed or undone stays in the ledger,
and `ClusterState.unfinished()` finds it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from msgspec import to_builtins
from prometheus_client import Counter

from extender.api.kinds import GpuNode, GpuNodeSpec, Row
from extender.api.reasons import Reason, Refused
from extender.api.versions import version_number
from extender.kube.backoff import Backoff
from extender.kube.client import Client
from extender.kube.errors import (
    Conflict,
    KubeError,
    NotFound,
    NotLeading,
    Throttled,
    Unavailable,
    Undecodable,
)
from extender.kube.resources import GPU_NODES
from extender.ledger.rows import NodeBatch, restore_rows, settle

#: With n writers on one node, the slowest needs about n tries; more than this is a storm.
_MAX_TRIES: Final = 20
#: Lost answers before a node is given up; each may have cost the client's deadline.
_MAX_LOST: Final = 4
#: From this many remembered nodes on, old ones are forgotten whenever their number has doubled.
_TIDY_FROM: Final = 256
_BASE_S: Final = 0.01
_CAP_S: Final = 0.25

#: One empty entry clears `managedFields`, so the API server stops recording which writer set which
#: field. Nobody applies a GpuNode, and the record costs 2.8 of the 6.3 ms of CPU of each write.
_UNTRACKED: Final[tuple[dict[str, object]]] = ({},)

#: The node's new rows, given its current version; called again if the node has changed.
Edit = Callable[[GpuNode], Sequence[Row] | Refused]

_WRITES = Counter("ballast_ledger_writes_total", "Rows of a node written by compare-and-swap.")
_CONFLICTS = Counter("ballast_ledger_conflicts_total", "Writes refused because of a newer version.")
_TAKEBACKS = Counter("ballast_ledger_takebacks_total", "Changes whose rows were taken back.")
_LEFTOVERS = Counter("ballast_ledger_leftovers_total", "Changes that could not be taken back.")
_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class RowChange:
    """One change. Its `rows`, by node, are written on all their nodes or on none.

    `frees` are rows by node to remove (if unchanged), `bound` are UIDs by node of rows to mark as
    bound; both are facts, and are written even if `rows` are refused. `key` is unique in a commit.
    """

    key: str
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    frees: Mapping[str, Collection[Row]] = field(default_factory=dict)
    bound: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(slots=True)
class CommitOutcome:
    """The result of a commit; a change that is in none of the maps was written in full.

    `refused` and `failed` (the API server did not answer, or returned an error) are by change: none
    of their rows are in the ledger, unless `leftover` has the change, which could not be undone.
    `written` is the newest version of every node that was written or read.
    """

    refused: dict[str, Refused] = field(default_factory=dict)
    failed: dict[str, KubeError] = field(default_factory=dict)
    leftover: set[str] = field(default_factory=set)
    written: dict[str, GpuNode] = field(default_factory=dict)


class Ledger:
    """The only writer of rows in this process. `known` returns a node as the watch last had it."""

    def __init__(
        self, client: Client, known: Callable[[str], GpuNode | None], *, base_s: float = _BASE_S
    ) -> None:
        self._client = client
        self._known = known
        self._base_s = base_s
        self._seen: dict[str, GpuNode] = {}
        self._tidy_at = _TIDY_FROM

    async def change(self, node: str, edit: Edit) -> GpuNode | Refused:
        """The node after `edit` was written, or why `edit` refused its live version.

        If `edit` changes nothing, nothing is written. `edit` must be idempotent, because after a
        lost answer it may see its own rows. Raises KubeError.
        """
        current, is_live = self._newest(node), False
        backoff = Backoff(self._base_s, _CAP_S)
        failure: KubeError | None = None
        n_lost = 0
        for _ in range(_MAX_TRIES):
            try:
                if current is None:
                    current, is_live = await self._read(node), True
                rows = edit(current)
                if isinstance(rows, Refused) or _same_rows(rows, current.spec.rows):
                    if is_live:
                        return rows if isinstance(rows, Refused) else current
                    current = None
                    continue
                return await self._write(current, rows)
            except NotFound:
                return Refused(Reason.UNKNOWN_NODE, f"{node} has no GpuNode")
            except Conflict as error:
                failure, current = error, None
                _CONFLICTS.inc()
            except (Throttled, Unavailable, Undecodable) as error:
                # The write may have succeeded; the live read tells.
                failure, current = error, None
                n_lost += 1
                if n_lost == _MAX_LOST:
                    break
            await asyncio.sleep(backoff.next_s())
        raise failure or Conflict(f"{node}: its rows changed at every one of {_MAX_TRIES} tries")

    async def commit(self, changes: Sequence[RowChange]) -> CommitOutcome:
        """Write all `changes`, one write per node; undo those that were written only in part.

        Repeating a commit writes nothing. Raises NotLeading at once if this process may no longer
        write; then nothing is undone.
        """
        writes = _split(changes)
        errors = await self._write_all(writes)
        outcome = CommitOutcome()
        for node, write in writes.items():
            outcome.refused.update(write.refused)
            if node in errors:
                outcome.failed.update(dict.fromkeys(write.changes, errors[node]))
        for key in outcome.failed:
            outcome.refused.pop(key, None)
        lost = outcome.refused.keys() | outcome.failed.keys()
        outcome.leftover = await self._take_back(writes, lost)
        outcome.written = {node: self._seen[node] for node in writes if node in self._seen}
        return outcome

    # -- one node ----------------------------------------------------------------------------

    def _newest(self, node: str) -> GpuNode | None:
        """The newest version we have: our last write or read, until the watch is past it."""
        known, seen = self._known(node), self._seen.get(node)
        if seen is None or known is None:
            return known
        ours, theirs = seen.metadata, known.metadata
        is_past = version_number(theirs.resource_version) >= version_number(ours.resource_version)
        if theirs.uid != ours.uid or is_past:
            del self._seen[node]
            return known
        return seen

    def _note(self, node: str, version: GpuNode) -> GpuNode:
        """Remember the newest version; now and then, forget those that the watch is past, and
        deleted nodes: an autoscaler may make a hundred thousand names."""
        self._seen[node] = version
        if len(self._seen) >= self._tidy_at:
            for name in list(self._seen):
                if name != node and self._newest(name) is None:
                    del self._seen[name]
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._seen))
        return version

    async def _read(self, node: str) -> GpuNode:
        return self._note(node, await self._client.get(GPU_NODES, node))

    async def _write(self, current: GpuNode, rows: Sequence[Row]) -> GpuNode:
        node = current.metadata.name
        # Never earlier than the last change, whatever the writers' clocks say.
        changed_at = max(int(time.time()), current.spec.changed_at)
        patch = {
            "metadata": {
                "resourceVersion": current.metadata.resource_version,
                "managedFields": _UNTRACKED,
            },
            "spec": to_builtins(GpuNodeSpec.of(rows, changed_at)),
        }
        written = self._note(node, await self._client.merge_patch(GPU_NODES, node, patch))
        _WRITES.inc()
        return written

    # -- many nodes --------------------------------------------------------------------------

    async def _write_all(self, writes: "Mapping[str, _NodeWrite]") -> dict[str, KubeError]:
        """Write every node in parallel; returns the errors by node."""
        outcomes = await asyncio.gather(
            *(self.change(node, write.edit) for node, write in writes.items()),
            return_exceptions=True,
        )
        errors: dict[str, KubeError] = {}
        for (node, write), outcome in zip(writes.items(), outcomes, strict=True):
            if isinstance(outcome, NotLeading) or not isinstance(outcome, KubeError):
                if isinstance(outcome, BaseException):
                    raise outcome
                if isinstance(outcome, Refused):
                    write.refuse_all(outcome)
            else:
                errors[node] = outcome
        return errors

    async def _take_back(
        self, writes: "Mapping[str, _NodeWrite]", lost: Collection[str]
    ) -> set[str]:
        """Undo the `lost` changes, node by node; returns those that may remain."""
        undos = {node: _Undo(write, lost) for node, write in writes.items()}
        undos = {node: undo for node, undo in undos.items() if undo.changes}
        if not undos:
            return set()
        outcomes = await asyncio.gather(
            *(self.change(node, undo.edit) for node, undo in undos.items()),
            return_exceptions=True,
        )
        leftover: set[str] = set()
        failed: list[tuple[str, KubeError]] = []
        for (node, undo), outcome in zip(undos.items(), outcomes, strict=True):
            if isinstance(outcome, KubeError) and not isinstance(outcome, NotLeading):
                leftover.update(undo.changes)
                failed.append((node, outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
        if failed:
            node, error = failed[0]
            _log.warning(
                "rows were not taken back", n_nodes=len(failed), first=node, error=str(error)
            )
        taken = {key for undo in undos.values() for key in undo.changes}
        _TAKEBACKS.inc(len(taken - leftover))
        _LEFTOVERS.inc(len(leftover))
        return leftover


class _NodeWrite:
    """The part of a commit for one node, and the result of its last try."""

    def __init__(self) -> None:
        self.batch = NodeBatch()
        self.changes: dict[str, None] = {}
        self.refused: dict[str, Refused] = {}
        # Kept over tries: after a lost answer, added rows look as if they existed before.
        self.replaced: dict[str, dict[str, Row | None]] = {}

    def edit(self, current: GpuNode) -> Sequence[Row]:
        settled = settle(current, self.batch)
        self.refused = dict(settled.refused)
        for change, before in settled.replaced.items():
            self.replaced.setdefault(change, {}).update(before)
        return settled.rows

    def refuse_all(self, refused: Refused) -> None:
        """Refuse all changes: the node has no ledger, so no row was added or replaced."""
        self.refused = {change: refused for change, _ in self.batch.adds}
        self.replaced = {}


class _Undo:
    """What to undo on one node for changes that failed on another."""

    def __init__(self, write: _NodeWrite, lost: Collection[str]) -> None:
        self.changes = {key for key in lost if write.replaced.get(key)}
        self._added = [row for key, row in write.batch.adds if key in self.changes]
        self._before = {
            uid: row for key in self.changes for uid, row in write.replaced[key].items()
        }

    def edit(self, current: GpuNode) -> Sequence[Row]:
        return restore_rows(tuple(current.spec.rows), self._added, self._before)


def _split(changes: Iterable[RowChange]) -> dict[str, _NodeWrite]:
    """The changes by node."""
    writes: dict[str, _NodeWrite] = {}

    def on(node: str, change: RowChange) -> NodeBatch:
        write = writes.setdefault(node, _NodeWrite())
        write.changes[change.key] = None
        return write.batch

    for change in changes:
        for node, freed in change.frees.items():
            on(node, change).frees.update(row.identity for row in freed)
        for node, uids in change.bound.items():
            on(node, change).bound.update(uids)
        for node, rows in change.rows.items():
            on(node, change).adds.extend((change.key, row) for row in rows)
    return writes


def _same_rows(rows: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether both hold the same rows, in any order."""
    return len(rows) == len(others) and {r.uid: r for r in rows} == {r.uid: r for r in others}
