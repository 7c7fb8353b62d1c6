"""Node pools of policy `demand-weighted` (rules of shared/scenarios/determined)."""

from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import Constraints, GroupView, PoolQuota
from tests.support.snapshots import Cluster, counts, fair_shares, statuses


def pool_of(*gpus: int, **view: Any) -> Cluster:
    cluster = Cluster()
    cluster.pool("default", policy="demand-weighted", **view)
    for at, count in enumerate(gpus):
        cluster.node(f"n{at}", gpus=count)
    return cluster


def search(cluster: Cluster, queue: str, pods: int, **job: Any) -> None:
    """A queue's jobs: as many independent pods of one GPU."""
    cluster.job(f"{queue}-jobs", queue, pods=pods, min=1, **job)


def shares_of(cluster: Cluster) -> dict[str, int]:
    return {n: milli // 1000 for n, milli in fair_shares(decide(cluster.snapshot())).items()}


@pytest.mark.parametrize(
    ("weights", "demands", "shares"),
    [
        pytest.param((1, 1), (10, 30), (2, 6), id="by demand"),
        pytest.param((3, 1), (10, 30), (4, 4), id="by demand times weight"),
        pytest.param((10, 30), (3, 7), (1, 7), id="capped by demand"),
        pytest.param((10, 1), (2, 10), (2, 6), id="the rest is divided again"),
        pytest.param((1, 1), (2, 2), (2, 2), id="all that is wanted"),
    ],
)
def test_shares_go_by_demand_times_weight(
    weights: tuple[int, int], demands: tuple[int, int], shares: tuple[int, int]
) -> None:
    cluster = pool_of(8)
    for name, weight, pods in zip("xy", weights, demands, strict=True):
        cluster.project(name, weight=weight)
        search(cluster, name, pods)
    plan = decide(cluster.snapshot())
    assert tuple(fair_shares(plan)[name] // 1000 for name in "xy") == shares
    assert counts(plan) == {
        (f"{n}-jobs", "reserved"): share for n, share in zip("xy", shares, strict=True)
    }


def test_limit_caps_the_claim() -> None:
    cluster = pool_of(8)
    cluster.project("x", limit=2)
    cluster.project("y")
    search(cluster, "x", 20)
    search(cluster, "y", 30)
    assert shares_of(cluster) == {"x": 1, "y": 7}


def test_share_too_small_for_any_task_is_put_aside_the_newest_first() -> None:
    cluster = pool_of(2)
    for name in "xy":
        cluster.project(name)
        cluster.job(f"{name}-job", name, 2)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"x-job-0": "reserved"}
    assert fair_shares(plan) == {"x": 2000, "y": 0}


def test_gang_counts_as_one_task() -> None:
    cluster = pool_of(2, 2)
    cluster.project("x")
    cluster.project("y")
    cluster.job("gang", "x", 2, pods=2)
    search(cluster, "y", 4)
    assert counts(decide(cluster.snapshot())) == {("y-jobs", "reserved"): 4}


def test_requests_that_can_never_be_placed_do_not_count() -> None:
    cluster = pool_of(4)
    cluster.project("x")
    cluster.project("y")
    cluster.job("too-large", "x", 5)
    cluster.job("nowhere", "x", 4, constraints=Constraints(node_selector=(("no", "such"),)))
    search(cluster, "y", 4)
    assert shares_of(cluster) == {"x": 0, "y": 4}


def test_non_preemptible_work_has_its_gpus_first() -> None:
    cluster = pool_of(8)
    cluster.department("everybody", 8)
    cluster.project("x", 4)
    cluster.project("y")
    search(cluster, "x", 4, kind="build")
    search(cluster, "y", 36)
    assert shares_of(cluster) == {"x": 4, "y": 4}


def test_nothing_starts_beyond_the_share_even_if_gpus_stay_idle() -> None:
    cluster = pool_of(4)
    cluster.project("x")
    cluster.project("y")
    cluster.job("large", "x", 4)
    cluster.job("small", "y", 1)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"small-0": "reserved"}
    assert plan.waits["ns/large"].reason is Reason.OVER_FAIR_SHARE


def test_one_gpu_is_reported_in_the_singular() -> None:
    cluster = pool_of(2)
    cluster.project("x", limit=1)
    cluster.job("runs", "x", on="n0")
    cluster.job("second", "x")
    given = decide(cluster.snapshot()).waits["ns/second"]
    assert given.detail == "ns/second: needs 1 GPU, x has 1 GPU of its limit of 1 GPU"


def test_newcomer_gets_its_share_on_a_full_pool() -> None:
    cluster = pool_of(8)
    cluster.project("x")
    cluster.project("y")
    search(cluster, "x", 8, on="n0")
    search(cluster, "y", 8)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("x-jobs", "evicted"): 4, ("y-jobs", "nominated"): 4}
    assert {eviction.beneficiary for eviction in plan.evictions} == {"ns/y-jobs"}
    assert {eviction.reason for eviction in plan.evictions} == {Reason.RECLAIMED}


def test_lowered_limit_evicts_what_ran_least_though_nothing_waits() -> None:
    cluster = pool_of(4)
    cluster.project("x", limit=2)
    for ran in (100, 200, 300, 400):
        cluster.job(f"ran-{ran}", "x", on="n0", ran=ran)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"ran-100-0": "evicted", "ran-200-0": "evicted"}
    assert {eviction.beneficiary for eviction in plan.evictions} == {""}


def test_no_more_is_stopped_than_brings_the_queue_to_its_share() -> None:
    cluster = pool_of(4)
    cluster.project("x", limit=1)
    cluster.job("old", "x", 1, on="n0", age=900)
    cluster.job("new", "x", 3, on="n0", age=100)
    assert statuses(decide(cluster.snapshot())) == {"new-0": "evicted"}


def test_non_preemptible_work_stays_above_the_share() -> None:
    cluster = pool_of(4)
    cluster.project("x", 4, limit=2)
    cluster.job("build", "x", 4, on="n0", kind="build")
    assert statuses(decide(cluster.snapshot())) == {}


@pytest.mark.parametrize("way", ["pool", "stage"])
def test_no_pod_is_evicted_without_preemption(way: str) -> None:
    cluster = pool_of(4, has_preemption=way != "pool")
    cluster.project("x", limit=2)
    search(cluster, "x", 4, on="n0")
    stages = ("allocate", "reclaim") if way == "pool" else ("allocate",)
    assert statuses(decide(cluster.snapshot(), Settings(stages=stages))) == {}  # type: ignore[arg-type]


def test_a_share_that_a_queue_cannot_use_goes_to_other_queues() -> None:
    # x would have 2 of 4: too much for what runs, and too little for what waits.
    cluster = pool_of(4)
    cluster.project("y")
    cluster.project("x")
    cluster.job("runs", "x", 1, on="n0")
    cluster.job("waits", "x", 3)
    search(cluster, "y", 4)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("y-jobs", "reserved"): 3}
    assert fair_shares(plan) == {"x": 1000, "y": 3000}


def test_zero_slot_work_starts_where_it_fits() -> None:
    cluster = pool_of(1)
    cluster.project("x")
    search(cluster, "x", 1, on="n0")
    cluster.job("notebook", "x", 0, cpu=1)
    assert statuses(decide(cluster.snapshot())) == {"notebook-0": "reserved"}


def test_departments_divide_by_the_claims_below_them() -> None:
    cluster = pool_of(8)
    for name in ("d1", "d2"):
        cluster.department(name, weight=1)
    cluster.project("a", department="d1")
    cluster.project("b", department="d1")
    cluster.project("c", department="d2")
    search(cluster, "a", 4)
    search(cluster, "b", 12)
    search(cluster, "c", 16)
    assert shares_of(cluster) == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize("where", [{"on": "n0"}, {}], ids=["runs", "waits"])
def test_gang_beside_a_large_search_has_its_smallest_task(where: dict[str, str]) -> None:
    cluster = pool_of(6)
    cluster.project("x")
    cluster.project("y")
    cluster.job("gang", "y", 1, pods=4, **where)
    search(cluster, "x", 18)
    plan = decide(cluster.snapshot())
    assert fair_shares(plan) == {"x": 2000, "y": 4000}
    assert counts(plan)["x-jobs", "reserved"] == 2


def test_workloads_of_a_project_share_by_their_own_demand_and_weight() -> None:
    cluster = pool_of(8)
    cluster.project("x")
    cluster.job("a", "x", pods=10, min=1)
    cluster.job("b", "x", pods=30, min=1)
    assert counts(decide(cluster.snapshot())) == {("a", "reserved"): 2, ("b", "reserved"): 6}
    cluster.workloads["ns/a"] = replace(cluster.workloads["ns/a"], weight=3)
    assert counts(decide(cluster.snapshot())) == {("a", "reserved"): 4, ("b", "reserved"): 4}


def test_weight_of_a_workload_takes_nothing_from_other_projects() -> None:
    cluster = pool_of(8)
    cluster.project("x")
    cluster.project("y")
    search(cluster, "x", 8)
    search(cluster, "y", 8)
    cluster.workloads["ns/x-jobs"] = replace(cluster.workloads["ns/x-jobs"], weight=100)
    assert shares_of(cluster) == {"x": 4, "y": 4}


def test_where_not_all_have_their_smallest_task_what_runs_longest_goes_on() -> None:
    cluster = pool_of(2)
    cluster.project("x")
    cluster.job("waits", "x", age=900)
    for ran in (300, 200):
        cluster.job(f"ran-{ran}", "x", on="n0", ran=ran, age=500)
    assert statuses(decide(cluster.snapshot())) == {}


def test_better_priority_of_a_project_has_its_smallest_task_first() -> None:
    cluster = pool_of(1)
    cluster.project("x")
    cluster.job("older", "x", age=900)
    cluster.job("better", "x", priority=75, age=100)
    assert statuses(decide(cluster.snapshot())) == {"better-0": "reserved"}


def test_notebook_needs_no_quota_but_is_bounded_by_one_that_is_stated() -> None:
    cluster = pool_of(8)
    cluster.project("x")
    cluster.project("y", 1)
    for name in "xy":
        cluster.job(f"{name}-books", name, pods=2, min=1, preemptible=False)
    search(cluster, "x", 40)
    plan = decide(cluster.snapshot())
    assert counts(plan)["y-books", "reserved"] == 1
    assert counts(plan)["x-books", "reserved"] == 1


def test_many_waiting_notebooks_take_no_more_than_their_share() -> None:
    cluster = pool_of(8)
    cluster.project("x")
    cluster.project("y")
    cluster.job("books", "x", pods=100, min=1, preemptible=False)
    search(cluster, "y", 100)
    assert shares_of(cluster) == {"x": 4, "y": 4}


def test_work_without_gpus_starts_by_age_and_holds_up_nothing() -> None:
    cluster = Cluster()
    cluster.pool("default", policy="demand-weighted", job_order="strict-fifo")
    cluster.node("n0", gpus=0, cpu=4)
    cluster.project("x")
    cluster.project("y")
    cluster.job("large", "x", 0, cpu=5, age=900)
    cluster.job("older", "x", 0, cpu=2, age=500, priority=10)
    cluster.job("other", "x", 0, cpu=2, age=400)
    cluster.job("newer", "y", 0, cpu=1, age=100, priority=90)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"older-0": "reserved", "other-0": "reserved"}


def test_subgroup_that_started_keeps_the_share_that_it_started_with() -> None:
    # Of the tree either `pair` runs, whose two pods stand or fall together, or `one`.
    tree = GroupView(
        name="",
        min_groups=1,
        children=(
            GroupView(
                name="pair",
                min_groups=2,
                children=(GroupView(name="a", min_member=1), GroupView(name="b", min_member=1)),
            ),
            GroupView(name="one", min_member=1),
        ),
    )
    cluster = pool_of(2, 2)
    cluster.project("x")
    cluster.job("tree", "x", pods=2, groups=["a", "b"], tree=tree, on=["n0", "n0"])
    search(cluster, "x", 40)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("x-jobs", "reserved"): 2}


def test_what_starts_in_one_pool_takes_nothing_in_the_other() -> None:
    # The pods of b are made by no controller: once evicted they do not come back.
    cluster = Cluster()
    for name in ("first", "second"):
        cluster.pool(name, policy="demand-weighted")
        cluster.node(f"in-{name}", gpus=4, pool=name)
    cluster.project("a", pools={"first": PoolQuota(), "second": PoolQuota()})
    cluster.project("b", pools={"first": PoolQuota(), "second": PoolQuota()})
    cluster.job("a-search", "a", pods=4, min=1, pools=("first", "second"))
    cluster.job("b-search", "b", pods=4, min=1, pools=("second",), on="in-second")
    bare = cluster.workloads["ns/b-search"]
    pods = tuple(replace(pod, is_controlled=False) for pod in bare.pods)
    cluster.workloads[bare.key] = replace(bare, pods=pods)
    assert counts(decide(cluster.snapshot())) == {("a-search", "reserved"): 4}
