"""The initial state of a file, and how a cycle's decisions settle."""

from typing import Any

import pytest

from extender.api.demand import Demand
from extender.scenario.clock import pass_time
from extender.scenario.errors import ScenarioError
from extender.scenario.places import Place
from extender.scenario.world import NOW_S, World
from tests.unit.scenario.written import job, node, queue, world


def cards(of: World, id_: str) -> list[int]:
    return [card.index for card in of.tasks[id_].place.cards]


def refuses(match: str, **more: Any) -> None:
    with pytest.raises(ScenarioError, match=match):
        world(**more)


def test_repeated_task_is_numbered_and_a_single_one_is_not() -> None:
    made = world(jobs=[job("a", n=2), job("b")])
    assert list(made.tasks) == ["a/t-0", "a/t-1", "b/t"]


def test_what_the_file_says_is_bound_runs_as_the_first_cycle_begins() -> None:
    task = {"name": "t", "state": "bound", "node": "n0"}
    made = world(jobs=[job("j", tasks=[task])])
    assert made.tasks["j/t"].place.status == "running"


def test_jobs_without_age_are_a_minute_apart_and_the_first_is_oldest() -> None:
    created = world(jobs=[job("a"), job("b"), job("c")]).created_at()
    assert created["b"] - created["a"] == 60
    assert created["c"] - created["b"] == 60
    assert created["c"] < NOW_S


def test_order_in_the_list_breaks_ties_of_age() -> None:
    created = world(jobs=[job("z", age=60), job("y", age=60), job("x", age=3600)]).created_at()
    assert created["x"] < created["z"] < created["y"]


def test_jobs_added_later_are_younger_than_all_before() -> None:
    made = world(jobs=[job("a", age=0)])
    more = world(jobs=[job("b"), job("c")])
    made.add([each.spec for each in more.jobs.values()])
    created = made.created_at()
    assert created["a"] < created["b"] < created["c"] <= NOW_S


def test_what_runs_has_cards_of_its_own() -> None:
    made = world(
        nodes=[node(gpus=4)],
        jobs=[job("half", gpu="0.5", on="n0"), job("two", gpu=2, on="n0"), job("a", on="n0")],
    )
    held = [tuple(cards(made, id_)) for id_ in ("half/t", "two/t", "a/t")]
    assert sorted(card for each in held for card in each) == [0, 1, 2, 3]


def test_same_label_is_the_same_card_of_a_node() -> None:
    made = world(
        nodes=[node("n0", 2), node("n1", 2)],
        jobs=[
            job("a", gpu="0.5", cards=["A"], on="n0"),
            job("b", gpu="0.25", cards=["A"], on="n0"),
            job("c", gpu="0.5", cards=["B"], on="n0"),
            job("d", gpu="0.5", cards=["A"], on="n1"),
        ],
    )
    assert cards(made, "a/t") == cards(made, "b/t")
    assert cards(made, "a/t") != cards(made, "c/t")
    assert made.tasks["d/t"].place.node == "n1"


def test_number_as_a_label_is_that_card_even_when_a_word_comes_first() -> None:
    made = world(
        nodes=[node(gpus=2)],
        jobs=[
            job("word", gpu="0.5", cards=["left"], on="n0"),
            job("number", gpu="0.5", cards=["0"], on="n0"),
        ],
    )
    assert cards(made, "number/t") == [0]
    assert cards(made, "word/t") == [1]


def test_nominated_task_is_promised_the_card_that_is_being_left() -> None:
    made = world(
        nodes=[node(gpus=2)],
        jobs=[
            job("stays", on="n0"),
            job("leaves", on="n0", state="evicted"),
            job("comes", on="n0", state="nominated"),
        ],
    )
    assert cards(made, "comes/t") == cards(made, "leaves/t")


def test_memory_of_a_card_becomes_milli_rounded_up() -> None:
    made = world(
        nodes=[node(gpuMemoryMiB=3000)], jobs=[job("a", gpuMemory=1000, devices=2, on="n0")]
    )
    assert [card.milli for card in made.tasks["a/t"].place.cards] == [334, 334]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({}, (1, 1000, 0)),
        ({"gpu": 3}, (3, 1000, 0)),
        ({"gpu": 0.5}, (1, 500, 0)),
        ({"gpu": "0.25", "devices": 2}, (2, 250, 0)),
        ({"gpuMemory": 20}, (1, 0, 20)),
        ({"gpuMemory": 20, "gpu": 0, "devices": 2}, (2, 0, 20)),
        ({"mig": {"nvidia.com/mig-1g.5gb": 2}}, (0, 0, 0)),
        ({"gpu": 0}, (0, 0, 0)),
    ],
)
def test_request_for_gpus(task: dict[str, Any], expected: tuple[int, int, int]) -> None:
    demand = world(jobs=[job(**task)]).tasks["j/t"].demand
    assert (demand.devices, demand.milli, demand.gpu_memory_mib) == expected


def test_equal_demands_are_one_object() -> None:
    made = world(jobs=[job("a", n=2), job("b")])
    assert len({id(task.demand) for task in made.tasks.values()}) == 1


def test_memory_is_exact_where_whole_mib_would_round_it_away() -> None:
    made = world(nodes=[node(memory="2000")], jobs=[job("a", memory="750", on="n0")])
    assert made.tasks["a/t"].demand.memory_mib == 750
    assert made.cluster.free.memory_mib[0] == 2000


def test_twenty_gigabytes_hold_twenty_tasks_of_one() -> None:
    made = world(nodes=[node(memory="20G")], jobs=[job(n=20, gpu=0)])
    asked: Demand = made.tasks["j/t-0"].demand
    assert 20 * asked.memory_mib == made.cluster.free.memory_mib[0]


def test_contradictions_are_reported() -> None:
    refuses("two jobs are named j", jobs=[job(), job()])
    refuses("two nodes are named n0", nodes=[node(), node()])
    refuses("j/t: there is no node n9", jobs=[job(on="n9")])
    refuses("there is no node pool a100", jobs=[job(nodePools=["a100"])])
    refuses("neither a fraction of a card nor whole", jobs=[job(gpu="1.5")])
    refuses("both by gpu and by gpuMemory", jobs=[job(gpu=1, gpuMemory=5)])
    refuses(
        "needs 2 cards of its own on n0, which has 1",
        nodes=[node(gpus=1)],
        jobs=[job(gpu=2, on="n0")],
    )
    refuses("names 2 cards and asks for 1", jobs=[job(gpu="0.5", cards=["A", "B"], on="n0")])
    refuses(
        "its cards on n0 do not have that much free",
        jobs=[job("a", gpu="0.6", cards=["A"], on="n0"), job("b", gpu="0.6", cards=["A"], on="n0")],
    )
    refuses("is its own ancestor", queues=[{"name": "a", "parent": "a"}])
    refuses("there is no queue z", queues=[{"name": "a", "parent": "z"}])
    refuses(
        "group 'w' is none of v",
        jobs=[
            job(group={"children": [{"name": "v", "min": 1}]}, tasks=[{"name": "t", "group": "w"}])
        ],
    )


def test_settling_lets_bound_run_and_sends_the_others_back() -> None:
    made = world(jobs=[job("a"), job("b"), job("c", on="n0"), job("d", on="n0")])
    after = made.places()
    after["a/t"] = Place("bound", "n0", ())
    after["b/t"] = Place("nominated", "n0", ())
    after["c/t"] = Place("evicted", "n0", made.tasks["c/t"].place.cards)
    made.settle(after)
    words = {id_: task.place.status for id_, task in made.tasks.items()}
    assert words == {"a/t": "running", "b/t": "pending", "c/t": "pending", "d/t": "running"}
    assert made.tasks["a/t"].started_at == NOW_S
    assert made.tasks["d/t"].started_at == NOW_S


def test_evicted_task_of_a_deleted_job_is_gone_and_a_moved_one_waits() -> None:
    made = world(jobs=[job("a", n=2, on="n0", deleted=True)])
    was = made.places()
    after = dict(was)
    after["a/t-0"] = Place("evicted", "n0", was["a/t-0"].cards)
    after["a/t-1"] = Place("nominated", "n0", was["a/t-1"].cards, "n0", was["a/t-1"].cards)
    made.settle(after)
    assert {id_: task.place.status for id_, task in made.tasks.items()} == {"a/t-1": "pending"}


def test_finished_job_holds_nothing_any_more() -> None:
    made = world(jobs=[job("a", on="n0"), job("b")])
    made.finish(["a"])
    assert list(made.tasks) == ["b/t"]
    with pytest.raises(ScenarioError, match="there is no job a"):
        made.finish(["a"])


def test_past_use_that_a_queue_states_fades_as_time_passes_and_grows_by_what_is_held() -> None:
    made = world(
        nodes=[node(gpus=4)],
        queues=[{"name": "a", "usage": {"gpu": "0.5"}}, {"name": "b", "usage": {"gpu": 0}}],
        jobs=[job("j", "b", n=1, gpu=2, on="n0")],
        settings={"usageHalfLife": 1000},
    )
    pass_time(made, 1000)
    used = {
        name: view.pools["default"].gpu.usage_ppm
        for name, view in made.past.views(made.cluster.queue_views).items()
    }
    assert used == {"a": 250_000, "b": 250_000}


def test_what_is_evicted_waits_from_then_on() -> None:
    made = world(jobs=[job("j", on="n0", age=500)])
    made.now_s += 100
    place = made.tasks["j/t"].place
    made.settle({"j/t": Place("evicted", place.node, place.cards)})
    assert made.jobs["j"].waits_since == made.now_s


def test_a_nomination_holds_nothing_until_its_place_is_free() -> None:
    """As in the cluster, where only rows that are reserved or bound count as held."""
    leaving = job("leaving", "a", gpu=2, on="n0", state="evicted")
    next_one = job("next", "b", gpu=2, on="n0", state="nominated")
    made = world(nodes=[node(gpus=2)], queues=[queue("a"), queue("b")], jobs=[leaving, next_one])
    pass_time(made, 3600)
    assert {name for name, _ in made.lately.averages} == {"a", "a/user/"}
