"""One decision and its timing: policies have no clock."""

import time
from dataclasses import replace

from extender.cycle.cycle_budget import CycleBudget
from extender.cycle.stage_clock import StageClock
from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings, Stage
from extender.state.snapshot import Snapshot


def timed_decision(snapshot: Snapshot, settings: Settings, budget_s: float) -> tuple[Plan, float]:
    """The plan, decided within the budget, and its CPU seconds; each stage is timed."""
    started_s, clock, budget = time.thread_time(), StageClock(), CycleBudget(budget_s)

    def enter(stage: Stage) -> None:
        budget.start()
        clock.enter(stage)

    plan = decide(snapshot, replace(settings, enter=enter, is_spent=budget.is_spent))
    clock.stop()
    return plan, time.thread_time() - started_s
