"""Which pending workloads count for fair shares, and in which node pools."""

from typing import Any

import pytest
from msgspec.structs import replace

from extender.policy.decide import decide
from extender.state.model import Constraints, GroupView, TopologyRule
from tests.support.snapshots import Cluster, counts, fair_shares

NOWHERE = Constraints(node_selector=(("zone", "no-such"),))


def shares_of(cluster: Cluster) -> dict[str, int]:
    found = fair_shares(decide(cluster.snapshot()))
    return {name: milli // 1000 for name, milli in found.items()}


def crowded(**job: Any) -> Cluster:
    """Eight GPUs that a holds, b wants, and c asks for with the job."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    for name in "abc":
        cluster.project(name)
    cluster.job("a-jobs", "a", pods=8, on="n0", min=1)
    cluster.job("b-jobs", "b", pods=8, min=1)
    cluster.job("c-job", "c", **job)
    return cluster


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"gpus": 16}, id="larger than every node"),
        pytest.param({"pods": 8, "constraints": NOWHERE}, id="no node has its label"),
        pytest.param({"pods": 8, "min": 9}, id="a gang that lacks a pod"),
        pytest.param({"pods": 9}, id="a gang larger than the pool"),
    ],
)
def test_work_that_could_never_be_placed_has_no_part_in_the_shares(job: dict[str, Any]) -> None:
    plan = decide(crowded(**job).snapshot())
    assert {name: milli // 1000 for name, milli in fair_shares(plan).items()} == {
        "a": 4,
        "b": 4,
        "c": 0,
    }
    assert counts(plan)["a-jobs", "evicted"] == 4


@pytest.mark.parametrize(("pods", "c"), [(4, 2), (5, 0)])
def test_a_gang_larger_than_every_rack_has_no_part(pods: int, c: int) -> None:
    cluster = Cluster()
    cluster.topologies = {"t": ("rack",)}
    for name in ("r0", "r1"):
        cluster.node(name, gpus=4, labels={"rack": name})
    for name in "abc":
        cluster.project(name)
    cluster.job("a-jobs", "a", pods=8, on=["r0"] * 4 + ["r1"] * 4, min=1)
    cluster.job("b-jobs", "b", pods=8, min=1)
    tree = GroupView(name="", min_member=pods, topology=TopologyRule("t", required="rack"))
    cluster.job("c-gang", "c", pods=pods, tree=tree)
    assert shares_of(cluster)["c"] == c


def test_trials_that_could_never_run_count_nothing_beside_one_that_can() -> None:
    cluster = crowded(pods=3, min=1)
    search = cluster.workloads["ns/c-job"]
    lost = [replace(pod, constraints=NOWHERE) for pod in search.pods[:2]]
    cluster.workloads["ns/c-job"] = replace(search, pods=(*lost, search.pods[2]))
    plan = decide(cluster.snapshot())
    assert fair_shares(plan)["c"] == 1000
    assert counts(plan)["c-job", "nominated"] == 1


def test_work_that_fits_an_empty_node_has_its_part() -> None:
    assert shares_of(crowded(gpus=8))["c"] == 2


def two_pools(n_first: int) -> Cluster:
    """p wants six GPUs in pool a, which has so many, or else in b, where q wants all four."""
    cluster = Cluster()
    cluster.node("na", gpus=n_first, pool="a")
    cluster.node("nb", gpus=4, pool="b")
    cluster.project("p", pools={})
    cluster.project("q", pools={})
    cluster.job("p-jobs", "p", pods=6, min=1, pools=("a", "b"))
    cluster.job("q-jobs", "q", pods=4, min=1, pools=("b",))
    return cluster


def test_demand_that_the_first_pool_meets_does_not_count_in_the_second() -> None:
    plan = decide(two_pools(6).snapshot())
    assert plan.shares["p", "b"].fair_share[0] == 0
    assert plan.shares["q", "b"].fair_share[0] == 4000


def test_demand_that_the_first_pool_does_not_meet_counts_in_the_second() -> None:
    plan = decide(two_pools(2).snapshot())
    assert plan.shares["p", "a"].fair_share[0] == 2000
    assert plan.shares["p", "b"].fair_share[0] == 2000
