"""What may not grow over hours: memory and files of the programs, rows, groups and events.

A sample is taken at each check point, where the load is within its quotas and everything that can
run is bound, so that samples are of like moments. Of the samples after the first third, which is
for caches to fill, the medians of the two halves are compared.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

#: Samples below which nothing is said.
FEWEST: Final = 6
#: By the last word of a series: the growth that passes, as a share and as an amount. Files are
#: sockets most of all, of which a client keeps as many as it has had requests at once; events are
#: kept for an hour whatever happens.
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
    """Samples of each series, in order; the last word of a series' name is its unit."""

    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, sample: Mapping[str, float]) -> None:
        """Take the samples of one check point."""
        for name, value in sample.items():
            self.series.setdefault(name, []).append(value)

    def findings(self) -> list[str]:
        """A line for each series that grew beyond what passes, or that has too few samples."""
        if not self.series:
            return ["nothing was sampled"]
        return [line for name, values in self.series.items() for line in _judge(name, values)]

    def lines(self) -> Iterable[str]:
        """A line for each series: its first and last samples, and its halves."""
        for name, values in self.series.items():
            before, after = _halves(values)
            yield (
                f"{name}: first {values[0]:g}, last {values[-1]:g}, most {max(values):g},"
                f" medians {before:g} and {after:g}, {len(values)} samples"
            )


def memory_mib(pid: int) -> float:
    """Resident memory of a process; 0 once it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20
    except OSError:
        return 0.0


def open_files(pid: int) -> int:
    """Files and sockets that a process has open; 0 once it is gone."""
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
    """The medians of the two halves of what comes after the first third."""
    settled = values[len(values) // 3 :]
    middle = len(settled) // 2
    return median(settled[:middle] or settled), median(settled[middle:])
