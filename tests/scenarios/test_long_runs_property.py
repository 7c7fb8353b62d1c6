"""Random clusters over a day: rules hold in every cycle, and once no more comes, all comes to rest.

$BALLAST_CYCLES says how many cycles are decided in all. Where it says nothing, 2,000 on the same
clusters every time; else on new ones.
"""

import os
import time
from contextlib import nullcontext
from itertools import count

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from extender.scenario.load import case_of
from extender.scenario.longrun.report import SimulationReport
from extender.scenario.longrun.simulate import simulate
from tests.scenarios.clusters import Entry, entries
from tests.scenarios.judge.invariants import violations
from tests.scenarios.repeatable import same_draws

CYCLES = int(os.environ.get("BALLAST_CYCLES", "2000"))
IS_REPEATED = "BALLAST_CYCLES" not in os.environ
N_AT_A_TIME = 10
#: Of all evictions and moves, those of pods that run again before anything changes, in percent.
MOST_BACK_PERCENT = 8
LIMIT_S = 420 + CYCLES * 6 // 100


@st.composite
def days(draw: st.DrawFn) -> Entry:
    """A cluster of `entries` and its projects' arrivals in the first 6 hours of 12."""
    entry: Entry = draw(entries())
    projects = [q["name"] for q in entry["queues"] if not q["name"].startswith("d")]
    entry["settings"]["usageWeight"] = draw(st.sampled_from([0, 0, 0, 1]))
    entry["simulate"] = {
        "days": 0.5,
        "lookEvery": 600,
        "seed": draw(st.integers(0, 1000)),
        "restart": draw(st.sampled_from([0, 60])),
        "runs": {job["name"]: draw(st.sampled_from([600, 3600, 14400])) for job in entry["jobs"]},
        "arrivals": [draw(_line(name, project)) for name, project in enumerate(projects)],
    }
    return entry


@st.composite
def _line(draw: st.DrawFn, at: int, project: str) -> Entry:
    n = draw(st.sampled_from([1, 1, 1, 2]))
    job: Entry = {
        "name": f"a{at}",
        "queue": project,
        "group": {"min": draw(st.integers(1, n))},
        "tasks": [{"name": "t", "n": n, "gpu": 1}],
    }
    if draw(st.booleans()):
        job["checkpoint"] = 1800
    return {
        "job": job,
        "perDay": draw(st.sampled_from([6, 20, 40])),
        "until": 21_600,
        "run": draw(st.sampled_from([[300, 1800], [1800, 7200]])),
        "gpu": draw(st.sampled_from([[1], [1, 1, 2], ["0.5", 1]])),
        "priority": draw(st.sampled_from([[50], [50, 75], [25, 50, 75, 100]])),
        "user": draw(st.sampled_from([[], [], ["ann", "ben"]])),
    }


@pytest.mark.timeout(LIMIT_S)
def test_rules_hold_over_days_and_all_comes_to_rest() -> None:
    n_cycles = n_stops = n_back = 0
    start = 0 if IS_REPEATED else time.time_ns()
    for at in count(start):
        if n_cycles >= CYCLES:
            break

        @seed(at)
        @settings(
            max_examples=N_AT_A_TIME,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(days())
        def run_some(entry: Entry) -> None:
            nonlocal n_cycles, n_stops, n_back
            report = run_days(entry)
            whole = report.as_json()["total"]
            n_cycles += report.cycles
            n_stops += whole["evictions"] + whole["moves"]
            n_back += report.evicted_and_back

        with same_draws() if IS_REPEATED else nullcontext():
            run_some()
    assert n_back <= MOST_BACK_PERCENT * n_stops / 100, f"{n_back} of {n_stops} ran again"


def run_days(entry: Entry) -> SimulationReport:
    """Simulate; no rule is broken, and where past use counts for nothing it rests at the end."""
    case = case_of(entry, "random")
    report = simulate(case, judge=lambda world, outcome, _: violations(world, outcome))
    assert not report.broken, report.broken
    if case.settings.usage_weight == 0:
        assert report.came_to_rest
    for sums in report.queues.values():
        assert sums.lost <= sums.held
    return report
