"""The status of every task after a plan, and the line that is written for it."""

import json

from extender.policy.plan import QueueShare
from extender.scenario.expect import newly_decided
from extender.scenario.outcome import decision, read_plan
from extender.scenario.world import World
from extender.state.model import UNLIMITED
from tests.unit.scenario.plans import Planner
from tests.unit.scenario.written import case, job, node, world

CASE = case(
    nodes=[node("n0", 2), node("n1", 2)],
    jobs=[
        job("runs", on="n0"),
        job("goes", on="n0"),
        job("moves", on="n1"),
        job("waits"),
        job("starts"),
        job("comes", n=2),
    ],
)


def decided() -> tuple[World, Planner]:
    made = World.of(CASE)
    planner = Planner(made)
    planner.bind("starts/t", "n1", (1,)).nominate("comes/t-0", "n0", (1,))
    planner.evict("goes/t", "comes").move("moves/t", "n0", (1,), "comes")
    return made, planner


def test_every_task_has_a_line_in_the_words_of_the_format() -> None:
    made, planner = decided()
    line = decision(CASE, made, read_plan(made, planner.plan, 3))
    assert line["tasks"] == {
        "runs/t": {"status": "running", "node": "n0", "cards": {"n0/0": 1000}},
        "goes/t": {"status": "evicted", "node": "n0", "cards": {"n0/1": 1000}},
        "moves/t": {
            "status": "nominated",
            "node": "n0",
            "cards": {"n0/1": 1000},
            "from": "n1",
            "fromCards": {"n1/0": 1000},
        },
        "waits/t": {"status": "pending"},
        "starts/t": {"status": "bound", "node": "n1", "cards": {"n1/1": 1000}},
        "comes/t-0": {"status": "nominated", "node": "n0", "cards": {"n0/1": 1000}},
        "comes/t-1": {"status": "pending"},
    }
    assert (line["id"], line["cycle"], line["tookUs"]) == ("x", 3, 0)
    assert json.loads(json.dumps(line)) == line


def test_moved_task_counts_as_evicted_and_as_nominated() -> None:
    made, planner = decided()
    counts = newly_decided(read_plan(made, planner.plan, 1))
    assert counts == {"bound": 1, "nominated": 2, "evicted": 2}


def test_what_was_so_at_the_start_is_not_newly_decided() -> None:
    made = world(jobs=[job("a", on="n0", state="evicted"), job("b", on="n0", state="nominated")])
    assert not newly_decided(read_plan(made, Planner(made).plan, 1))


def test_promise_that_is_given_up_waits_again() -> None:
    made = world(jobs=[job("a", on="n0", state="nominated")])
    plan = Planner(made).plan
    plan.drops.append("default/a")
    assert read_plan(made, plan, 1).after["a/t"].status == "pending"


def test_fair_shares_are_sums_over_pools_and_null_where_nothing_is_counted() -> None:
    made = world()
    plan = Planner(made).plan
    quota = (0, UNLIMITED, 100)
    plan.shares["a", "one"] = QueueShare(quota=quota, fair_share=(1000, UNLIMITED, 40))
    plan.shares["a", "two"] = QueueShare(quota=quota, fair_share=(500, 7, 2))
    outcome = read_plan(made, plan, 1)
    assert outcome.fair_shares == {"a": (1500, None, 42)}
    line = decision(made.cluster.case, made, outcome)
    assert line["fairShare"] == {"a": {"gpuMilli": 1500, "cpuMilli": None, "memoryMiB": 42}}
