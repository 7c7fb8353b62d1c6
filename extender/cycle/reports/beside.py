"""Runs reports beside the cycle, so that slow status writes delay no decision."""

import asyncio

import structlog

from extender.api.shutdown import end_task
from extender.cycle import metrics
from extender.cycle.reports.report import Reporter
from extender.kube.errors import KubeError, NotLeading
from extender.policy.plan import Plan

log = structlog.get_logger(__name__)


class Reports:
    """One report at a time. A plan that arrives while one is under way is not reported; the next
    report shows the state at that time."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._task: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether another report is due soon."""
        return self._reporter.is_behind or self._is_under_way

    def start(self, plan: Plan) -> bool:
        """Start reporting the plan; returns at once, and whether the plan is reported."""
        if self._is_under_way:
            return False
        self._task = asyncio.create_task(self._report(plan))
        return True

    async def close(self) -> None:
        """Cancel a report under way: this process no longer leads."""
        await end_task(self._task)

    @property
    def _is_under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _report(self, plan: Plan) -> None:
        try:
            with metrics.CYCLE_SECONDS.labels("report").time():
                await self._reporter.report(plan)
        except* NotLeading:
            pass  # the election ends the term
        except* KubeError as errors:
            metrics.CYCLES.labels("failed").inc()
            log.warning("report failed", errors=[str(error) for error in errors.exceptions])
        except* Exception as errors:
            metrics.CYCLES.labels("broken").inc()
            log.error("report broke", exc_info=errors)
