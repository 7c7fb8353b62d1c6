"""Disruption budgets as a constraint of plans: counted, all or nothing, up to a deadline."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster, counts


def borrowed(policy: Any = "fairshare") -> Cluster:
    """Project a has borrowed all eight cards: a gang of four under a budget, and four others."""
    cluster = Cluster()
    cluster.pool("default", policy=policy)
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=0)
    cluster.project("b", quota=8)
    cluster.job("gang", "a", pods=4, on="n0", ran=10, budgets=("ns/web",))
    for at in range(4):
        cluster.job(f"free-{at}", "a", on="n0", ran=1000 + at)
    return cluster


def evicted(plan: Plan) -> set[str]:
    return {eviction.pod.name for eviction in plan.evictions}


def test_a_gang_is_not_begun_that_its_budget_would_not_let_go_whole() -> None:
    cluster = borrowed()
    cluster.budgets["ns/web"] = 1
    cluster.job("owner", "b", 4)
    assert evicted(decide(cluster.snapshot())) == {f"free-{at}-0" for at in range(4)}


def test_a_gang_goes_whole_when_its_budget_allows_all_of_it() -> None:
    cluster = borrowed()
    cluster.budgets["ns/web"] = 4
    cluster.job("owner", "b", 4)
    assert evicted(decide(cluster.snapshot())) == {f"gang-{at}" for at in range(4)}


def test_an_eviction_that_budgets_delay_is_reported_with_its_deadline() -> None:
    cluster = borrowed()
    cluster.budgets["ns/web"] = 3
    cluster.job("owner", "b", 8)
    plan = decide(cluster.snapshot())
    assert plan.evictions == []
    assert {(each.uid, each.until) for each in plan.held_back} == {
        (f"gang-{at}", NOW_S + 120) for at in range(4)
    }
    refused = plan.waits["ns/owner"]
    assert refused.reason is Reason.VICTIMS_PROTECTED
    told = "a pod of project a: PodDisruptionBudget ns/web allows 3 disruptions, for 120 s at most"
    assert refused.detail == f"ns/owner: {told}"


def test_no_deadline_begins_for_work_for_which_nothing_may_be_evicted() -> None:
    cluster = borrowed()
    cluster.budgets["ns/web"] = 3
    cluster.job("first", "b")
    doubt = Refused(Reason.CLAIMS_NOT_MET, "ns/owner: nothing is evicted for it")
    cluster.job("owner", "b", 7, doubt=doubt)
    plan = decide(cluster.snapshot())
    assert (plan.held_back, plan.waits["ns/owner"]) == ([], doubt)


def test_a_project_may_state_another_deadline() -> None:
    cluster = borrowed()
    cluster.projects["a"] = replace(cluster.projects["a"], disruption_budget_s=10)
    cluster.budgets["ns/web"] = 0
    cluster.job("owner", "b", 8)
    assert {each.until for each in decide(cluster.snapshot()).held_back} == {NOW_S + 10}


def test_reclaim_takes_the_gang_once_the_deadline_has_passed() -> None:
    cluster = borrowed()
    cluster.budgets["ns/web"] = 0
    cluster.job("owner", "b", 8)
    plan = decide(cluster.snapshot(), Settings(held_since={("ns/web",): NOW_S - 120}))
    assert len(plan.evictions) == 8
    assert plan.held_back == []


def test_a_deadline_that_has_not_passed_is_kept() -> None:
    cluster = borrowed()
    cluster.budgets["ns/web"] = 0
    cluster.job("owner", "b", 8)
    plan = decide(cluster.snapshot(), Settings(held_since={("ns/web",): NOW_S - 115}))
    assert plan.evictions == []
    assert {each.until for each in plan.held_back} == {NOW_S + 5}


def test_no_more_pods_of_a_budget_are_taken_than_it_allows_over_all_beneficiaries() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=0)
    cluster.project("b", quota=8)
    for at in range(8):
        cluster.job(f"web-{at}", "a", on="n0", budgets=("ns/web",))
    cluster.budgets["ns/web"] = 3
    for at in range(5):
        cluster.job(f"owner-{at}", "b")
    plan = decide(cluster.snapshot())
    assert len(plan.evictions) == 3
    told = [each.reason for each in plan.waits.values()]
    assert told == [Reason.VICTIMS_PROTECTED] * 2


def test_a_pod_under_two_budgets_is_never_evicted() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", quota=0)
    cluster.project("b", quota=1)
    cluster.job("web", "a", on="n0", budgets=("ns/one", "ns/two"))
    cluster.budgets |= {"ns/one": 5, "ns/two": 5}
    cluster.job("owner", "b")
    plan = decide(cluster.snapshot())
    assert plan.evictions == []
    assert "ns/one and ns/two" in plan.waits["ns/owner"].detail


def test_a_pod_whose_eviction_was_refused_keeps_its_gang_whole() -> None:
    cluster = borrowed()
    cluster.job("owner", "b", 4)
    plan = decide(cluster.snapshot(), Settings(protected_pods=frozenset({"gang-2"})))
    assert evicted(plan) == {f"free-{at}-0" for at in range(4)}


def fragmented(allowed: int) -> Cluster:
    """A pod of two cards fits once one of two pods under a budget moves to the other's node."""
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.node("n1", gpus=2)
    cluster.project("a", quota=2)
    cluster.project("b", quota=2)
    cluster.job("one", "a", on="n0", budgets=("ns/web",))
    cluster.job("two", "a", on="n1", budgets=("ns/web",))
    cluster.budgets["ns/web"] = allowed
    cluster.job("big", "b", 2)
    return cluster


def test_a_pod_is_moved_where_its_budget_allows_it() -> None:
    assert len(decide(fragmented(1).snapshot()).moves) == 1


def test_a_budget_binds_moves_even_beyond_the_deadline() -> None:
    settings = Settings(held_since={("ns/web",): NOW_S - 500})
    plan = decide(fragmented(0).snapshot(), settings)
    assert not plan.moves


@pytest.mark.parametrize("policy", ["priority", "demand-weighted"])
@pytest.mark.parametrize("left", [0, 1])
def test_other_policies_obey_budgets_too(policy: str, left: int) -> None:
    cluster = borrowed(policy)
    cluster.budgets["ns/web"] = left
    for at in range(8):
        cluster.job(f"owner-{at}", "b", priority=90)
    plan = decide(cluster.snapshot())
    assert not any(name.startswith("gang") for name in evicted(plan))
    assert {each.uid for each in plan.held_back} == {f"gang-{at}" for at in range(4)}


def test_a_stale_gang_is_taken_down_only_as_its_budget_allows() -> None:
    cluster = borrowed()
    stale = {"min_member": 5, "stale_since": NOW_S - 100, "stale_grace_s": 60}
    cluster.workloads["ns/gang"] = structs.replace(cluster.workloads["ns/gang"], **stale)
    cluster.budgets["ns/web"] = 3
    plan = decide(cluster.snapshot())
    assert plan.evictions == []
    assert len(plan.held_back) == 4
    cluster.budgets["ns/web"] = 4
    assert len(decide(cluster.snapshot()).evictions) == 4


def test_budgets_change_nothing_where_they_allow_enough() -> None:
    bound, free = borrowed(), borrowed()
    bound.budgets["ns/web"] = 100
    for cluster in (bound, free):
        cluster.job("owner", "b", 6)
    assert counts(decide(bound.snapshot())) == counts(decide(free.snapshot()))
