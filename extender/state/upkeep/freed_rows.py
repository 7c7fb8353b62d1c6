"""Rows that may go while the ledger still has them.

The model goes on without them at once. The ledger loses them with the next write of their node, so
a card that is given again at once costs one write instead of two.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from extender.api.kinds import GpuNode, GpuNodeSpec, Row


class FreedRows:
    """By node, the ledger as the API server has it, and which of its rows the model leaves out."""

    def __init__(self) -> None:
        self.ledgers: dict[str, GpuNode] = {}
        self._freed: dict[str, dict[tuple[str, int, int], Row]] = {}

    def add(self, ledger: GpuNode, rows: Iterable[Row]) -> GpuNode:
        """Leave these rows out as well; returns the ledger as the model has it from now on."""
        freed = self._freed.setdefault(ledger.metadata.name, {})
        freed.update((row.identity, row) for row in rows)
        return self.strip(ledger)

    def strip(self, ledger: GpuNode) -> GpuNode:
        """The ledger as the model has it. Forgets freed rows that it does not have any more."""
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
        """The node's ledger is gone, or has none of the rows any more."""
        self.ledgers.pop(name, None)
        self._freed.pop(name, None)

    def rows(self) -> dict[str, list[Row]]:
        """What the ledger has to lose, by node."""
        return {name: list(freed.values()) for name, freed in self._freed.items()}
