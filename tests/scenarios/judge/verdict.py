"""The verdict of a test on one case: as expected, or different exactly as is written down."""

import time

import pytest

from extender.scenario.model.case import Case
from extender.scenario.run import Report, run_case
from tests.scenarios.judge.rules import broken_rules, firm_rules_broken
from tests.scenarios.listed import disagreements, not_yet

#: Ids of cases that expect a plan although a cheaper one exists.
KNOWN_LIMITS = "own/known-limits/"


def judge(case: Case) -> None:
    """Run the case; skips what the format cannot say, fails with every difference otherwise."""
    report = judged(case)
    if report.result == "skipped":
        pytest.skip(report.reasons[0])
    known = disagreements().get(case.id)
    if known is None:
        assert report.reasons == []
    else:
        assert known.reasons, f"{case.id} is listed without saying what differs"
        assert report.reasons == list(known.reasons), "it differs, but not as is written down"


def judged(case: Case) -> Report:
    """The case's run, with all rules of the judge that it has to keep."""
    is_limit = case.id.startswith(KNOWN_LIMITS)
    rules = firm_rules_broken if is_limit else broken_rules
    return run_case(case, time.perf_counter_ns, judge=rules)


def judge_or_expect_failure(case: Case) -> None:
    """As `judge`; but a case in `not_yet.txt` must fail."""
    if case.id not in not_yet():
        judge(case)
        return
    report = run_case(case, time.perf_counter_ns, judge=broken_rules)
    assert report.reasons, f"{case.id} passes: take it off not_yet.txt"
    pytest.xfail(report.reasons[0])
