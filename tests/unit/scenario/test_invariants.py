"""Every rule of every cycle, each with a plan that breaks it and one that does not."""

from typing import Any

import pytest
from msgspec.structs import force_setattr, replace

from extender.policy.plan import Plan
from extender.scenario.outcome import read_plan
from extender.scenario.world import World
from tests.scenarios.judge.invariants import violations
from tests.unit.scenario.plans import Planner
from tests.unit.scenario.written import job, node, queue, world

FREE = queue(quota=None)


def made(*jobs: dict[str, Any], **more: Any) -> World:
    return world(**({"nodes": [node("n0", 2), node("n1", 2)], "queues": [FREE]} | more), jobs=jobs)


def broken(of: World, plan: Plan | Planner) -> list[str]:
    found = plan.plan if isinstance(plan, Planner) else plan
    return list(violations(of, read_plan(of, found, 1)))


def test_nothing_decided_breaks_nothing() -> None:
    of = made(job("a", on="n0"), job("b", priority=100, on="n0"), job("c"))
    assert broken(of, Plan()) == []


def test_card_holds_no_more_than_it_has() -> None:
    of = made(job("a", gpu="0.6", cards=["0"], on="n0"), job("b", gpu="0.5"))
    assert broken(of, Planner(of).bind("b/t", cards=(1,))) == []
    told = broken(of, Planner(of).bind("b/t", cards=(0,)))
    assert told == [
        "card n0/0: holds 1100 milli of 1000 now",
        "card n0/0: holds 1100 milli of 1000 once all have left",
    ]


def test_place_of_a_victim_is_free_later_and_not_now() -> None:
    of = made(job("a", on="n0"), job("b"))
    assert broken(of, Planner(of).evict("a/t", "b").nominate("b/t")) == []
    told = broken(of, Planner(of).evict("a/t", "b").bind("b/t"))
    assert told == ["card n0/0: holds 2000 milli of 1000 now"]


def test_moved_task_holds_both_its_places_in_turn() -> None:
    of = made(job("a", on="n0"), job("b", gpu=2))
    assert broken(of, Planner(of).move("a/t", "n1", (0,), "b").nominate("b/t", "n0", (0, 1))) == []
    told = broken(of, Planner(of).move("a/t", "n1", (0,), "b").nominate("b/t", "n1", (0, 1)))
    assert told == ["card n1/0: holds 2000 milli of 1000 once all have left"]


@pytest.mark.parametrize(
    ("has", "task", "told"),
    [
        ({"cpu": "1"}, {"cpu": "1500m"}, "n0: holds 1500 milli-CPU of 1000 now"),
        ({"memory": "1Gi"}, {"memory": "2Gi"}, "n0: holds 2048 memory of 1024 now"),
        ({"maxPods": 0}, {}, "n0: holds 1 pods of 0 now"),
        ({}, {"mig": {"nvidia.com/mig-1g.5gb": 1}}, "n0: holds 1 nvidia.com/mig-1g.5gb of 0 now"),
    ],
)
def test_node_holds_no_more_than_it_has(
    has: dict[str, Any], task: dict[str, Any], told: str
) -> None:
    of = made(job(gpu=0, **task), nodes=[node(**has)])
    assert broken(of, Planner(of).bind("j/t", cards=()))[0] == told


def test_node_that_starts_over_its_bound_may_stay_so_but_not_grow() -> None:
    of = made(job("a", cpu="4", on="n0"), job("b", cpu="1"), job("c"), nodes=[node(cpu="2")])
    assert broken(of, Plan()) == []
    assert broken(of, Planner(of).bind("b/t", cards=(1,)))[0].startswith("n0: holds 5000 milli-CPU")


def test_task_is_decided_once() -> None:
    of = made(job("a"))
    told = broken(of, Planner(of).bind("a/t").bind("a/t", "n1"))
    assert told == ["a/t: the plan decides on it 2 times"]


@pytest.mark.parametrize(
    ("node_name", "cards", "told"),
    [
        ("n0", (2,), "j/t: n0 has only 2 cards"),
        ("n0", (), "j/t: asks for 1 cards and gets 0"),
        ("n0", (0, 1), "j/t: asks for 1 cards and gets 2"),
        ("n9", (0,), "j/t: there is no node n9"),
        ("n2", (0,), "j/t: n2 takes no new pods"),
        ("n3", (0,), "j/t: n3 is in pool (none), which the job may not use"),
    ],
)
def test_place_is_on_a_usable_node_and_its_cards_are_that_nodes(
    node_name: str, cards: tuple[int, ...], told: str
) -> None:
    labels = {"labels": {"pool": "p"}}
    nodes = [
        node("n0", 2, **labels),
        node("n2", 2, unschedulable=True, **labels),
        node("n3", 2),
    ]
    of = made(job(), nodes=nodes, nodePools=[{"name": "p", "match": {"pool": "p"}}])
    assert told in broken(of, Planner(of).bind("j/t", node_name, cards))


def test_share_of_a_card_is_what_was_asked_for() -> None:
    of = made(job(gpu="0.5"))
    plan = Planner(of).bind("j/t").plan
    (admission,) = plan.admissions
    (placement,) = admission.placements
    short = tuple(replace(card, milli=400) for card in placement.cards)
    force_setattr(placement, "cards", short)
    assert broken(of, plan) == ["j/t: gets [400] milli of its cards, asks for [500]"]


def test_what_waits_cannot_leave_and_what_runs_cannot_start() -> None:
    of = made(job("a"), job("b", on="n0"))
    assert broken(of, Planner(of).evict("a/t"))[0] == "a/t: it is to leave, but it is pending"
    assert broken(of, Planner(of).bind("b/t"))[0] == "b/t: it is running and bound once more"


def test_gang_starts_with_its_minimum_or_not_at_all() -> None:
    of = made(job(n=3, group={"min": 2}))
    assert broken(of, Planner(of).bind("j/t-0").bind("j/t-1", cards=(1,))) == []
    told = broken(of, Planner(of).bind("j/t-0"))
    assert told[0] == "j: 1 of its tasks have places, below its minimum of 2"


def test_gang_that_is_partly_bound_and_partly_nominated_starts_nothing_below_its_minimum() -> None:
    of = made(job("v", on="n0"), job(n=2))
    planner = Planner(of).evict("v/t", "j").nominate("j/t-0").bind("j/t-1", cards=(1,))
    assert broken(of, planner) == [
        "j: some start now while others wait, and 1 of its tasks have places,"
        " below its minimum of 2"
    ]


def test_gang_gives_its_surplus_or_all_of_it() -> None:
    of = made(job(n=3, group={"min": 2}, on="n0"), nodes=[node(gpus=3)])
    assert broken(of, Planner(of).evict("j/t-0")) == []
    told = broken(of, Planner(of).evict("j/t-0").evict("j/t-1"))
    assert told == ["j: 1 of its tasks have places, below its minimum of 2 of those that stay"]
    assert broken(of, Planner(of).evict("j/t-0").evict("j/t-1").evict("j/t-2")) == []


def test_gang_that_started_below_its_minimum_may_stay_but_must_reach_it_to_grow() -> None:
    tasks = [{"name": "r", "state": "running", "node": "n0"}, {"name": "p", "n": 2}]
    of = made(job(tasks=tasks, group={"min": 3}))
    assert broken(of, Plan()) == []
    assert "below its minimum of 3" in broken(of, Planner(of).bind("j/p-0", cards=(1,)))[0]
    whole = Planner(of).bind("j/p-0", cards=(1,)).bind("j/p-1", "n1")
    assert broken(of, whole) == []


def test_group_that_holds_something_is_satisfied_itself() -> None:
    children = [{"name": "a", "min": 1}, {"name": "b", "min": 2}]
    tasks = [{"name": "t", "group": "a"}, {"name": "u", "n": 2, "group": "b"}]
    of = made(job(tasks=tasks, group={"minGroups": 1, "children": children}))
    assert broken(of, Planner(of).bind("j/t")) == []
    told = broken(of, Planner(of).bind("j/t").bind("j/u-0", cards=(1,)))
    assert "below a minimum of its groups" in told[0]


def test_work_that_is_not_preemptible_never_leaves() -> None:
    of = made(job(priority=100, on="n0"))
    told = ["j/t: it is not preemptible and has to leave n0"]
    assert broken(of, Planner(of).evict("j/t")) == told
    moved = broken(of, Planner(of).move("j/t", "n1"))
    assert moved == ["j/t: it is not preemptible and has to leave n1"]


@pytest.mark.parametrize(("grace", "n_told"), [(60, 0), (61, 1), (None, 1)])
def test_stale_gang_past_its_grace_may_be_stopped(grace: int | None, n_told: int) -> None:
    stale = {"for": 60, "grace": grace}
    of = made(job(priority=100, group={"min": 2}, on="n0", stale=stale))
    assert len(broken(of, Planner(of).evict("j/t"))) == n_told


def test_no_queue_passes_its_limit_on_any_level() -> None:
    queues = [
        queue("d", quota=None, limit=1),
        queue("a", quota=None, parent="d"),
        FREE | {"name": "b"},
    ]
    of = made(job("x", "a", on="n0"), job("y", "a"), job("z", "b"), queues=queues)
    assert broken(of, Planner(of).bind("z/t", cards=(1,))) == []
    told = broken(of, Planner(of).bind("y/t", cards=(1,)))
    assert told[0] == "d: holds 2000 milli-GPU in pool default now, above its limit of 1000"


def test_limit_of_another_resource_counts_too() -> None:
    of = made(job(cpu="2"), queues=[FREE | {"cpu": {"limit": 1}}])
    told = broken(of, Planner(of).bind("j/t"))
    assert told[0] == "a: holds 2000 milli-CPU in pool default now, above its limit of 1000"


def test_instances_of_a_card_count_by_their_slices() -> None:
    name = "nvidia.com/mig-2g.10gb"
    nodes = [node(gpus=0, mig={"strategy": "mixed", "instances": {name: 2}})]
    of = made(job(mig={name: 1}), nodes=nodes, queues=[queue(quota=None, limit=1)])
    told = broken(of, Planner(of).bind("j/t", cards=()))
    assert told[0] == "a: holds 2000 milli-GPU in pool default now, above its limit of 1000"


def test_queue_holds_work_that_is_not_preemptible_within_quota_only() -> None:
    queues = [queue("d", quota=1), queue("a", quota=2, parent="d")]
    of = made(job("x", priority=100, on="n0"), job("y", priority=100), job("z"), queues=queues)
    assert broken(of, Planner(of).bind("z/t", cards=(1,))) == []
    told = broken(of, Planner(of).bind("y/t", cards=(1,)))
    assert told[0] == (
        "d: holds 2000 milli-GPU in pool default now that are not preemptible,"
        " above its quota of 1000"
    )


def test_quota_is_counted_in_each_pool() -> None:
    pools = [{"name": name, "match": {"pool": name}} for name in ("p", "q")]
    nodes = [node("n0", 2, labels={"pool": "p"}), node("n1", 2, labels={"pool": "q"})]
    queues = [queue(quota=1, pools={"q": {"gpu": {"quota": 0}}})]
    of = made(job(priority=100), nodes=nodes, nodePools=pools, queues=queues)
    assert broken(of, Planner(of).bind("j/t")) == []
    assert "in pool q" in broken(of, Planner(of).bind("j/t", "n1"))[0]


NEAR = [{"topologyKey": "kubernetes.io/hostname", "labels": {}}]


def test_company_is_where_others_are_who_stay() -> None:
    of = made(job("a", on="n0"), job("b", podAffinity=NEAR))
    assert broken(of, Planner(of).bind("b/t", "n0", (1,))) == []
    assert broken(of, Planner(of).bind("b/t", "n1")) == ["b/t: has no company on n1"]


def test_who_waits_for_a_place_is_not_the_first_of_its_kind_where_another_gets_one() -> None:
    of = made(job("v", on="n1"), job("a"), job("b", podAffinity=NEAR))
    alike = Planner(of).bind("a/t").bind("b/t", "n1", (1,))
    assert broken(of, alike) == []
    later = Planner(of).evict("v/t", "b").bind("a/t").nominate("b/t", "n1")
    assert broken(of, later) == ["b/t: has no company on n1"]
    both = Planner(of).evict("v/t", "b").nominate("a/t").nominate("b/t", "n1")
    assert broken(of, both) == ["b/t: has no company on n1"]
    assert broken(of, Planner(of).evict("v/t", "b").nominate("b/t", "n1")) == []
