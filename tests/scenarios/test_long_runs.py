"""Days of small clusters, with bars on what is held, lost and waited for."""

from collections.abc import Iterator

import pytest

from extender.scenario.longrun.report import SimulationReport
from extender.scenario.longrun.simulate import simulate
from extender.scenario.model.case import Case
from extender.scenario.outcome import Outcome
from extender.scenario.world import World
from tests.scenarios.judge.invariants import violations
from tests.scenarios.listed import HERE, cases_in, not_yet
from tests.support.thorough import all_but

LONG = cases_in(HERE / "long")
#: No case needs as many evictions: with more, a run is given up, since it has no end.
MOST_EVICTIONS = 2000
#: Each of the last three takes as long as ten of the others. The first four take twice as long, and
#: `test_unrelated.py` and nine other reservations have their rules.
SLOW = (
    "long/fairness/a-typo-blocks-nothing",
    "long/reservations/large-work-of-two-projects-among-small",
    "long/reservations/small-work-of-two-days-beside-a-job-that-never-starts",
    "long/reservations/small-work-that-cannot-be-taken-back",
    "long/victims/three-projects-of-mixed-priorities",
    "long/victims/priorities-of-one-project",
    "long/whole/two-departments-for-a-week",
)


class RestlessError(Exception):
    """A run that evicts without end."""


@pytest.mark.parametrize(
    "case", all_but(lambda case: case.id in SLOW, LONG), ids=lambda case: case.id
)
def test_bars_are_met_and_invariants_hold(case: Case) -> None:
    missed = missed_by(case)
    if case.id not in not_yet():
        assert not missed
        return
    assert missed, f"{case.id} meets its bars: take it off not_yet.txt"
    pytest.xfail(missed[0])


def test_there_are_twenty_long_runs() -> None:
    assert len(LONG) >= 20
    assert {case.id for case in LONG}.issuperset(SLOW)
    assert {id_ for id_ in not_yet() if id_.startswith("long/")} <= {case.id for case in LONG}


def missed_by(case: Case) -> list[str]:
    """The bars that a run of the case misses; an invariant that is broken fails the test."""
    n_evicted = 0

    def judge(world: World, outcome: Outcome, _: Outcome | None) -> Iterator[str]:
        nonlocal n_evicted
        n_evicted += len(outcome.plan.evictions)
        if n_evicted > MOST_EVICTIONS:
            raise RestlessError(f"more than {MOST_EVICTIONS:,} evictions")
        yield from violations(world, outcome)

    try:
        report: SimulationReport = simulate(case, judge=judge)
    except RestlessError as error:
        return [str(error)]
    assert not report.broken
    return report.missed
