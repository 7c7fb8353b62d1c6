"""The verdict of a test on one case: as expected, or different exactly as is written down."""

import time

import pytest

from extender.scenario.model import Case
from extender.scenario.run import run_case
from tests.scenarios.judge.rules import broken_rules
from tests.scenarios.listed import disagreements


def judge(case: Case) -> None:
    """Run the case; skips what the format cannot say, fails with every difference otherwise."""
    report = run_case(case, time.perf_counter_ns, judge=broken_rules)
    if report.result == "skipped":
        pytest.skip(report.reasons[0])
    known = disagreements().get(case.id)
    if known is None:
        assert report.reasons == []
    else:
        assert known.reasons, f"{case.id} is listed without saying what differs"
        assert report.reasons == list(known.reasons), "it differs, but not as is written down"
