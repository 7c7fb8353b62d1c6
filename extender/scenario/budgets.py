"""Disruption budgets of a scenario: the jobs that each covers, and the disruptions it allows.

Counted as in the disruption controller: a task is healthy while it runs, and with `maxUnavailable`
all existing tasks should be. A budget binds reclaim and preemption until its deadline, as time
passes between steps and in a long run (`World.deadlines`).
"""

from collections.abc import Sequence
from typing import Final

from extender.scenario.model.case import Case
from extender.scenario.model.jobs import Budget, Job
from extender.scenario.model.values import Status

#: The API server evicts no pod that two budgets select, so further ones do not matter.
_ENOUGH: Final = 2


def key_of(budget: Budget) -> str:
    """The budget's key in a snapshot."""
    return f"{budget.namespace}/{budget.name}"


def covers(budget: Budget, job: Job) -> bool:
    """Whether the budget selects the job's tasks; it selects none outside its namespace."""
    return job.name in budget.jobs and job.namespace == budget.namespace


def covering(case: Case, job: Job) -> tuple[str, ...]:
    """Keys of the budgets that cover the job's tasks: the first two by name."""
    found = sorted(key_of(each) for each in case.budgets if covers(each, job))
    return tuple(found[:_ENOUGH])


def allowed(budget: Budget, covered: Sequence[Status]) -> int:
    """How many of the covered tasks may be disrupted."""
    n_healthy = sum(status == "running" for status in covered)
    if budget.min_available is not None:
        return max(0, n_healthy - budget.min_available)
    n_wanted = len(covered) - (budget.max_unavailable or 0)
    return max(0, n_healthy - max(0, n_wanted))
