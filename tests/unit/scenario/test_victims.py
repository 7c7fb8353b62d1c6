"""Whether victims are needed, and whether the resources that they free are used."""

from typing import Any

import pytest

from extender.policy.plan import QueueShare
from extender.scenario.outcome import read_plan
from extender.scenario.world import World
from tests.scenarios.judge.minimality import broken_promises, wasted_victims
from tests.unit.scenario.plans import Planner
from tests.unit.scenario.written import job, node, queue, world

QUEUES = [queue("old"), queue("new", quota=8)]


def made(*jobs: dict[str, Any], **more: Any) -> World:
    return world(**({"nodes": [node(gpus=2)], "queues": QUEUES} | more), jobs=jobs)


def wasted(of: World, planner: Planner) -> list[str]:
    return list(wasted_victims(of, read_plan(of, planner.plan, 1)))


def test_victims_that_are_all_needed_are_fine() -> None:
    of = made(job("a", "old", on="n0"), job("b", "old", on="n0"), job("c", "new", gpu=2))
    plan = Planner(of).evict("a/t", "c").evict("b/t", "c").nominate("c/t", cards=(0, 1))
    assert wasted(of, plan) == []


def test_victim_too_many_could_stay() -> None:
    of = made(job("a", "old", on="n0"), job("b", "old", on="n0"), job("c", "new"))
    plan = Planner(of).evict("a/t", "c").evict("b/t", "c").nominate("c/t")
    assert wasted(of, plan) == [
        "a/t: could stay, c has its place without that",
        "b/t: could stay, c has its place without that",
    ]


def test_victim_beside_an_idle_card_could_stay() -> None:
    of = made(job("a", "old", on="n0"), job("c", "new"))
    told = wasted(of, Planner(of).evict("a/t", "c").nominate("c/t"))
    assert told == ["a/t: could stay, c has its place without that"]


def test_place_that_another_has_got_in_the_same_cycle_is_not_idle() -> None:
    of = made(job("a", "old", on="n0"), job("b", "new"), job("c", "new"))
    plan = Planner(of).bind("b/t", cards=(1,)).evict("a/t", "c").nominate("c/t")
    assert wasted(of, plan) == []


def test_victims_in_the_way_of_a_limit_are_needed() -> None:
    queues = [queue("new", quota=8, limit=1)]
    low = job("a", "new", priority=25, on="n0")
    of = made(low, job("c", "new", priority=75), queues=queues)
    assert wasted(of, Planner(of).evict("a/t", "c").nominate("c/t", cards=(1,))) == []


@pytest.mark.parametrize(("share", "n_told"), [(2000, 0), (3000, 2)])
def test_victims_without_whom_a_department_would_grow_past_its_share_are_needed(
    share: int, n_told: int
) -> None:
    queues = [queue("d"), queue("old", parent="d"), queue("new", parent="d")]
    jobs = [job("a", "old", on="n0"), job("b", "old", on="n0"), job("c", "new", gpu=2)]
    of = made(*jobs, nodes=[node(gpus=3)], queues=queues)
    plan = Planner(of).evict("a/t", "c").evict("b/t", "c").nominate("c/t", cards=(0, 1))
    plan.plan.shares["d", "default"] = QueueShare(fair_share=(share, 0, 0))
    assert len(wasted(of, plan)) == n_told


def test_victims_thanks_to_whom_more_starts_at_once_are_needed() -> None:
    halves = [
        job(name, "old", on="n0", gpu="0.5", cards=[card])
        for name, card in (("a", "A"), ("b", "A"), ("c", "B"), ("d", "C"))
    ]
    taker = job("e", "new", n=3, gpu="0.25", devices=2, group={"min": 1})
    spread = {"placement": {"gpu": "spread"}}
    of = made(*halves, taker, nodes=[node(gpus=3)], settings=spread)
    plan = Planner(of).bind("e/t-0", cards=(1, 2)).bind("e/t-1", cards=(1, 2))
    plan.evict("a/t", "e").evict("c/t", "e").nominate("e/t-2", cards=(0, 1))
    assert wasted(of, plan) == []


def test_victim_that_can_stay_if_another_task_starts_elsewhere_is_reported() -> None:
    tasks = [{"name": "small", "gpu": 1}, {"name": "large", "gpu": 2}]
    taker = job("b", "new", tasks=tasks, group={"min": 1})
    of = made(job("a", "old", on="n1"), taker, nodes=[node(gpus=2), node("n1", gpus=2)])
    plan = Planner(of).bind("b/small", "n0").evict("a/t", "b").nominate("b/large", "n1", (0, 1))
    assert wasted(of, plan) == ["a/t: could stay, b has its place without that"]


def test_gang_is_left_out_whole() -> None:
    of = made(job("a", "old", n=2, on="n0"), job("c", "new"))
    plan = Planner(of).evict("a/t-0", "c").evict("a/t-1", "c").nominate("c/t")
    assert wasted(of, plan) == []


def test_surplus_is_enough_where_the_whole_job_was_stopped() -> None:
    of = made(job("a", "old", n=2, group={"min": 1}, on="n0"), job("c", "new"))
    plan = Planner(of).evict("a/t-0", "c").evict("a/t-1", "c").nominate("c/t")
    assert wasted(of, plan) == [
        "a/t-0: could stay, c has its place without that",
        "a/t-1: could stay, c has its place without that",
    ]


def test_minimum_of_an_elastic_job_is_left_out_together() -> None:
    elastic = job("a", "old", n=3, group={"min": 2}, on="n0")
    of = made(elastic, job("c", "new"), nodes=[node(gpus=3)])
    plan = Planner(of).nominate("c/t")
    for at in range(3):
        plan.evict(f"a/t-{at}", "c")
    assert wasted(of, plan)[0] == "a/t-0, a/t-1: could stay, c has its place without that"


def test_move_that_is_not_needed_is_reported() -> None:
    nodes = [node("n0", 2), node("n1", 2)]
    of = made(job("a", "old", on="n0"), job("c", "new", gpu=2), nodes=nodes)
    plan = Planner(of).move("a/t", "n1", (0,), "c").nominate("c/t", "n0", (0, 1))
    assert wasted(of, plan) == ["a/t: could stay, c has its place without that"]


def test_move_whose_place_another_move_takes_is_needed() -> None:
    nodes = [node("n0", 2), node("n1", 1), node("n2", 1)]
    jobs = [job("a", "old", on="n0"), job("b", "old", on="n1"), job("c", "new", gpu=2)]
    of = made(*jobs, nodes=nodes)
    plan = Planner(of).move("b/t", "n2", (0,), "c").move("a/t", "n1", (0,), "c")
    plan.nominate("c/t", "n0", (0, 1))
    assert wasted(of, plan) == []


def test_victim_of_nobody_is_not_looked_at() -> None:
    of = made(job("a", "old", on="n0"))
    assert wasted(of, Planner(of).evict("a/t")) == []


def test_victims_for_a_task_that_is_not_placed_are_reported() -> None:
    of = made(job("a", "old", on="n0"), job("c", "new"))
    told = wasted(of, Planner(of).evict("a/t", "c"))
    assert told == ["a/t: leaves for default/c, which gets no place for it"]


def test_what_was_promised_starts_in_the_next_cycle() -> None:
    of = made(job("a", "old", on="n0"), job("b", "old", on="n0"), job("c", "new", n=2))
    plan = Planner(of).evict("a/t", "c").nominate("c/t-0").evict("b/t", "c")
    first = read_plan(of, plan.nominate("c/t-1", cards=(1,)).plan, 1)
    of.settle(first.after)
    kept = Planner(of).bind("c/t-0").bind("c/t-1", cards=(1,))
    assert list(broken_promises(of, first, read_plan(of, kept.plan, 2))) == []
    lost = Planner(of).bind("c/t-0").bind("a/t", cards=(1,))
    told = list(broken_promises(of, first, read_plan(of, lost.plan, 2)))
    assert told == ["c: 2 of its tasks were promised places, 1 start"]


def test_a_promise_is_only_given_up_for_another_job_on_its_node() -> None:
    of = made(job("c", "new"), job("d", "new"))
    first = read_plan(of, Planner(of).nominate("c/t").plan, 1)
    of.settle(first.after)
    plan = Planner(of).plan
    plan.drops.append("default/c")
    told = list(broken_promises(of, first, read_plan(of, plan, 2)))
    assert told == ["c: 1 of its tasks were promised places, 0 start"]
    taken = Planner(of).nominate("d/t").plan
    taken.drops.append("default/c")
    assert list(broken_promises(of, first, read_plan(of, taken, 2))) == []


def test_a_promise_within_a_limit_may_be_given_up_for_a_job_on_another_node() -> None:
    for limit, n_told in ((None, 1), (1, 0)):
        queues, nodes = [queue("new", limit=limit)], [node("n0"), node("n1")]
        of = made(job("c", "new"), job("d", "new"), queues=queues, nodes=nodes)
        first = read_plan(of, Planner(of).nominate("c/t", "n0").plan, 1)
        of.settle(first.after)
        plan = Planner(of).nominate("d/t", "n1").plan
        plan.drops.append("default/c")
        assert len(list(broken_promises(of, first, read_plan(of, plan, 2)))) == n_told
