"""No decision depends on names, on the scale of priorities and weights, or on objects of no use."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from msgspec import convert, to_builtins

from extender.scenario.model.case import Case
from extender.scenario.run import run_case
from tests.scenarios.listed import OWN, cases_in, shared_cases
from tests.scenarios.unrelated import ADDED, CHANGES, Change, Entry, changed, original_name

#: What became of the tasks of each job, one mapping for each cycle.
Outcomes = list[Mapping[str, Counter[str]]]


@cache
def _cases() -> dict[str, tuple[Entry, Outcomes]]:
    """All cases, without what they expect, and what becomes of their jobs."""
    listed = cases_in(OWN)
    for folder in ("kai", "determined", "review", "run-ai"):
        listed += shared_cases(folder)
    found = {}
    for case in listed:
        if not case.is_out_of_format:
            entry = _without_expectations(to_builtins(case))
            found[case.id] = entry, _outcomes(entry)
    return found


def _without_expectations(entry: Entry) -> Entry:
    for each in (entry, *entry["steps"]):
        each["expect"] = {}
    return entry


def _outcomes(entry: Entry) -> Outcomes:
    found: Outcomes = []

    def take(line: dict[str, Any]) -> None:
        jobs: dict[str, Counter[str]] = {}
        for task, what in line["tasks"].items():
            job = original_name(task.rpartition("/")[0])
            if not job.startswith(ADDED):
                jobs.setdefault(job, Counter())[what["status"]] += 1
        found.append(jobs)

    report = run_case(convert(entry, Case), lambda: 0, take)
    assert report.reasons == []
    return found


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_decisions_do_not_depend_on(change: Change) -> None:
    differing, n = [], 0
    for id_, (entry, outcomes) in _cases().items():
        other = changed(entry, change)
        if other is not None:
            n += 1
            if _outcomes(other) != outcomes:
                differing.append(id_)
    assert n > 30
    assert differing == []
