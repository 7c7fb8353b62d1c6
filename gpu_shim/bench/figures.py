"""Figures from runs on the card: how long, how much of it together, how late."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: (start, end) in nanoseconds of the card's clock.
Run = Sequence[int]


@dataclass(slots=True, frozen=True)
class Line:
    """One figure: what was measured, its value, and the bar it is held to where there is one."""

    row: int
    what: str
    value: str
    bar: str = ""
    #: What the value is made of; none at all tells nothing of the bar.
    n_samples: int = 1


def busy_ns(runs: Sequence[Run]) -> int:
    """Time in which at least one of them ran."""
    total, until = 0, 0
    for start, end in sorted((run[0], run[1]) for run in runs):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def overlap_ns(tenants: Mapping[str, Sequence[Run]]) -> int:
    """Time in which runs of two tenants or more were on the card."""
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
    """Time in which nothing ran between a run of one tenant and the next of another."""
    ordered = sorted((run[0], run[1], name) for name, runs in tenants.items() for run in runs)
    return [
        max(0, after[0] - before[1]) for before, after in pairwise(ordered) if before[2] != after[2]
    ]


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of them lies; 0 where there are none."""
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]
