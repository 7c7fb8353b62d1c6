"""How GpuNode events enter the model, and how freed rows leave it before the ledger's write."""

from collections.abc import Iterable, Mapping

from extender.api.events import Removed
from extender.api.kinds import GpuNode, Row
from extender.api.versions import is_older
from extender.state.fleet.fleet import Fleet
from extender.state.nodes import RowIndex
from extender.state.upkeep.freed_rows import FreedRows
from extender.state.upkeep.kept_pods import KeptPods


class LedgerIntake:
    """Stores the ledgers that the API server sends, without the freed rows."""

    def __init__(self, fleet: Fleet, rows: RowIndex, kept: KeptPods) -> None:
        self._fleet = fleet
        self._rows = rows
        self._kept = kept
        self._freed = FreedRows()

    def get(self, name: str) -> GpuNode | None:
        """The node's ledger as last seen, including freed rows that are not yet written."""
        return self._freed.ledgers.get(name) or self._fleet.gpu_nodes.get(name)

    def put(self, ledger: GpuNode) -> None:
        """Store the ledger, unless it is older than the stored one."""
        meta = ledger.metadata
        before = self._fleet.gpu_nodes.get(meta.name)
        same = before if before and before.metadata.uid == meta.uid else None
        if same and is_older(meta.resource_version, same.metadata.resource_version):
            return
        gpu_node = self._freed.strip(ledger)
        if same and _is_same_for_model(same, gpu_node):
            self._fleet.gpu_nodes[meta.name] = gpu_node
            return
        self._take(meta.name, before, gpu_node)

    def drop(self, gone: Removed) -> None:
        """Forget the ledger, if it is the stored one."""
        before = self._fleet.gpu_nodes.get(gone.name)
        if before is not None and before.metadata.uid == gone.uid:
            self._freed.drop(gone.name)
            self._take(gone.name, before, None)

    # -- rows that are freed ---------------------------------------------------------------------

    def free(self, rows_by_node: Mapping[str, Iterable[Row]]) -> None:
        """Remove these rows from the model."""
        for name, rows in rows_by_node.items():
            ledger = self.get(name)
            if ledger is not None:
                before = self._fleet.gpu_nodes[name]
                self._take(name, before, self._freed.add(ledger, rows))

    def freed(self) -> dict[str, list[Row]]:
        """By node, rows that are still in the ledger but no longer in the model."""
        return self._freed.rows()

    def take_back_freed(self) -> None:
        """Restore the freed rows."""
        for name, ledger in list(self._freed.ledgers.items()):
            self._freed.drop(name)
            self._take(name, self._fleet.gpu_nodes[name], ledger)

    def _take(self, name: str, before: GpuNode | None, after: GpuNode | None) -> None:
        self._fleet.set_ledger(name, after)
        old = {row.uid: row for row in before.spec.rows} if before else {}
        new = {row.uid: row for row in after.spec.rows} if after else {}
        self._rows.set_rows(name, new.values())
        for uid in old.keys() | new.keys():
            had, has = old.get(uid), new.get(uid)
            if had != has:
                if (had and had.move) or (has and has.move):
                    self._fleet.set_next_hold(name, uid, has)
                self._kept.refresh_rows(uid)


def _is_same_for_model(before: GpuNode, after: GpuNode) -> bool:
    """Whether no field differs that the model reads, as when only measured use was written."""
    return (
        before.spec == after.spec
        and before.status.devices == after.status.devices
        and before.status.foreign == after.status.foreign
        and before.metadata.labels == after.metadata.labels
    )
