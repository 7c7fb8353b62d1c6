"""Reports run beside the cycle, one at a time; a failing report stops nothing."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest

from extender.cycle import metrics
from extender.cycle.reports.beside import Reports
from extender.cycle.reports.report import Reporter
from extender.kube.errors import NotLeading, Unavailable
from extender.policy.plan import Plan
from tests.support.metrics import value_of


def reports_of(*outcomes: Any) -> tuple[Reports, Any]:
    reporter = create_autospec(Reporter, instance=True, is_behind=False)
    reporter.report.side_effect = outcomes
    return Reports(reporter), reporter


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_slow_report_is_not_waited_for_and_no_other_starts_beside_it() -> None:
    may_end = asyncio.Event()

    async def slow(_plan: Plan) -> None:
        await may_end.wait()

    reports, reporter = reports_of()
    reporter.report.side_effect = slow
    assert reports.start(Plan())
    await settle()
    assert not reports.start(Plan())
    await settle()
    assert reporter.report.call_count == 1
    behind = [reports.is_behind]
    may_end.set()
    await settle()
    behind.append(reports.is_behind)
    assert behind == [True, False]
    reports.start(Plan())
    await settle()
    assert reporter.report.call_count == 2


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a bug"),
        Unavailable("no answer"),
        NotLeading("the Lease was not renewed"),
        ExceptionGroup("writes", [NotLeading("the Lease was not renewed")]),
    ],
)
async def test_a_report_that_fails_is_followed_by_another(error: Exception) -> None:
    reports, reporter = reports_of(error, None)
    reports.start(Plan())
    await settle()
    reports.start(Plan())
    await settle()
    assert reporter.report.call_count == 2


async def test_a_report_that_breaks_counts_as_a_broken_cycle() -> None:
    """So that its alert fires."""
    before = value_of(metrics.CYCLES.labels("broken"))
    reports, _ = reports_of(RuntimeError("a bug"))
    reports.start(Plan())
    await settle()
    assert value_of(metrics.CYCLES.labels("broken")) == before + 1


async def test_what_is_under_way_is_given_up_with_the_term() -> None:
    ended: list[str] = []

    async def slow(_plan: Plan) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("given up")

    reports, reporter = reports_of()
    reporter.report.side_effect = slow
    reports.start(Plan())
    await settle()
    await reports.close()
    assert ended == ["given up"]
