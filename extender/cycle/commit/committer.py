"""Carries out a plan in the one order of writes that may be interrupted anywhere.

Rows come first, together with freed rows, in one write per node. Beside the next cycles come the
releases of workloads that have all their rows, and the evictions. A pod is evicted only while
nominated rows reserve its cards for the beneficiary, and the new cards of every moved pod. If any
row of a workload is refused, the workload is planned anew.
"""

import time
from collections.abc import Iterable, Sequence, Set
from typing import Final

import structlog

from extender.api.events import Upserted
from extender.api.kinds import Row
from extender.cycle import metrics
from extender.cycle.commit.moves import HandOver
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.pods.releaser import Releaser
from extender.cycle.pods.writer import Release
from extender.cycle.recovery.repair import Repairs
from extender.cycle.rows import kept_row, placed_row
from extender.kube.errors import KubeError
from extender.ledger.writer import Ledger, RowChange
from extender.policy.plan import Admission, Plan, leaves_with
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot

#: A workload may have two admissions, one with free cards and one that waits for victims.
_NOMINATED: Final = "nominated"
#: Most rounds of handing reservations to successors in one cycle, while pods keep coming.
_HAND_OVERS: Final = 5

log = structlog.get_logger(__name__)


class Committer:
    """Carries out plans and repairs."""

    def __init__(
        self, state: ClusterState, ledger: Ledger, releaser: Releaser, evictor: Evictor
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._releaser = releaser
        self._evictor = evictor
        self._hand_over = HandOver(state)
        self._overdue: Set[str] = frozenset()
        #: By key, why changes of the current plan could not be written.
        self._failed: dict[str, KubeError] = {}

    async def repair(self, repairs: Repairs) -> None:
        """Write lost rows, then queue the pods of complete plans for release.

        The model drops the freed rows at once. The ledger drops them with the plan of this cycle
        or, if none is carried out, at the beginning of the next.
        """
        changes = [
            RowChange(f"restore {row.uid}", rows={node: [row]})
            for node, rows in repairs.restores.items()
            for row in rows
        ]
        if left := self._state.freed_rows():
            changes.append(RowChange("upkeep", frees=left))
        if changes:
            await self._write(changes)
        self._state.free_rows(repairs.frees)
        self._overdue = frozenset(repairs.overdue)
        held = self._still_held()
        for project, releases in repairs.releases:
            if held.isdisjoint(each.pod.uid for each in releases):
                self._releaser.start(project, releases)

    async def hand_over(self) -> None:
        """Give reservations of moved pods to the successors that have appeared.

        Looks again after each write, and ends without an await when no successor is left. So a
        snapshot taken right after it has no pending pod with a reservation.
        """
        for _ in range(_HAND_OVERS):
            changes = self._hand_over.changes(int(time.time()))
            if not changes:
                return
            await self._write(changes)

    async def carry_out(self, plan: Plan, snapshot: Snapshot, epoch: int) -> KubeError | None:
        """Carry out the plan; workloads that fit on free cards come before those with victims.

        Returns the error if no row could be written; None if any was written, or refused.
        """
        self._failed.clear()
        first, others = _split_by_victims(plan.admissions)
        changes = self._changes_of(plan, snapshot, epoch)
        keys = {*map(_key_of, first), *plan.drops}
        now = [change for change in changes if change.key in keys]
        later = [change for change in changes if change.key not in keys]
        now = self._with_upkeep(now, first, kept_for=later)
        await self._place(first, now, epoch, snapshot.now_s)
        if later:
            later = self._with_upkeep(later, others)
        lost = await self._place(others, later, epoch, snapshot.now_s)
        without_rows = {
            key.removesuffix(_nominated("")) for key in lost if key.endswith(_nominated(""))
        }
        self._evictor.start(plan, snapshot, without_rows)
        failed = [self._failed.get(change.key) for change in changes]
        return failed[0] if failed and all(failed) else None

    def _with_upkeep(
        self,
        changes: Sequence[RowChange],
        admissions: Iterable[Admission],
        kept_for: Iterable[RowChange] = (),
    ) -> list[RowChange]:
        """The changes and the pending upkeep: on their nodes, for the admitted pods, and on all
        other nodes. The nodes of the later changes `kept_for` get their upkeep with them."""
        freed = self._state.freed_rows()
        admitted = {each.pod.uid for admission in admissions for each in admission.placements}
        nodes = {node for change in changes for node in change.rows.keys() | change.frees.keys()}
        nodes.update(n for n, rows in freed.items() if any(row.uid in admitted for row in rows))
        away = {node for change in kept_for for node in change.rows} - nodes
        nodes |= (freed.keys() | self._overdue) - away
        frees = {node: rows for node, rows in freed.items() if node in nodes}
        unmarked = self._state.rows_to_mark_bound()
        bound = {node: set(unmarked[node]) for node in nodes if node in unmarked}
        if not frees and not bound:
            return list(changes)
        return [*changes, RowChange("upkeep", frees=frees, bound=bound)]

    async def _place(
        self,
        admissions: Iterable[Admission],
        changes: Sequence[RowChange],
        epoch: int,
        now_s: int,
    ) -> set[str]:
        """Write the rows, then queue pods with written rows for release; returns failed keys."""
        lost: set[str] = set()
        if changes:
            lost = await self._write(changes)
        # If an earlier row of a pod is still in the ledger, the pod would be bound with two rows.
        held = self._still_held()
        released = [
            admission
            for admission in admissions
            if admission.state == "reserved"
            and _key_of(admission) not in lost
            and held.isdisjoint(each.pod.uid for each in admission.placements)
        ]
        for admission in released:
            releases = [Release(each.pod, each.node, epoch) for each in admission.placements]
            self._releaser.start(admission.workload.project, releases)
            _count_waits(admission, now_s)
        return lost

    def _still_held(self) -> set[str]:
        """UIDs of pods with a freed row that is still in the ledger."""
        return {row.uid for rows in self._state.freed_rows().values() for row in rows}

    def _changes_of(self, plan: Plan, snapshot: Snapshot, epoch: int) -> list[RowChange]:
        """The plan's rows: placements of admissions, and reservations for moved pods."""
        made = {"epoch": epoch, "reserved_at": snapshot.now_s}
        rows: dict[str, dict[str, list[Row]]] = {}
        for admission in plan.admissions:
            of = rows.setdefault(_key_of(admission), {})
            for placement in admission.placements:
                row = placed_row(admission.workload, placement, state=admission.state, **made)
                of.setdefault(placement.node, []).append(row)
        for move in plan.moves:
            placement, maker = move.placement, self._state.maker_of(move.pod)
            if maker is not None:
                of = rows.setdefault(_nominated(leaves_with(move)), {})
                row = kept_row(snapshot.workloads[move.workload], placement, maker.uid, **made)
                of.setdefault(placement.node, []).append(row)
        changes = [RowChange(key, rows=of) for key, of in rows.items() if of]
        drops = [self._drop(snapshot.workloads[key]) for key in plan.drops]
        return changes + [change for change in drops if change.frees]

    async def _write(self, changes: Sequence[RowChange]) -> set[str]:
        """Commit to the ledger; returns the keys of changes that were not written."""
        outcome = await self._ledger.commit(changes)
        for node in outcome.written.values():
            self._state.apply(Upserted(node))
        for key, refused in outcome.refused.items():
            log.info("rows refused", workload=key, reason=refused.reason, detail=refused.detail)
        if failed := outcome.failed:
            key, error = next(iter(failed.items()))
            log.warning("rows not written", n_failed=len(failed), first=key, error=str(error))
            self._failed |= failed
        return outcome.refused.keys() | outcome.failed.keys()

    def _drop(self, workload: WorkloadView) -> RowChange:
        """Free the nominated rows of the workload."""
        frees: dict[str, list[Row]] = {}
        for pod in workload.pods:
            row = self._state.row_of(pod)
            if pod.state == "nominated" and row is not None:
                frees.setdefault(pod.node, []).append(row)
        return RowChange(workload.key, frees=frees)


def _count_waits(admission: Admission, now_s: int) -> None:
    waits = metrics.POD_WAITS.labels(admission.workload.project)
    for placement in admission.placements:
        waits.observe(max(0, now_s - placement.pod.created_at))


def _split_by_victims(admissions: Iterable[Admission]) -> tuple[list[Admission], list[Admission]]:
    """Workloads without a nominated row, neither now nor in the plan; and the other workloads."""
    states: dict[str, set[str]] = {}
    for admission in admissions:
        of = states.setdefault(admission.workload.key, set())
        of.add(admission.state)
        of.update(each.pod.state for each in admission.placements)
    first: list[Admission] = []
    others: list[Admission] = []
    for admission in admissions:
        waits = _NOMINATED in states[admission.workload.key]
        (others if waits else first).append(admission)
    return first, others


def _key_of(admission: Admission) -> str:
    """The key of the admission's rows: a workload may have reserved and nominated rows."""
    return f"{admission.workload.key} {admission.state}"


def _nominated(workload: str) -> str:
    """The key of all rows that must be written before a victim is evicted for the workload."""
    return f"{workload} {_NOMINATED}"
