"""Workloads that kube-scheduler may refuse to bind: their placement and victims."""

from typing import Any

import pytest

from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement
from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.state.model import Constraints, PoolView
from extender.state.refusals import Refusals
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster, counts

DOUBT = Refused(Reason.CLAIMS_NOT_MET, "ns/taker-0: nothing is evicted for a pod with hostPort")


def borrowed(**taker: Any) -> Cluster:
    """Project b holds all eight cards; a, which owns four of them, wants two."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=4)
    cluster.project("b", quota=4)
    cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
    cluster.job("taker", "a", 2, **taker)
    return cluster


def test_nothing_is_reclaimed_for_work_in_doubt_and_it_is_reported() -> None:
    plan = decide(borrowed(doubt=DOUBT).snapshot())
    assert plan.evictions == []
    assert plan.waits["ns/taker"] == DOUBT


def test_nothing_is_preempted_for_work_in_doubt() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", quota=2)
    cluster.job("low", "a", 2, on="n0")
    cluster.job("high", "a", 2, priority=75, doubt=DOUBT)
    assert decide(cluster.snapshot()).evictions == []


def test_nothing_is_stopped_for_work_in_doubt_in_a_pool_by_priority() -> None:
    cluster = Cluster()
    cluster.pools["default"] = PoolView("default", policy="priority")
    cluster.node("n0", gpus=2)
    cluster.project("a", quota=2)
    cluster.job("low", "a", 2, on="n0")
    cluster.job("high", "a", 2, priority=75, doubt=DOUBT)
    assert decide(cluster.snapshot()).evictions == []


def test_nothing_is_moved_for_work_in_doubt() -> None:
    cluster = Cluster()
    for node in ("n0", "n1"):
        cluster.node(node, gpus=2)
        cluster.project(f"of-{node}", quota=2)
        cluster.job(f"single-{node}", f"of-{node}", on=node)
    cluster.job("pair", "of-n0", 2, doubt=DOUBT)
    plan = decide(cluster.snapshot())
    assert (plan.evictions, plan.moves) == ([], [])


@pytest.mark.parametrize(
    ("constraints", "n_moves"),
    [
        (Constraints(node_selector=(("zone", "of-n0"),)), 1),
        (Constraints(barred=(("n1", NOW_S + 25),)), 0),
    ],
)
def test_nothing_is_moved_to_a_node_that_refused_the_work_itself(
    constraints: Constraints, n_moves: int
) -> None:
    """n1 may have a card that its device plugin does not offer: kube-scheduler alone knows that,
    and the moved pod would have the next one moved in turn."""
    cluster = Cluster()
    for node in ("n0", "n1"):
        cluster.node(node, gpus=1, labels={"zone": f"of-{node}"})
        cluster.project(f"of-{node}", quota=1)
    cluster.job("runs", "of-n1", 1, on="n0")
    cluster.job("waits", "of-n0", 1, constraints=constraints)
    plan = decide(cluster.snapshot())
    assert (len(plan.moves), plan.evictions) == (n_moves, [])


def test_work_in_doubt_gets_a_free_place() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=4)
    cluster.job("taker", "a", 2, doubt=DOUBT)
    assert counts(decide(cluster.snapshot()))["taker", "reserved"] == 1


def two_nodes(constraints: Constraints, refusals: Refusals) -> Cluster:
    cluster = Cluster()
    for node in ("n0", "n1"):
        cluster.node(node, gpus=2, labels={"zone": f"of-{node}"})
    cluster.project("a", quota=4)
    cluster.job("taker", "a", 1, constraints=constraints, refusals=refusals)
    return cluster


def place_of(cluster: Cluster) -> list[str]:
    plan = decide(cluster.snapshot())
    return [place.node for each in plan.admissions for place in each.placements]


@pytest.mark.parametrize(("until_s", "node"), [(NOW_S + 1, "n1"), (NOW_S, "n0")])
def test_refused_node_is_left_out_until_its_time_is_over(until_s: int, node: str) -> None:
    barred = Constraints(barred=(("n0", until_s),))
    assert place_of(two_nodes(barred, Refusals())) == [node]


def test_pod_that_was_released_is_planned_on_the_nodes_of_its_release_only() -> None:
    assert place_of(two_nodes(Constraints(only_nodes=("n1", "gone")), Refusals())) == ["n1"]


def test_pod_is_placed_where_all_its_volumes_are() -> None:
    zone = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["of-n1"])])])
    assert place_of(two_nodes(Constraints(volumes=(zone,)), Refusals())) == ["n1"]


def test_pod_that_rests_after_refusals_waits_and_says_why() -> None:
    refusals = Refusals()
    for node in ("n0", "n1"):
        refusals = refusals.after(node, NOW_S, 30, "2 node(s) didn't have free ports")
    cluster = two_nodes(Constraints(), refusals)
    why = decide(cluster.snapshot()).waits["ns/taker"]
    assert why.reason is Reason.PLACEMENT_REFUSED
    assert "free ports" in why.detail
    assert "in 30 s" in why.detail
