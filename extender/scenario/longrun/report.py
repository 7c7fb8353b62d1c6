"""The report of a simulation, and the bars that a file sets.

GPU-hours and hours are floats, rounded to a thousandth; counts are integers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from extender.scenario.longrun.meter import Sums, total

_MILLI_HOURS: Final = 3_600_000
_ANY: Final = "*"


@dataclass(slots=True)
class SimulationReport:
    """The result of a simulation.

    `evictions_without_change` were decided although no job had arrived, ended or changed since the
    previous cycle: because of earlier decisions, or because time passed. `evicted_and_back` pods
    were evicted and ran again before such a change. `longest_unrest_s` is the longest time for
    which cycles kept deciding after one. `broken` has violated invariants.
    """

    id: str
    seconds: int
    queues: dict[str, Sums] = field(default_factory=dict)
    users: dict[tuple[str, str], Sums] = field(default_factory=dict)
    capacity: int = 0
    idle: int = 0
    idle_while_waiting: int = 0
    empty: int = 0
    cycles: int = 0
    evictions_without_change: int = 0
    evicted_and_back: int = 0
    longest_unrest_s: int = 0
    came_to_rest: bool = False
    broken: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report in the terms of its documentation."""
        everything = total(self.queues.values())
        stops = everything.evictions + everything.moves
        whole = {
            **_figures(everything),
            "capacityGpuHours": _gpu_hours(self.capacity * self.seconds),
            "idleGpuHours": _gpu_hours(self.idle),
            "idleWhileWaitingGpuHours": _gpu_hours(self.idle_while_waiting),
            "emptyNodeHours": _hours(self.empty),
            "cycles": self.cycles,
            "evictionsWithoutChange": self.evictions_without_change,
            "evictionsWithoutChangePercent": _percent(self.evictions_without_change, stops),
            "evictedAndBack": self.evicted_and_back,
            "longestUnrestHours": _hours(self.longest_unrest_s),
            "cameToRest": self.came_to_rest,
        }
        users: dict[str, dict[str, Any]] = {}
        for (queue, user), sums in self.users.items():
            if user:
                users[f"{queue}/{user}"] = _figures(sums)
        return {
            "id": self.id,
            "days": round(self.seconds / 86_400, 3),
            "total": whole,
            "queues": {name: _figures(sums) for name, sums in self.queues.items()},
            "users": users,
            "broken": self.broken,
            "missed": self.missed,
        }


def misses(
    report: dict[str, Any], at_most: dict[str, float], at_least: dict[str, float]
) -> Iterator[str]:
    """One sentence for each missed bar, and for each bar without a figure."""
    for bars, word, sign in ((at_most, "at most", 1), (at_least, "at least", -1)):
        for path, bar in bars.items():
            found = list(_follow(report, path))
            if not found:
                yield f"{path}: there is no such figure"
            for name, value in found:
                if (value - bar) * sign > 0:
                    yield f"{name}: {value:g}, expected {word} {bar:g}"


def _follow(report: dict[str, Any], path: str) -> Iterator[tuple[str, float]]:
    """The figures at the path `total.F`, `queues.NAME.F` or `users.NAME.F`; * is every name."""
    part, _, rest = path.partition(".")
    name, _, figure = rest.rpartition(".")
    of = {"": report["total"]} if part == "total" else report.get(part)
    if not isinstance(of, dict) or part not in ("total", "queues", "users"):
        return
    for key, figures in of.items():
        if name in (key, _ANY) and isinstance(figures.get(figure), int | float):
            yield ".".join(filter(None, (part, key, figure))), figures[figure]


def _figures(sums: Sums) -> dict[str, Any]:
    return {
        "arrived": sums.arrived,
        "ended": sums.ended,
        "waiting": sums.waiting,
        "owedGpuHours": _gpu_hours(sums.owed),
        "heldGpuHours": _gpu_hours(sums.held),
        "heldPercentOfOwed": _percent(sums.held, sums.owed),
        "deprivedGpuHours": _gpu_hours(sums.deprived),
        "deprivedPercent": _percent(sums.deprived, sums.owed),
        "lostGpuHours": _gpu_hours(sums.lost),
        "lostPercent": _percent(sums.lost, sums.held),
        "evictions": sums.evictions,
        "repeatedEvictions": sums.repeated,
        "moves": sums.moves,
        "longestWaitHours": _hours(sums.longest_wait_s),
        "longestWithoutHours": _hours(sums.longest_without_s),
    }


def _gpu_hours(milli_seconds: int) -> float:
    return round(milli_seconds / _MILLI_HOURS, 3)


def _hours(seconds: int) -> float:
    return round(seconds / 3600, 3)


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 3) if whole else 0.0
