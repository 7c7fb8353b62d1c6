"""How many tasks a scenario's disruption budget allows to evict."""

from typing import Any

import pytest

from extender.policy.plan import Plan
from extender.scenario.outcome import read_plan
from extender.scenario.places import Place
from extender.scenario.snapshot import take_snapshot
from tests.scenarios.judge.invariants import broken_budgets
from tests.unit.scenario.written import job, world

JOBS = [job("j", n=3, on="n0"), job("k", n=1)]


@pytest.mark.parametrize(
    ("bound", "n"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": 9}, 0),
        ({"maxUnavailable": 3}, 2),  # one of the four waits, and is one that is missing
        ({"maxUnavailable": 1}, 0),
    ],
)
def test_budget_allows_what_the_disruption_controller_would(bound: dict[str, Any], n: int) -> None:
    made = world(jobs=JOBS, budgets=[{"name": "b", "jobs": ["j", "k"], **bound}])
    snapshot = take_snapshot(made)
    assert snapshot.budgets == {"default/b": n}
    assert {pod.budgets for pod in snapshot.workloads["default/j"].pods} == {("default/b",)}


def test_of_several_budgets_a_task_knows_the_first_two_by_name() -> None:
    budgets = [{"name": name, "jobs": ["j"], "maxUnavailable": 1} for name in "cab"]
    made = world(jobs=JOBS, budgets=budgets)
    assert made.jobs["j"].tasks[0].view.budgets == ("default/a", "default/b")


def test_a_cycle_that_breaks_a_budget_is_reported() -> None:
    made = world(jobs=JOBS, budgets=[{"name": "b", "jobs": ["j"], "minAvailable": 2}])
    outcome = read_plan(made, Plan(), 1)
    outcome.after["j/t-0"] = Place("evicted", "n0")
    assert not list(broken_budgets(made, outcome))
    outcome.after["j/t-1"] = Place("evicted", "n0")
    told = "budget default/b: 2 of its tasks have to leave, it lets 1 go"
    assert list(broken_budgets(made, outcome)) == [told]
