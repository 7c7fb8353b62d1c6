"""A plan becomes writes, in the one order that is safe to be cut off anywhere.

Rows first, with those that are freed, one write per node; then, beside the next cycles, the gates
of workloads that have all their rows, and evictions, each only while nominated rows hold the place
it makes and the place of what is moved. If rows of a workload were refused, the workload is planned
anew.
"""

import time
from collections.abc import Iterable, Mapping, Sequence, Set
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
from extender.cycle.rows import kept_row, row_of
from extender.kube.errors import KubeError
from extender.ledger.writer import Ledger, RowChange
from extender.policy.plan import Admission, Plan, leaves_with
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot

#: Admissions of one workload differ in their state: some places may be free and others left.
_NOMINATED: Final = "nominated"
#: Times that kept places are handed over in one cycle, while pods come.
_HAND_OVERS: Final = 5

log = structlog.get_logger(__name__)


class Committer:
    """Carries plans and repairs out."""

    def __init__(
        self, state: ClusterState, ledger: Ledger, releaser: Releaser, evictor: Evictor
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._releaser = releaser
        self._evictor = evictor
        self._hand_over = HandOver(state)
        self._bound: Mapping[str, Sequence[str]] = {}
        self._overdue: Set[str] = frozenset()
        #: Why changes could not be written, by their keys, since the plan was begun.
        self._failed: dict[str, KubeError] = {}

    async def repair(self, repairs: Repairs) -> None:
        """Write lost rows, then queue the pods of plans that are whole for release.

        The model goes on without the rows that may go. They leave the ledger with the plan of this
        cycle, or, if none was carried out, at the beginning of the next.
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
        self._bound, self._overdue = repairs.bound, frozenset(repairs.overdue)
        held = self._still_held()
        for project, releases in repairs.releases:
            if held.isdisjoint(each.pod.uid for each in releases):
                self._releaser.start(project, releases)

    async def hand_over(self) -> None:
        """Hand kept places to the successors that have come for them.

        Looks again after each write, and ends without an await when no successor is left: a
        snapshot that is taken at once shows no pod as waiting while a place is kept for it.
        """
        for _ in range(_HAND_OVERS):
            changes = self._hand_over.changes(int(time.time()))
            if not changes:
                return
            await self._write(changes)

    async def carry_out(self, plan: Plan, snapshot: Snapshot, epoch: int) -> KubeError | None:
        """Do what the plan says; what takes free places goes before all that waits for victims.

        Returns why none of its rows could be written; None where any was, or was refused.
        """
        self._failed.clear()
        first, others = _in_order(plan.admissions)
        changes = self._changes_of(plan, snapshot, epoch)
        keys = {*map(_key_of, first), *plan.drops}
        now = [change for change in changes if change.key in keys]
        later = [change for change in changes if change.key not in keys]
        now = self._with_upkeep(now, first, kept_for=later)
        await self._place(first, now, epoch, snapshot.now_s)
        if later:
            later = self._with_upkeep(later, others)
        lost = await self._place(others, later, epoch, snapshot.now_s)
        without_place = {
            key.removesuffix(_nominated("")) for key in lost if key.endswith(_nominated(""))
        }
        self._evictor.start(plan, snapshot, without_place)
        failed = [self._failed.get(change.key) for change in changes]
        return failed[0] if failed and all(failed) else None

    def _with_upkeep(
        self,
        changes: Sequence[RowChange],
        admissions: Iterable[Admission],
        kept_for: Iterable[RowChange] = (),
    ) -> list[RowChange]:
        """The changes with what else there is to do: on their nodes, for their pods, and on all
        other nodes but those of `kept_for`, which have their turn with these."""
        freed = self._state.freed_rows()
        admitted = {each.pod.uid for admission in admissions for each in admission.placements}
        nodes = {node for change in changes for node in change.rows.keys() | change.frees.keys()}
        nodes.update(n for n, rows in freed.items() if any(row.uid in admitted for row in rows))
        away = {node for change in kept_for for node in change.rows} - nodes
        nodes |= (freed.keys() | self._overdue) - away
        frees = {node: rows for node, rows in freed.items() if node in nodes}
        bound = {node: uids for node, uids in self._bound.items() if node in nodes}
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
        """Write the rows, then queue the pods whose rows landed; the keys of those that did not."""
        lost: set[str] = set()
        if changes:
            lost = await self._write(changes)
        # A pod whose earlier row is still there would be bound with two.
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
        if released:
            n_pods = sum(len(admission.placements) for admission in released)
            log.info("releasing pods", pods=n_pods, workloads=len(released))
        return lost

    def _still_held(self) -> set[str]:
        """UIDs of pods that have a row in the ledger which may go."""
        return {row.uid for rows in self._state.freed_rows().values() for row in rows}

    def _changes_of(self, plan: Plan, snapshot: Snapshot, epoch: int) -> list[RowChange]:
        """The plan's rows: places of admissions, with those that are kept for what moves."""
        made = {"epoch": epoch, "reserved_at": snapshot.now_s}
        rows: dict[str, dict[str, list[Row]]] = {}
        for admission in plan.admissions:
            of = rows.setdefault(_key_of(admission), {})
            for placement in admission.placements:
                row = row_of(admission.workload, placement, state=admission.state, **made)
                of.setdefault(placement.node, []).append(row)
        for move in plan.moves:
            placement, owner = move.placement, self._state.owner_of(move.placement.pod)
            if owner:
                of = rows.setdefault(_nominated(leaves_with(move)), {})
                row = kept_row(snapshot.workloads[move.workload], placement, owner, **made)
                of.setdefault(placement.node, []).append(row)
        changes = [RowChange(key, rows=of) for key, of in rows.items() if of]
        drops = [self._drop(snapshot.workloads[key]) for key in plan.drops]
        return changes + [change for change in drops if change.frees]

    async def _write(self, changes: Sequence[RowChange]) -> set[str]:
        """Commit to the ledger; returns the keys of changes that did not land."""
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
        """Give up the places a workload holds for itself."""
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


def _in_order(admissions: Iterable[Admission]) -> tuple[list[Admission], list[Admission]]:
    """Workloads all of whose places are free and were kept for none of their pods; the others."""
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
    """A workload may get some places at once and others when victims are gone."""
    return f"{admission.workload.key} {admission.state}"


def _nominated(workload: str) -> str:
    """The key of all places that must be held before a victim leaves for the workload."""
    return f"{workload} {_NOMINATED}"
