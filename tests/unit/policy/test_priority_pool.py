"""Node pools of policy `priority` (rules of shared/scenarios/determined)."""

from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import Constraints
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster, allocated, counts, statuses

NOWHERE = Constraints(node_selector=(("no", "such"),))


def pool_of(*gpus: int, **view: Any) -> Cluster:
    """Nodes n0, n1, ...; one project `a` with a quota that never binds."""
    cluster = Cluster()
    cluster.pool("default", policy="priority", **view)
    for at, count in enumerate(gpus):
        cluster.node(f"n{at}", gpus=count)
    cluster.department("everybody", 1000)
    cluster.project("a", 1000)
    return cluster


def test_highest_priority_goes_first_whatever_the_project() -> None:
    cluster = pool_of(2)
    cluster.project("b")
    cluster.job("a-job", "a", 2, priority=60)
    cluster.job("b-job", "b", 2, priority=61)
    assert statuses(decide(cluster.snapshot())) == {"b-job-0": "reserved"}


def test_older_goes_first_within_a_priority() -> None:
    cluster = pool_of(2)
    cluster.job("young", "a", 2, age=10)
    cluster.job("old", "a", 2, age=20)
    assert statuses(decide(cluster.snapshot())) == {"old-0": "reserved"}


def test_pods_of_the_older_search_go_before_a_younger_one() -> None:
    cluster = pool_of(3)
    cluster.job("old", "a", pods=3, min=1)
    cluster.job("young", "a", pods=3, min=1)
    assert counts(decide(cluster.snapshot())) == {("old", "reserved"): 3}


def test_what_does_not_fit_does_not_stop_its_own_priority() -> None:
    cluster = pool_of(4, has_preemption=False)
    cluster.job("large", "a", 5)
    cluster.job("small", "a", 1)
    assert statuses(decide(cluster.snapshot())) == {"small-0": "reserved"}


def test_worse_priorities_wait_without_preemption() -> None:
    cluster = pool_of(4, has_preemption=False)
    cluster.job("runs", "a", 1, on="n0", priority=90)
    cluster.job("large", "a", 4, priority=60)
    cluster.job("small", "a", 1, priority=50)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {}
    assert plan.waits["ns/small"].reason is Reason.WAITING_FOR_TURN


@pytest.mark.parametrize("preemptible", [True, False])
def test_only_preemptible_work_fills_in_with_preemption(preemptible: bool) -> None:
    cluster = pool_of(4)
    cluster.job("runs", "a", 1, on="n0", priority=90)
    cluster.job("large", "a", 4, priority=60)
    cluster.job("small", "a", 1, priority=50, preemptible=preemptible)
    expected = {"small-0": "reserved"} if preemptible else {}
    assert statuses(decide(cluster.snapshot())) == expected


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"gpus": 5}, id="larger than every node"),
        pytest.param({"constraints": NOWHERE}, id="no node has its label"),
        pytest.param({"gpus": 5, "pods": 2}, id="a gang of pods larger than every node"),
    ],
)
@pytest.mark.parametrize("has_preemption", [True, False])
def test_work_that_could_never_start_holds_up_no_worse_priority(
    has_preemption: bool, job: dict[str, Any]
) -> None:
    cluster = pool_of(4, has_preemption=has_preemption)
    cluster.job("runs", "a", 3, on="n0", priority=90)
    cluster.job("typo", "a", priority=60, **job)
    cluster.job("notebook", "a", 1, priority=50, preemptible=False)
    assert statuses(decide(cluster.snapshot())) == {"notebook-0": "reserved"}


def test_work_above_its_limit_does_not_block_other_work() -> None:
    cluster = pool_of(4, has_preemption=False)
    cluster.project("b", 1000, limit=1)
    cluster.job("bounded", "b", 2, priority=60)
    cluster.job("small", "a", 1, priority=50)
    assert statuses(decide(cluster.snapshot())) == {"small-0": "reserved"}


def test_zero_slot_work_is_not_held_up_by_gpu_work() -> None:
    cluster = pool_of(4, has_preemption=False)
    cluster.job("large", "a", 5, priority=60)
    cluster.job("notebook", "a", 0, cpu=1, priority=10)
    assert statuses(decide(cluster.snapshot())) == {"notebook-0": "reserved"}


def test_worst_priority_is_stopped_first_and_in_it_the_newest() -> None:
    cluster = pool_of(4)
    cluster.job("better", "a", 1, on="n0", priority=52)
    cluster.job("old", "a", 1, on="n0", priority=51, age=900)
    cluster.job("new", "a", 1, on="n0", priority=51, age=30)
    cluster.job("mid", "a", 1, on="n0", priority=51, age=60)
    cluster.job("claim", "a", 2, priority=90)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"new-0": "evicted", "mid-0": "evicted", "claim-0": "nominated"}
    assert {eviction.reason for eviction in plan.evictions} == {Reason.PREEMPTED}
    assert {eviction.beneficiary for eviction in plan.evictions} == {"ns/claim"}


def test_none_is_stopped_that_is_not_needed() -> None:
    # The worst stands alone on a node that is too small; the next one is enough.
    cluster = pool_of(1, 4)
    cluster.job("worst", "a", 1, on="n0", priority=10)
    cluster.job("bad", "a", 4, on="n1", priority=20)
    cluster.job("claim", "a", 4, priority=90)
    assert statuses(decide(cluster.snapshot())) == {"bad-0": "evicted", "claim-0": "nominated"}


def test_no_pod_is_evicted_in_vain() -> None:
    cluster = pool_of(4, 4)
    cluster.job("better", "a", 1, on="n0", priority=60)
    cluster.job("worse", "a", 4, on="n1", priority=40)
    cluster.job("gang", "a", 4, pods=2, priority=50)
    assert statuses(decide(cluster.snapshot())) == {}


@pytest.mark.parametrize("protected", [{"priority": 90}, {"preemptible": False}])
def test_equal_priority_and_non_preemptible_work_stay(protected: dict[str, Any]) -> None:
    cluster = pool_of(2)
    cluster.job("runs", "a", 2, on="n0", **{"priority": 40, **protected})
    cluster.job("claim", "a", 2, priority=90, preemptible=True)
    assert statuses(decide(cluster.snapshot())) == {}


def test_gang_is_stopped_whole_and_surplus_singly() -> None:
    cluster = pool_of(4)
    cluster.job("gang", "a", pods=2, on="n0", priority=40)
    cluster.job("elastic", "a", pods=2, min=1, on="n0", priority=41)
    cluster.job("claim", "a", 3, priority=90)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {
        ("gang", "evicted"): 2,
        ("elastic", "evicted"): 1,
        ("claim", "nominated"): 1,
    }


def test_better_work_takes_its_victims_before_worse_work_fills_in() -> None:
    cluster = pool_of(4)
    cluster.job("worst", "a", 2, on="n0", priority=40)
    cluster.job("large", "a", 4, priority=90)
    cluster.job("filler", "a", 2, priority=50)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"worst-0": "evicted", "large-0": "nominated"}


def test_no_pod_is_evicted_if_the_stage_is_left_out() -> None:
    cluster = pool_of(4)
    cluster.job("worst", "a", 4, on="n0", priority=40)
    cluster.job("claim", "a", 4, priority=90)
    plan = allocated(cluster)
    assert statuses(plan) == {}


def test_protected_pods_and_minimum_runtimes_are_respected() -> None:
    cluster = pool_of(4)
    cluster.job("worst", "a", 4, on="n0", priority=40)
    cluster.job("claim", "a", 4, priority=90)
    plan = decide(cluster.snapshot(), Settings(protected_pods=frozenset({"worst-0"})))
    assert statuses(plan) == {}


def test_other_pools_share_fairly_beside_it() -> None:
    cluster = pool_of(2)
    cluster.node("m0", gpus=2, pool="fair")
    cluster.project("b")
    cluster.job("a-fair", "a", pods=2, min=1, pools=["fair"])
    cluster.job("b-fair", "b", pods=2, min=1, pools=["fair"], priority=90)
    cluster.job("second-choice", "a", 2, pools=["fair", "default"])
    got = counts(decide(cluster.snapshot()))
    assert got["second-choice", "reserved"] == 1


def test_search_takes_no_more_than_all_its_pods_need_together() -> None:
    # One by one it would stop the single, then the gang of two, which leaves one GPU idle.
    cluster = pool_of(3)
    cluster.job("single", "a", 1, on="n0", priority=10, age=10)
    cluster.job("gang", "a", pods=2, on="n0", priority=10, age=900)
    cluster.job("search", "a", pods=2, min=1, priority=90)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("gang", "evicted"): 2, ("search", "nominated"): 2}


def test_leftovers_of_one_preemptor_spare_the_victim_of_another() -> None:
    # The first stops a pod on n1; the second stops a gang that also leaves a GPU of n1.
    cluster = pool_of(2, 2)
    cluster.job("gang", "a", pods=3, on=["n0", "n0", "n1"], priority=10, age=900)
    cluster.job("single", "a", 1, on="n1", priority=10, age=10)
    cluster.job("first", "a", 1, priority=91)
    cluster.job("second", "a", 2, priority=90)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {
        ("gang", "evicted"): 3,
        ("first", "nominated"): 1,
        ("second", "nominated"): 1,
    }


def test_work_that_gives_does_not_grow() -> None:
    cluster = pool_of(2)
    cluster.job("elastic", "a", "0.5", pods=2, min=2, on="n0", waiting=1, priority=10)
    cluster.job("claim", "a", 2, priority=90)
    assert counts(decide(cluster.snapshot())) == {
        ("elastic", "evicted"): 2,
        ("claim", "nominated"): 1,
    }


def test_no_pod_is_evicted_before_the_delay_has_passed() -> None:
    cluster = pool_of(1)
    cluster.job("worst", "a", 1, on="n0", priority=10)
    cluster.job("claim", "a", 1, priority=90)
    view = cluster.workloads["ns/claim"]
    cluster.workloads[view.key] = replace(view, preemption_delay_s=60, waits_since=NOW_S - 59)
    assert statuses(decide(cluster.snapshot())) == {}
    cluster.workloads[view.key] = replace(view, preemption_delay_s=60, waits_since=NOW_S - 60)
    assert statuses(decide(cluster.snapshot()))["claim-0"] == "nominated"
