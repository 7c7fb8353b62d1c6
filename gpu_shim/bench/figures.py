"""Figures from runs on the card: durations, overlaps, delays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: (start, end) in nanoseconds of the card's clock.
Run = Sequence[int]


@dataclass(slots=True, frozen=True)
class Bar:
    """One figure and its required range, both ends included; None is no end."""

    figure: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure is in the range; NaN is not."""
        above = self.least is None or self.figure >= self.least
        return above and (self.most is None or self.figure <= self.most)

    def __str__(self) -> str:
        """The range in words."""
        if self.least is None:
            return f"at most {self.most:g} {self.unit}"
        if self.most is None:
            return f"at least {self.least:g} {self.unit}"
        return f"{self.least:g} to {self.most:g} {self.unit}"


@dataclass(slots=True, frozen=True)
class Line:
    """A measurement in words, and its bars, if any."""

    row: int
    what: str
    value: str
    bars: tuple[Bar, ...] = ()
    #: The number of samples; without any, the bars are not evaluated.
    n_samples: int = 1

    @property
    def bar(self) -> str:
        """Its bars in words."""
        return ", ".join(str(each) for each in self.bars)

    @property
    def is_good(self) -> bool | None:
        """Whether every bar is met; None without bars, and without samples."""
        if not self.bars or self.n_samples < 1:
            return None
        return all(each.is_met for each in self.bars)


def busy_ns(runs: Sequence[Run]) -> int:
    """Time in which at least one of the runs was active."""
    total, until = 0, 0
    for start, end in sorted((run[0], run[1]) for run in runs):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def overlap_ns(tenants: Mapping[str, Sequence[Run]]) -> int:
    """Time in which runs of two or more tenants were active."""
    alone = sum(busy_ns(runs) for runs in tenants.values())
    marks = sorted(
        mark
        for name, runs in tenants.items()
        for run in runs
        for mark in ((run[0], 1, name), (run[1], -1, name))
    )
    running, last, found = dict[str, int](), 0, 0
    for at, change, name in marks:
        if sum(n > 0 for n in running.values()) > 1:
            found += at - last
        running[name] = running.get(name, 0) + change
        last = at
    return min(found, alone)


def gaps_ns(tenants: Mapping[str, Sequence[Run]]) -> list[int]:
    """Idle times between a run of one tenant and the next of another."""
    ordered = sorted((run[0], run[1], name) for name, runs in tenants.items() for run in runs)
    return [
        max(0, after[0] - before[1]) for before, after in pairwise(ordered) if before[2] != after[2]
    ]


def parts_of_windows(
    tenants: Mapping[str, Sequence[Run]], length_ns: int, step_ns: int
) -> list[dict[str, float]]:
    """Each tenant's part of the time used, in every window of this length between first and last.

    Windows begin `step_ns` apart; the first two lengths are left out.
    """
    ends = [run[1] for runs in tenants.values() for run in runs]
    begins = [run[0] for runs in tenants.values() for run in runs]
    if not ends:
        return []
    found = list[dict[str, float]]()
    for begin in range(min(begins) + 2 * length_ns, max(ends) - length_ns + 1, step_ns):
        end = begin + length_ns
        used_ns = {
            name: busy_ns(
                [(max(run[0], begin), min(run[1], end)) for run in runs
                 if run[0] < end and run[1] > begin]
            )
            for name, runs in tenants.items()
        }  # fmt: skip
        if total_ns := sum(used_ns.values()):
            found.append({name: each / total_ns for name, each in used_ns.items()})
    return found


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies; 0 without values."""
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]
