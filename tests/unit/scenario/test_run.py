"""Cycles, settling between them, and when expectations are checked."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from extender.scenario.model.case import Case
from extender.scenario.narrative import ShareRow
from extender.scenario.run import Report, run_case, run_cycle, stories
from extender.scenario.world import World
from tests.scenarios.judge.rules import broken_rules
from tests.unit.scenario.written import case, job, node, queue


def clock() -> Callable[[], int]:
    """Goes on by 5 microseconds each time it is asked."""
    return itertools.count(0, 5000).__next__


def run(of: Case) -> Report:
    return run_case(of, clock())


def one_card(*jobs: dict[str, Any], **more: Any) -> Case:
    queues = [queue("a", quota=1), queue("b", quota=0)]
    return case(nodes=[node(gpus=1)], queues=queues, jobs=jobs, **more)


LENT = [job("old", "b", on="n0"), job("new", "a")]


def test_case_without_expectations_passes() -> None:
    assert run(one_card(*LENT)) == Report("x", "passed")


def test_single_cycle_is_read_before_it_settles() -> None:
    expected = {"jobs": {"old": {"status": "evicted"}, "new": {"status": "nominated"}}}
    assert run(one_card(*LENT, expect=expected)).reasons == []


def test_rounds_are_read_settled_and_then_before_each_settles() -> None:
    rounds = {"until": 2, "after": 2}
    expected = {"jobs": {"old": {"status": "pending"}, "new": {"status": "running"}}}
    assert run(one_card(*LENT, rounds=rounds, expect=expected)).reasons == []
    early = run(one_card(*LENT, rounds={"until": 1, "after": 1}, expect=expected))
    assert early.reasons == [
        "new: expected it running, got 1 pending",
        "cycle 2: new: expected it running, got 1 bound",
    ]


def test_bounds_hold_in_every_cycle() -> None:
    expected = {"atMost": {"evicted": 0, "bound": 0}}
    told = run(one_card(*LENT, rounds={"until": 3}, expect=expected)).reasons
    assert told == [
        "cycle 1: at most 0 evicted expected, got 1",
        "cycle 2: at most 0 bound expected, got 1",
    ]


def test_steps_settle_finish_add_and_read() -> None:
    steps = [
        {"expect": {"jobs": {"new": {"status": "bound"}, "old": {"status": "pending"}}}},
        {
            "finish": ["new"],
            "add": [job("last", "b", age=9999)],
            "expect": {"jobs": {"last": {"status": "bound"}, "old": {"status": "pending"}}},
        },
    ]
    assert run(one_card(*LENT, steps=steps)).reasons == []


def test_decimal_seconds_of_steps_add_up() -> None:
    queues = [queue("a", quota=1), queue("b", reclaimMinRuntime=1)]
    jobs = [job("old", "b", on="n0"), job("new", "a")]
    steps = [
        {"after": 0.5, "expect": {"jobs": {"old": {"status": "running"}}}},
        {"after": 0.5, "expect": {"jobs": {"old": {"status": "evicted"}}}},
    ]
    made = case(nodes=[node(gpus=1)], queues=queues, jobs=jobs, steps=steps)
    assert run(made).reasons == []


def test_step_that_differs_is_reported_with_its_number() -> None:
    steps: list[dict[str, Any]] = [{}, {"expect": {"jobs": {"old": {"status": "running"}}}}]
    told = run(one_card(*LENT, steps=steps)).reasons
    assert told == ["step 2: old: expected it running, got 1 pending"]


def test_step_that_finishes_nobody_known_fails_the_case() -> None:
    told = run(one_card(*LENT, steps=[{"finish": ["nobody"]}]))
    assert (told.result, told.reasons) == ("failed", ["x: finish: there is no job nobody"])


def test_steps_and_rounds_exclude_each_other() -> None:
    told = run(one_card(*LENT, rounds={"until": 2}, steps=[{}]))
    assert told.reasons == ["x: steps need rounds of {until: 1, after: 0}"]


def test_case_that_contradicts_itself_has_failed() -> None:
    assert run(one_card(job(on="n9"))).result == "failed"


def test_case_out_of_format_is_skipped() -> None:
    told = run(one_card(job(on="n9"), tags=["out-of-format"]))
    assert told.result == "skipped"


def test_decisions_are_written_for_each_cycle_with_the_time_it_took() -> None:
    lines: list[dict[str, Any]] = []
    run_case(one_card(*LENT, steps=[{}]), clock(), lines.append)
    assert [(line["id"], line["cycle"], line["tookUs"]) for line in lines] == [
        ("x", 1, 5),
        ("x", 2, 5),
    ]
    assert [line["tasks"]["new/t"]["status"] for line in lines] == ["nominated", "bound"]


def test_stories_tell_every_cycle() -> None:
    told = list(stories(one_card(*LENT, steps=[{}, {"finish": ["new"]}]), clock()))
    assert [story.cycle for story in told] == [1, 2, 3]
    assert "old/t is evicted from n0 for new" in told[0].leaving[0]
    assert told[0].placed == [
        "new/t is nominated to n0 with 1 GPU and waits until that place is free."
    ]
    assert told[1].placed == ["new/t starts on n0 with 1 GPU."]
    assert told[1].waiting[0].startswith("old waits: ")
    assert told[2].placed == ["old/t starts on n0 with 1 GPU."]
    assert ShareRow("a", "GPU", "1", "1", "0") in told[0].shares


def test_story_has_cpu_and_memory_where_they_are_bounded() -> None:
    queues = [queue("a", cpu={"quota": "1500m"}, memory={"limit": "2Gi"})]
    (story,) = stories(case(queues=queues, jobs=[job(gpu=0, cpu="1", on="n0")]), clock())
    assert [(row.resource, row.quota, row.allocated) for row in story.shares] == [
        ("GPU", "0", "0"),
        ("CPU", "1.5", "1"),
        ("MiB of memory", "unlimited", "953"),
    ]


@pytest.mark.parametrize("last", [None, "the cycle itself"])
def test_rules_are_looked_at_beside_the_expectation(last: str | None) -> None:
    world = World.of(one_card(*LENT))
    outcome = run_cycle(world, 1, clock())
    told = list(broken_rules(world, outcome, outcome if last else None))
    expected = ["new: 1 of its tasks were promised places, 0 start"] if last else []
    assert told == expected


def test_case_fails_on_what_the_judge_says_of_a_cycle() -> None:
    told = run_case(one_card(*LENT), clock(), judge=lambda *_: ["no"])
    assert (told.result, told.reasons) == ("failed", ["cycle 1: no"])
