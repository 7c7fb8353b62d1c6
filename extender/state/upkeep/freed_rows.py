"""Rows that are freed in the model but still in the ledger.

The model drops them at once; the ledger drops them with the next write of their node. So a card
that is allocated again at once costs one write instead of two.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from extender.api.kinds import GpuNode, GpuNodeSpec, Row


class FreedRows:
    """By node, the ledger as the API server has it, and its rows that the model leaves out."""

    def __init__(self) -> None:
        self.ledgers: dict[str, GpuNode] = {}
        self._freed: dict[str, dict[tuple[str, int, int], Row]] = {}

    def add(self, ledger: GpuNode, rows: Iterable[Row]) -> GpuNode:
        """Leave these rows out as well; returns the ledger as the model has it now."""
        freed = self._freed.setdefault(ledger.metadata.name, {})
        freed.update((row.identity, row) for row in rows)
        return self.strip(ledger)

    def strip(self, ledger: GpuNode) -> GpuNode:
        """The ledger without freed rows. Forgets freed rows that are no longer in the ledger."""
        name, spec = ledger.metadata.name, ledger.spec
        freed = self._freed.get(name)
        if freed is None:
            return ledger
        left = {row.identity: row for row in spec.rows if row.identity in freed}
        if not left:
            self.drop(name)
            return ledger
        self.ledgers[name], self._freed[name] = ledger, left
        rows = [row for row in spec.rows if row.identity not in left]
        return replace(ledger, spec=GpuNodeSpec.of(rows, spec.changed_at))

    def drop(self, name: str) -> None:
        """The node's ledger is deleted, or no longer has any of the rows."""
        self.ledgers.pop(name, None)
        self._freed.pop(name, None)

    def rows(self) -> dict[str, list[Row]]:
        """By node, the rows that the ledger still has to drop."""
        return {name: list(freed.values()) for name, freed in self._freed.items()}
