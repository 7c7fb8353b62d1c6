"""Consequences of evictions are decided in the same cycle."""

import pytest

from extender.policy.plan import leaves_with
from extender.scenario.load import case_of
from extender.scenario.outcome import Outcome
from extender.scenario.run import run_cycle
from extender.scenario.world import World
from tests.scenarios.clusters import Entry
from tests.scenarios.static_clusters import PRIORITIES, Tally, cluster, measure, run

STAGES = ["allocate", "consolidate", "reclaim", "preempt", "stale-gangs"]


def entry(**parts: object) -> Entry:
    return {
        "scenario": "v1",
        "id": "follow-up",
        "settings": {"stages": STAGES, "usageWeight": 0},
        **parts,
    }


def first_cycle(given: Entry) -> Outcome:
    return run_cycle(World.of(case_of(given, "test")), 1, lambda: 0)


def one(name: str, queue: str, node: str = "", **more: object) -> Entry:
    task: Entry = {"name": "t", "gpu": more.pop("gpu", 1)}
    if "only" in more:
        task["nodeSelector"] = more.pop("only")
    if node:
        task |= {"state": "running", "node": node}
    return {"name": name, "queue": queue, "tasks": [task], **more}


def two_projects() -> Entry:
    """The owner of one GPU takes a node of 4 from the borrower, who has work of 1 waiting."""
    return entry(
        nodes=[{"name": "n0", "gpus": 4}],
        queues=[{"name": "owner", "gpu": {"quota": 1}}, {"name": "b"}],
        jobs=[
            one("large", "b", "n0", gpu=4),
            one("small", "b"),
            one("own", "owner"),
        ],
    )


def test_leftovers_of_an_eviction_are_allocated_in_the_same_cycle() -> None:
    after = first_cycle(two_projects()).after
    assert [after[id_].status for id_ in ("large/t", "own/t", "small/t")] == [
        "evicted",
        "nominated",
        "nominated",
    ]


def test_a_victim_that_has_another_place_in_the_end_moves_there() -> None:
    """`b` gives one GPU on n0 and, for a later workload, all of n1, where 3 are left over."""
    given = entry(
        nodes=[{"name": "n0", "gpus": 1, "labels": {"x": "y"}}, {"name": "n1", "gpus": 4}],
        queues=[{"name": "owner", "gpu": {"quota": 2}}, {"name": "b"}],
        jobs=[
            one("small", "b", "n0", runningFor=10),
            one("large", "b", "n1", gpu=4, runningFor=10_000),
            one("first", "owner", only={"x": "y"}),
            one("second", "owner"),
        ],
    )
    outcome = first_cycle(given)
    assert outcome.after["small/t"].is_moved
    assert outcome.after["small/t"].node == "n1"
    assert [move.beneficiary for move in outcome.plan.moves] == ["default/first"]


def protected_young_work(own: Entry) -> Entry:
    """The owner may reclaim from `high` alone, which then preempts `low`."""
    return entry(
        nodes=[{"name": "n0", "gpus": 1, "labels": {"x": "y"}}, {"name": "n1", "gpus": 1}],
        queues=[
            {"name": "owner", "gpu": {"quota": 1}},
            {"name": "b", "reclaimMinRuntime": 600},
        ],
        jobs=[
            one("high", "b", "n0", runningFor=1000),
            one("low", "b", "n1", priority=25, runningFor=100),
            own,
        ],
    )


def test_a_victim_stays_where_its_beneficiary_fits_the_place_that_it_would_move_to() -> None:
    outcome = first_cycle(protected_young_work(one("own", "owner")))
    after = {id_: (now.status, now.node) for id_, now in outcome.after.items()}
    assert after["high/t"] == ("running", "n0")
    assert after["low/t"][0] == "evicted"
    assert after["own/t"] == ("nominated", "n1")
    assert [each.beneficiary for each in outcome.plan.evictions] == ["default/own"]


def test_a_victim_moves_where_its_beneficiary_does_not_fit_the_other_place() -> None:
    outcome = first_cycle(protected_young_work(one("own", "owner", only={"x": "y"})))
    assert outcome.after["high/t"].is_moved
    assert outcome.after["own/t"].node == "n0"


def scarce_cpu() -> Entry:
    """Two nominations and a running pod use the CPU of n0; `new` takes the place of `old`. On n1 a
    borrower is evicted, so that a second round follows."""
    on_n0, on_n1 = ({"kubernetes.io/hostname": name} for name in ("n0", "n1"))
    jobs = [
        one("half", "o", "n0", gpu="0.5", priority=100, runningFor=9),
        one("old", "l", "n0"),
        one("kept", "p", "n0"),
        one("new", "o", gpu="0.5", only=on_n0),
        one("borrows", "l", "n1", runningFor=90),
        one("owner", "z", only=on_n1),
    ]
    tasks = {job["name"]: job["tasks"][0] for job in jobs}
    tasks["half"]["cards"] = ["3"]
    tasks["old"] |= {"state": "nominated", "cards": ["0"]}
    tasks["kept"] |= {"state": "nominated", "cards": ["1"], "cpu": "4"}
    return entry(
        nodes=[{"name": "n0", "gpus": 4, "cpu": "6"}, {"name": "n1", "gpus": 1}],
        queues=[{"name": name, "gpu": {"quota": 1}} for name in ("o", "p", "z")] + [{"name": "l"}],
        jobs=jobs,
    )


def test_a_nomination_given_up_in_one_round_takes_nothing_from_others_in_the_next() -> None:
    outcome = first_cycle(scarce_cpu())
    assert outcome.plan.drops == ["default/old"]
    after = [outcome.after[id_].status for id_ in ("kept/t", "new/t", "borrows/t")]
    assert after == ["bound", "nominated", "evicted"]


def test_a_stale_gang_that_fits_elsewhere_as_a_whole_moves_there_for_no_other_workload() -> None:
    tasks = [
        {"name": "t0", "gpu": 1, "state": "running", "node": "n0"},
        {"name": "t1", "gpu": 1},
    ]
    given = entry(
        topologies=[{"name": "t", "levels": [{"label": "rack"}]}],
        nodes=[{"name": f"n{at}", "gpus": 2, "labels": {"rack": f"r{at}"}} for at in range(2)],
        queues=[{"name": "a", "gpu": {"quota": 4}}],
        jobs=[
            one("other", "a", "n0", priority=125),
            {
                "name": "gang",
                "queue": "a",
                "runningFor": 500,
                "stale": {"for": 100, "grace": 60},
                "group": {"min": 2, "topology": {"name": "t", "required": "rack"}},
                "tasks": tasks,
            },
        ],
    )
    outcome = first_cycle(given)
    assert outcome.after["gang/t0"].is_moved
    assert outcome.after["gang/t0"].node == outcome.after["gang/t1"].node == "n1"
    assert [(each.beneficiary, leaves_with(each)) for each in outcome.plan.moves] == [
        ("", "default/gang")
    ]


def test_a_pod_that_would_be_evicted_in_the_next_cycle_does_not_start() -> None:
    """After `worse` has the place that is left over, `better` would evict it."""
    given = entry(
        nodes=[{"name": "n0", "gpus": 4}],
        queues=[{"name": "owner", "gpu": {"quota": 2}}, {"name": "b", "gpu": {"quota": 1}}],
        jobs=[
            one("large", "b", "n0", gpu=4, priority=25),
            one("own", "owner", gpu=2),
            {
                "name": "better",
                "queue": "b",
                "priority": 75,
                "group": {"min": 1},
                "tasks": [{"name": "t0", "gpu": 1}, {"name": "t1", "gpu": 1}],
            },
            one("worse", "b", priority=50),
        ],
    )
    after = first_cycle(given).after
    assert after["better/t0"].status == after["better/t1"].status == "nominated"
    assert after["worse/t"].status == "pending"


def test_every_eviction_is_for_work_that_is_given_a_place() -> None:
    for at in range(30):
        given = first_cycle(_static(at))
        placed = {a.workload.key for a in given.plan.admissions if a.state == "nominated"}
        moved = {move.workload for move in given.plan.moves}
        for_which = {eviction.beneficiary for eviction in given.plan.evictions}
        for_which |= {move.beneficiary for move in given.plan.moves}
        assert for_which <= placed | moved


def _static(at: int) -> Entry:
    return cluster(at, PRIORITIES["five"])


@pytest.mark.parametrize("name", PRIORITIES)
def test_static_clusters_evict_in_the_first_cycle_only_and_none_in_vain(name: str) -> None:
    tally = measure(PRIORITIES[name])
    assert tally.n_evicted > 200
    assert tally.n_late <= tally.n // 100
    assert tally.n_in_vain == 0


def test_a_pool_that_spreads_starts_nothing_that_the_next_cycle_moves() -> None:
    tally = Tally()
    for at in range(60):
        given = cluster(at, PRIORITIES["two"])
        given["settings"] |= {"placement": {"gpu": "spread"}}
        for job in given["jobs"]:
            job["tasks"] = [{"name": task["name"], "gpu": task["gpu"]} for task in job["tasks"]]
        run(given, tally)
    assert tally.n == 0
