"""Expectations compared with outcomes."""

from typing import Any

import pytest

from extender.api.reasons import Reason, Refused
from extender.policy.plan import QueueShare
from extender.scenario.expect import Reading, excess
from extender.scenario.outcome import read_plan
from extender.scenario.world import World
from tests.unit.scenario.plans import Planner
from tests.unit.scenario.written import case, job, node, world

JOBS = [
    job("runs", on="n0"),
    job("goes", gpu="0.5", cards=["7"], on="n0"),
    job("stays", gpu="0.5", cards=["6"], on="n0"),
    job("moves", on="n1"),
    job("waits", n=2),
    job("comes", gpu="0.5"),
    job("starts", n=3),
]


def made() -> World:
    return world(nodes=[node("n0", 8), node("n1", 8)], jobs=JOBS)


def differences(**expected: Any) -> list[str]:
    """Of these expectations, after one cycle in which something happens to each job."""
    of = made()
    planner = Planner(of)
    planner.evict("goes/t", "comes").nominate("comes/t", "n0", (7,))
    planner.move("moves/t", "n0", (5,), "comes")
    planner.bind("starts/t-0", "n1", (1,)).bind("starts/t-1", "n1", (2,))
    planner.plan.waits["default/waits"] = Refused(Reason.INSUFFICIENT_GPU, "waits: needs 9")
    shares = (3000, 2000, 5)
    planner.plan.shares["a", "default"] = QueueShare(quota=(0, 0, 0), fair_share=shares)
    outcome = read_plan(of, planner.plan, 1)
    reading = Reading(of, outcome.after, outcome)
    return list(reading.differences(case(expect=expected).expect))


MET: list[dict[str, Any]] = [
    {"jobs": {"runs": {"status": "running", "node": "n0"}}},
    {"jobs": {"goes": {"status": "evicted", "node": "n0"}}},
    {"jobs": {"moves": {"status": "nominated", "node": "n0"}}},
    {"jobs": {"waits": {"status": "pending", "node": "n9"}}},
    {"jobs": {"waits": {"reason": "InsufficientGpu"}}},
    {"jobs": {"starts": {"status": "bound", "count": 2, "node": "n1", "gpus": 2}}},
    {"jobs": {"starts": {"status": ["bound", "pending"]}}},
    {"jobs": {"runs": {"status": "bound", "count": 0}}},
    {"tasks": {"starts/t-0": {"status": "bound"}, "waits/t": {"status": "pending"}}},
    {"tasks": {"goes/t": {"card": "A"}, "comes/t": {"card": "A"}, "stays/t": {"card": "B"}}},
    {"nodes": {"n0": {"idleGpus": 5, "releasingGpus": 0}, "n1": {"idleGpus": 5}}},
    {"nodes": {"n1": {"releasingGpus": 1}}},
    {"fairShare": {"a": {"gpu": 3, "cpu": "2"}}},
    {},
]
MISSED: list[tuple[dict[str, Any], str]] = [
    ({"jobs": {"runs": {"status": "bound"}}}, "runs: expected it bound, got 1 running"),
    ({"jobs": {"starts": {"status": "bound"}}}, "starts: expected all 3 bound, got 2 bound, 1 pe"),
    ({"jobs": {"starts": {"status": "bound", "count": 1}}}, "starts: expected 1 bound, got 2 bou"),
    ({"jobs": {"runs": {"node": "n1"}}}, "runs/t: expected on n1, got running on n0"),
    (
        {"jobs": {"starts": {"status": "bound", "count": 2, "gpus": 1}}},
        "starts: expected 1 GPU, h",
    ),
    ({"jobs": {"nobody": {"status": "bound"}}}, "nobody: there is no such job"),
    ({"jobs": {"waits": {"reason": "OverLimit"}}}, "waits: expected to wait for OverLimit, waits"),
    ({"jobs": {"runs": {"reason": "OverLimit"}}}, "runs: expected to wait for OverLimit, but it"),
    ({"tasks": {"starts/t": {"status": "bound"}}}, "starts/t-2: expected bound, got pending"),
    ({"tasks": {"starts/u": {"status": "bound"}}}, "starts/u: there is no such task"),
    (
        {"tasks": {"goes/t": {"card": "A"}, "comes/t": {"card": "B"}}},
        "goes/t and comes/t: expected",
    ),
    (
        {"tasks": {"goes/t": {"card": "A"}, "stays/t": {"card": "A"}}},
        "stays/t: expected on the car",
    ),
    ({"tasks": {"waits/t-0": {"card": "A"}}}, "waits/t-0: expected on card A, holds no card"),
    ({"nodes": {"n0": {"idleGpus": 4}}}, "n0: expected 4 idle GPUs, got 5"),
    ({"nodes": {"n1": {"releasingGpus": 0}}}, "n1: expected 0 GPUs being left, got 1"),
    ({"nodes": {"n9": {"idleGpus": 4}}}, "n9: there is no such node"),
    ({"fairShare": {"a": {"gpu": "2.5"}}}, "a: expected a fair share of 2500 milli-GPU, got 3000"),
    ({"fairShare": {"a": {"cpu": None}}}, "a: expected a fair share of None milli-CPU, got 2000"),
    ({"fairShare": {"b": {"gpu": 1}}}, "b: expected a fair share, but there is no such queue"),
]


@pytest.mark.parametrize("expected", MET)
def test_what_is_so_is_no_difference(expected: dict[str, Any]) -> None:
    assert differences(**expected) == []


@pytest.mark.parametrize(("expected", "told"), MISSED)
def test_each_difference_is_one_sentence(expected: dict[str, Any], told: str) -> None:
    (difference,) = differences(**expected)
    assert difference.startswith(told)


def test_bounds_of_a_cycle_are_told_by_word() -> None:
    of = made()
    plan = Planner(of).move("moves/t", "n0", (5,), "comes").bind("waits/t-0", "n1", (1,)).plan
    outcome = read_plan(of, plan, 2)

    def told(**most: int) -> list[str]:
        return list(excess(outcome, case(expect={"atMost": most}).expect.at_most))

    assert told(bound=1, evicted=1, nominated=1) == []
    assert told() == []
    assert told(bound=0, evicted=0, nominated=0) == [
        "cycle 2: at most 0 bound expected, got 1",
        "cycle 2: at most 0 evicted expected, got 1",
        "cycle 2: at most 0 nominated expected, got 1",
    ]
