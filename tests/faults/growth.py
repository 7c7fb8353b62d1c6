"""Detects growth over hours: memory and files of the programs, rows, groups and events.

Samples are taken at check points, where the load is within its quotas and all pods that can run are
bound, so that they are comparable. The first third is skipped, since caches fill; of the rest, the
medians of both halves are compared.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

#: The fewest samples that are judged.
FEWEST: Final = 6
#: Last word of a series -> allowed growth, as a ratio and as an amount. Most files are sockets, of
#: which a client keeps as many as it had parallel requests; events are kept for an hour.
ALLOWED: Final[Mapping[str, tuple[float, float]]] = {
    "MiB": (0.05, 2.0),
    "files": (0.10, 40.0),
    "rows": (0.10, 8.0),
    "groups": (0.10, 4.0),
    "events": (0.25, 200.0),
}
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Growth:
    """Samples by series, in order; the last word of a series' name is its unit."""

    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, sample: Mapping[str, float]) -> None:
        """Add the samples of one check point."""
        for name, value in sample.items():
            self.series.setdefault(name, []).append(value)

    def findings(self) -> list[str]:
        """A line for each series that grew too much or has too few samples."""
        if not self.series:
            return ["nothing was sampled"]
        return [line for name, values in self.series.items() for line in _judge(name, values)]

    def lines(self) -> Iterable[str]:
        """A line for each series: its first and last samples, and the medians of its halves."""
        for name, values in self.series.items():
            before, after = _halves(values)
            yield (
                f"{name}: first {values[0]:g}, last {values[-1]:g}, most {max(values):g},"
                f" medians {before:g} and {after:g}, {len(values)} samples"
            )


def memory_mib(pid: int) -> float:
    """Resident memory of a process; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20
    except OSError:
        return 0.0


def open_files(pid: int) -> int:
    """Number of open files and sockets of a process; 0 once it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _judge(name: str, values: list[float]) -> Iterable[str]:
    if len(values) < FEWEST:
        yield f"{name}: {len(values)} samples are too few, {FEWEST} are needed"
        return
    share, amount = ALLOWED[name.rsplit(maxsplit=1)[-1]]
    before, after = _halves(values)
    if after > before * (1 + share) + amount:
        yield f"{name} grew from {before:g} to {after:g}"


def _halves(values: list[float]) -> tuple[float, float]:
    """The medians of the two halves of the samples after the first third."""
    settled = values[len(values) // 3 :]
    middle = len(settled) // 2
    return median(settled[:middle] or settled), median(settled[middle:])
