"""One decision and its timing: decisions are pure, so their caller has the clock."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from extender.cycle import metrics
from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings, Stage
from extender.state.snapshot import Snapshot

#: What `decide` does before its first stage: nominations, demand and fair shares.
PREPARE: Final = "prepare"


class CycleBudget:
    """`budget_s` seconds of CPU time of the deciding thread, from the first `start` on.

    CPU time, not wall time: a controller with a twentieth of a core would spend its budget waiting
    for that core, and cut every workload in every cycle. The work before the first stage does not
    count: it is the same in every cycle, however little is decided.
    """

    def __init__(self, budget_s: float, now: Callable[[], float] = time.thread_time) -> None:
        self._budget_s = budget_s
        self._now = now
        self._ends = float("inf")

    def start(self) -> None:
        """Begin a stage; only the first call starts the budget."""
        if self._ends == float("inf"):
            self._ends = self._now() + self._budget_s

    def is_spent(self) -> bool:
        """Whether the budget is used up. Call it in the thread that called `start`."""
        return self._now() > self._ends


class StageClock:
    """Counts the time from one `enter` to the next, or to `stop`, for the stage entered first.

    It starts with `PREPARE`. Work after the last stage counts for that stage.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._stage = PREPARE
        self._since = now()

    def enter(self, stage: str) -> None:
        """Begin the stage, and end the one before it."""
        self.stop()
        self._stage = stage

    def stop(self) -> None:
        """End the stage."""
        now = self._now()
        metrics.STAGE_SECONDS.labels(self._stage).observe(now - self._since)
        self._since = now


def timed_decision(snapshot: Snapshot, settings: Settings, budget_s: float) -> tuple[Plan, float]:
    """The plan, decided within the budget, and its CPU seconds; each stage is timed."""
    started_s, clock, budget = time.thread_time(), StageClock(), CycleBudget(budget_s)

    def enter(stage: Stage) -> None:
        budget.start()
        clock.enter(stage)

    plan = decide(snapshot, replace(settings, enter=enter, is_spent=budget.is_spent))
    clock.stop()
    return plan, time.thread_time() - started_s
