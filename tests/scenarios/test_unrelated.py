"""No decision depends on names, on the scale of priorities and weights, or on objects of no use."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any

import pytest
from msgspec.structs import replace

from extender.scenario.model.case import Case
from extender.scenario.model.expectations import Expectation
from extender.scenario.run import run_case
from tests.scenarios.listed import OWN, cases_in, shared_cases
from tests.scenarios.unrelated import ADDED, CHANGES, TOGETHER, Change, changed, original_name
from tests.support.thorough import every

#: What became of the tasks of each job, one mapping for each cycle.
Outcomes = list[Mapping[str, Counter[str]]]
N_PARTS = 8
LEAST_CHANGED = 30
LEAST_CASES = 4295


@cache
def _cases() -> list[Case]:
    """All cases, without what they expect."""
    listed = cases_in(OWN)
    for folder in ("kai", "determined", "review", "run-ai"):
        listed += shared_cases(folder)
    return [_without_expectations(case) for case in listed if not case.is_out_of_format]


def _without_expectations(case: Case) -> Case:
    steps = [replace(step, expect=Expectation()) for step in case.steps]
    return replace(case, expect=Expectation(), steps=steps)


def _outcomes(case: Case) -> Outcomes:
    found: Outcomes = []

    def take(line: dict[str, Any]) -> None:
        jobs: dict[str, Counter[str]] = {}
        for task, what in line["tasks"].items():
            job = original_name(task.rpartition("/")[0])
            if not job.startswith(ADDED):
                jobs.setdefault(job, Counter())[what["status"]] += 1
        found.append(jobs)

    report = run_case(case, lambda: 0, take)
    assert report.reasons == []
    return found


@pytest.mark.parametrize("part", every(N_PARTS, range(N_PARTS)))
def test_no_decision_depends_on_them(part: int) -> None:
    differing = []
    for case in _cases()[part::N_PARTS]:
        outcomes = _outcomes(case)
        for together in TOGETHER:
            if _differs(case, outcomes, *together):
                singly = [each for each in together if _differs(case, outcomes, each)]
                differing.append((case.id, [each.__name__ for each in singly or together]))
    assert differing == []


def _differs(case: Case, outcomes: Outcomes, *changes: Change) -> bool:
    other = changed(case, *changes)
    return other is not None and _outcomes(other) != outcomes


def test_our_cases_are_all_there() -> None:
    assert len(cases_in(OWN)) >= LEAST_CASES


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_can_be_made_to_many_cases(change: Change) -> None:
    several = (case for case in _cases() if changed(case, change) is not None)
    assert len(list(islice(several, LEAST_CHANGED + 1))) > LEAST_CHANGED
