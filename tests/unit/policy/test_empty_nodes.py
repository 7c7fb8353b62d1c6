"""Which nodes are emptied, in clusters that a scenario file cannot express."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from extender.api.reasons import Reason
from extender.api.units import MILLI_PER_GPU
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.state.model import UNLIMITED, Figures, PoolQuota
from extender.state.snapshot import Snapshot
from tests.support.snapshots import ELASTIC, Cluster, statuses

AFTER_S = 600


def little_used(**pool: Any) -> Cluster:
    """Node n0 with a pod of one GPU, n1 with one of two GPUs that keeps it."""
    cluster = Cluster()
    cluster.pool("default", consolidate_after_s=AFTER_S, checkpoint_s=300, **pool)
    cluster.node("n0")
    cluster.node("n1")
    cluster.department("d", quota=64)
    cluster.project("a", quota=64, department="d")
    cluster.job("small", "a", on="n0", ran=900)
    cluster.job("large", "a", gpus=2, on="n1", ran=900, preemptible=False)
    return cluster


def figures(quota: int) -> PoolQuota:
    return PoolQuota(Figures(quota * MILLI_PER_GPU, UNLIMITED, max(1, quota)))


def moved(plan: Plan) -> dict[str, str]:
    return {move.placement.pod.uid: move.placement.node for move in plan.moves}


def decided(cluster: Cluster) -> dict[str, str]:
    plan, reversed_plan = (decide(cluster.snapshot(is_reversed=each)) for each in (False, True))
    assert moved(plan) == moved(reversed_plan)
    assert all(move.reason is Reason.NODE_EMPTIED for move in plan.moves)
    assert all(not move.beneficiary for move in plan.moves)
    return moved(plan)


def test_its_work_moves_to_a_used_node() -> None:
    assert decided(little_used()) == {"small-0": "n1"}


def test_nothing_is_emptied_while_a_place_is_kept_for_a_pod_that_was_moved() -> None:
    cluster = little_used()
    cluster.node("other", pool="other")
    for kept, expected in (("n1", {}), ("other", {"small-0": "n1"})):
        made: Snapshot = cluster.snapshot()
        made.kept = frozenset({kept})
        assert moved(decide(made)) == expected


@pytest.mark.parametrize("state", ["reserved", "nominated"])
def test_nothing_is_emptied_while_a_pod_has_a_place_and_does_not_run(state: str) -> None:
    cluster = little_used()
    cluster.node("n2")
    cluster.job("starts", "a", on="n2", state=state)
    assert decided(cluster) == {}


def test_a_gang_that_nodes_are_bought_for_keeps_all_nodes() -> None:
    cluster = little_used(elastic=ELASTIC)
    cluster.job("owed", "a", gpus=8, pods=3)
    assert decided(cluster) == {}


def test_a_gang_larger_than_the_pool_can_ever_be_keeps_none() -> None:
    cluster = little_used(elastic=ELASTIC)
    cluster.job("huge", "a", gpus=8, pods=5)
    assert decided(cluster) == {"small-0": "n1"}


@pytest.mark.parametrize("pools", [("default", "other"), ("other",)], ids=str)
def test_nothing_is_emptied_while_work_is_stopped_that_could_run_there(
    pools: tuple[str, ...],
) -> None:
    """It would take the place that the node's work has left, or is to come to."""
    cluster = little_used()
    cluster.node("other", gpus=1, pool="other")
    quotas = {"default": figures(64), "other": figures(1)}
    cluster.project("owner", department="d", pools=quotas)
    cluster.project("borrower", department="d", pools=quotas | {"other": figures(0)})
    cluster.job("borrows", "borrower", on="other", ran=900, pools=pools)
    cluster.job("owed", "owner", pools=("other",))
    plan = decide(cluster.snapshot())
    emptied = {uid: node for uid, node in moved(plan).items() if uid == "small-0"}
    assert emptied == ({"small-0": "n1"} if pools == ("other",) else {})
    assert statuses(plan)["owed-0"] == "nominated"


@pytest.mark.parametrize(("mib", "moves"), [(32768, False), (16384, True)])
def test_no_pod_moves_to_a_card_of_which_it_would_hold_more(mib: int, moves: bool) -> None:
    """Its queue may be at its limit."""
    cluster = Cluster()
    cluster.pool("default", consolidate_after_s=AFTER_S, checkpoint_s=300)
    cluster.node("n0", mib=mib)
    cluster.node("n1")
    cluster.project("a", quota=64)
    cluster.job("small", "a", mib=8192, on="n0", ran=900)
    cluster.job("large", "a", gpus=2, on="n1", ran=900, preemptible=False)
    assert decided(cluster) == ({"small-0": "n1"} if moves else {})


def test_a_pod_that_leaves_keeps_its_node_only() -> None:
    cluster = little_used()
    cluster.node("n2")
    cluster.job("ends", "a", on="n2", ran=900, terminating=True)
    cluster.job("beside", "a", on="n2", ran=900)
    assert decided(cluster) == {"small-0": "n1"}


def test_a_node_that_is_cordoned_is_neither_emptied_nor_filled() -> None:
    cluster = little_used()
    cluster.nodes["n0"].facts = replace(cluster.nodes["n0"].facts, is_ready=False)
    assert decided(cluster) == {}
    cluster = little_used()
    cluster.nodes["n1"].facts = replace(cluster.nodes["n1"].facts, is_ready=False)
    assert decided(cluster) == {}


@pytest.mark.parametrize(
    "changed", [{"is_controlled": False}, {"stays": True}, {"started_at": 0}], ids=str
)
def test_a_pod_stays_that_nothing_makes_again_or_of_which_too_little_is_known(
    changed: dict[str, Any],
) -> None:
    cluster = little_used()
    workload = cluster.workloads["ns/small"]
    (pod,) = workload.pods
    cluster.workloads["ns/small"] = replaced(workload, pods=(replaced(pod, **changed),))
    assert decided(cluster) == {}


def test_a_node_that_an_autoscaler_would_not_remove_is_not_emptied() -> None:
    cluster = little_used()
    cluster.nodes["n0"].facts = replace(cluster.nodes["n0"].facts, stays=True)
    assert decided(cluster) == {}


def test_a_node_that_has_instances_besides_whole_cards_stays_as_it_is() -> None:
    cluster = little_used()
    cut = {"nvidia.com/mig-1g.5gb": 2}
    cluster.nodes["n0"].facts = replace(cluster.nodes["n0"].facts, free_counted=cut)
    assert decided(cluster) == {}
