"""Each project's use in the current month, from the records. Pure.

The usage books pass every record that they read or write; budgets are compared with the sums.
"""

from collections.abc import Mapping

from extender.api.kinds import GpuUsageSpec
from extender.api.months import month_of
from extender.usage.record import PROJECT


class MonthUse:
    """Sums by project and node pool, in milli-GPU-seconds."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Mapping[str, int]] = {}
        self._summed: tuple[str, dict[tuple[str, str], int]] = "", {}

    def note(self, spec: GpuUsageSpec) -> None:
        """Add a record, or replace an earlier version of it."""
        if spec.account == PROJECT:
            sums: dict[str, int] = {}
            for line in spec.lines:
                sums[line.node_pool] = sums.get(line.node_pool, 0) + sum(line.held)
            self._held[spec.day, spec.name] = sums
            self._summed = "", {}

    def forget_before(self, month: str) -> None:
        """Drop records of earlier months."""
        self._held = {key: sums for key, sums in self._held.items() if key[0] >= month}

    def used(self, now_s: int) -> dict[tuple[str, str], int]:
        """Use since the start of this time's month, by project and node pool. Read-only: the same
        object is returned until a record changes."""
        month = month_of(now_s)
        if self._summed[0] == month:
            return self._summed[1]
        found: dict[tuple[str, str], int] = {}
        for (day, project), sums in self._held.items():
            if day.startswith(month):
                for pool, milli_s in sums.items():
                    found[project, pool] = found.get((project, pool), 0) + milli_s
        self._summed = month, found
        return found
