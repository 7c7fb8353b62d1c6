"""How often forecasts hold: forecasts made during a replay of Philly, compared with the replay.

Jobs state the run times of the trace; a forecast does not know later arrivals.
`python -m tests.support.foretold --data FOLDER --days 1-61 --every 8` prints the shares.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from extender.lab.philly.replay import Replay
from extender.lab.philly.rules import ReplayPace, rule_named
from extender.lab.philly.trace import SECONDS_PER_DAY, WINDOW_START_S, PhillyTrace, load_trace
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot
from extender.view.ahead import HORIZON_S, Ahead
from extender.view.forecast import not_before
from extender.view.picture import Picture

#: Trace seconds between two cycles: an order of magnitude below the waits that are forecast.
CYCLE_S: Final = 30
#: Weeks with fewer forecasts of a tenant are not judged.
LEAST: Final = 30


@dataclass(slots=True)
class Foretold:
    """One forecast, in unix seconds: `start_s` is the predicted start (None: beyond the horizon),
    `started_s` the actual one (None: not started yet)."""

    key: str
    tenant: str
    made_s: int
    start_s: int | None
    started_s: int | None = None

    @property
    def has_held(self) -> bool:
        """Whether the job did not start before the predicted start."""
        assert self.start_s is not None
        assert self.started_s is not None
        return self.started_s >= not_before(self.made_s, self.start_s)

    @property
    def ratio(self) -> float:
        """Actual wait after the forecast, divided by the predicted wait."""
        assert self.start_s is not None
        assert self.started_s is not None
        return (self.started_s - self.made_s + 1) / (self.start_s - self.made_s + 1)

    @property
    def week(self) -> int:
        """Week of the window in which the forecast was made, from 0."""
        return (self.made_s - WINDOW_START_S) // (7 * SECONDS_PER_DAY)


@dataclass(slots=True)
class ForetellingReplay(Replay):
    """Replays the default policy and forecasts every `every_s`, if at most `most` jobs are
    pending."""

    every_s: int = 8 * 3600
    most: int = 600
    forecasts: list[Foretold] = field(default_factory=list)
    n_left_out: int = 0
    _open: dict[str, list[Foretold]] = field(default_factory=lambda: defaultdict(list))
    _look_s: int = 0

    def look(self, cell: Any, now_s: int) -> None:
        """Forecast the start of every pending job."""
        cluster = cell.cluster
        runs: dict[str, int] = {}
        workloads: dict[str, WorkloadView] = {}
        for key, entry in cluster.entries.items():
            runs[key] = entry.job.run_s - self._records[key].work.saved_s
            workloads[key] = entry.running or entry.waiting
        snapshot = Snapshot(
            now_s=now_s,
            nodes=cluster.nodes.copy(),
            pools=cluster.part.pools,
            queues=cluster.part.queues,
            workloads=workloads,
        )
        picture = Picture(snapshot, self.rule.settings)
        starts = Ahead(picture, lambda workload: runs[workload.key]).run()
        for key, entry in cluster.entries.items():
            if entry.running is None:
                told = Foretold(key, entry.job.tenant, now_s, starts.get(key))
                self.forecasts.append(told)
                self._open[key].append(told)

    def _run_cycle(self, cell: Any, now_s: int) -> None:
        Replay._run_cycle(self, cell, now_s)
        cluster = cell.cluster
        for key in [key for key in self._open if key in cluster.entries]:
            if cluster.entries[key].running is not None:
                for told in self._open.pop(key):
                    told.started_s = now_s
        if now_s >= self._look_s and cluster.n_waiting:
            self._look_s = now_s + self.every_s
            if cluster.n_waiting <= self.most:
                self.look(cell, now_s)
            else:
                self.n_left_out += 1


def foretell(trace: PhillyTrace, every_s: int, most: int) -> ForetellingReplay:
    """The replay, with all its forecasts."""
    replay = ForetellingReplay(
        trace, rule_named("ballast"), ReplayPace(CYCLE_S), every_s=every_s, most=most
    )
    replay.run()
    return replay


def hit_rates(forecasts: Iterable[Foretold]) -> dict[tuple[str, int], tuple[int, int]]:
    """(held, all) by tenant and week, of jobs that have started and for which a start was found."""
    held: Counter[tuple[str, int]] = Counter()
    made: Counter[tuple[str, int]] = Counter()
    for each in forecasts:
        if each.start_s is not None and each.started_s is not None:
            made[each.tenant, each.week] += 1
            held[each.tenant, each.week] += each.has_held
    return {key: (held[key], n) for key, n in sorted(made.items())}


def main() -> None:
    """Replay, and print how often forecasts held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--days", default="1-14")
    parser.add_argument("--every", type=float, default=8, help="hours between two looks")
    parser.add_argument("--most", type=int, default=600, help="jobs that wait at a look")
    given = parser.parse_args()
    first, _, last = given.days.partition("-")
    trace = load_trace(given.data, given.nodes, (int(first), int(last or first)))
    replay = foretell(trace, int(given.every * 3600), given.most)
    rates = hit_rates(replay.forecasts)
    n_held, n = (sum(pair[i] for pair in rates.values()) for i in (0, 1))
    late = sum(each.start_s is None for each in replay.forecasts)
    print(f"{n_held} of {n} held ({100 * n_held / max(n, 1):.1f} %)")
    print(f"later than {HORIZON_S // 3600} h: {late}; looks left out: {replay.n_left_out}")
    for (tenant, week), (held, made) in rates.items():
        if made >= LEAST:
            print(f"week {week}  {tenant:8} {100 * held / made:5.1f} % of {made}")
    due = [e for e in replay.forecasts if e.start_s is not None and e.started_s is not None]
    ratios = sorted(each.ratio for each in due)
    for percent in (1, 5, 10, 25, 50, 75, 90, 95, 99):
        ratio = ratios[(len(ratios) - 1) * percent // 100]
        print(f"wait / foretold, {percent} %: {ratio:.2f}")


if __name__ == "__main__":
    main()
