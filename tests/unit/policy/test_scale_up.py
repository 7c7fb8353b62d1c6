"""Which workloads of an elastic node pool get new nodes."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from extender.api.demand import Demand
from extender.api.reasons import Reason
from extender.cycle.recovery.hold_back import hold_back
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.policy.scale_up import ScaleUps, left_waiting, scale_ups
from extender.state.model import UNLIMITED, Figures, PoolQuota
from tests.support.snapshots import ELASTIC, Cluster

NODE = replace(
    ELASTIC,
    selector=(("pool", "gpu"),),
    labels=(("pool", "gpu"),),
    provisioning_class="best-effort-atomic-scale-up.autoscaling.x-k8s.io",
)


def elastic(max_nodes: int = 4, **given: Any) -> Cluster:
    """A pool without nodes that may have `max_nodes`, and the projects a and b."""
    cluster = Cluster()
    cluster.pool("default", elastic=replace(NODE, max_nodes=max_nodes, **given))
    cluster.department("d", quota=64)
    cluster.project("a", quota=32, department="d")
    cluster.project("b", quota=0, department="d")
    return cluster


def asked(cluster: Cluster) -> ScaleUps:
    return scale_ups(cluster.snapshot(), left_waiting(decide(cluster.snapshot())))


def two_pools() -> Cluster:
    """The elastic pools pa and pb, one node each at most, and the project a with quota in both."""
    cluster = Cluster()
    for letter in "ab":
        label = (("pool", letter),)
        view = replace(NODE, max_nodes=1, selector=label, labels=label)
        cluster.pool(f"p{letter}", elastic=view)
    quota = {name: PoolQuota(Figures(32_000)) for name in ("pa", "pb")}
    cluster.department("d", pools=quota)
    cluster.project("a", pools=quota, department="d")
    return cluster


def nodes(found: ScaleUps) -> dict[str, int]:
    return {key: each.n_nodes for key, each in found.wanted.items()}


def test_a_gang_within_quota_gets_exactly_its_nodes() -> None:
    cluster = elastic()
    cluster.job("train", "a", gpus=8, pods=4)
    found = asked(cluster)
    assert nodes(found) == {"ns/train": 4}
    assert [each.demand.devices for each in found.wanted["ns/train"].pods] == [8, 8, 8, 8]


def test_work_that_waits_for_quota_gets_no_nodes_and_this_is_reported() -> None:
    cluster = elastic()
    cluster.job("borrows", "b", gpus=8)
    found = asked(cluster)
    assert found.wanted == {}
    assert "within its project's and department's quota" in found.refused["ns/borrows"]


def test_the_quota_of_the_department_binds_too() -> None:
    cluster = elastic()
    cluster.department("d", quota=8)
    cluster.job("one", "a", gpus=8)
    cluster.job("two", "a", gpus=8)
    assert nodes(asked(cluster)) == {"ns/one": 1}


def test_no_more_than_the_maximum_is_asked_for_with_the_nodes_that_are_there() -> None:
    cluster = elastic(max_nodes=2)
    cluster.node("n0", gpus=8)
    cluster.job("runs", "a", gpus=8, on="n0")
    cluster.job("one", "a", gpus=8)
    cluster.job("two", "a", gpus=8)
    found = asked(cluster)
    assert nodes(found) == {"ns/one": 1}
    assert found.refused["ns/two"].startswith("new nodes do not help")


def test_a_node_that_is_not_ready_is_one_of_those_to_come() -> None:
    cluster = elastic(max_nodes=2)
    cluster.node("n0", gpus=8, is_ready=False)
    cluster.job("train", "a", gpus=8, pods=2)
    assert nodes(asked(cluster)) == {"ns/train": 2}


def test_free_room_is_used_before_nodes_are_added() -> None:
    cluster = elastic()
    cluster.node("n0", gpus=8)
    cluster.job("train", "a", gpus=8, pods=3)
    found = asked(cluster)
    assert nodes(found) == {"ns/train": 2}
    # All of its pods: an autoscaler sees the free node as well.
    assert len(found.wanted["ns/train"].pods) == 3


def test_work_that_starts_now_or_by_reclaim_gets_no_nodes() -> None:
    cluster = elastic(max_nodes=4)
    cluster.node("n0", gpus=8)
    cluster.job("borrowed", "b", gpus=8, on="n0")
    cluster.job("owner", "a", gpus=8)
    plan = decide(cluster.snapshot())
    assert [each.pod.name for each in plan.evictions] == ["borrowed-0"]
    assert asked(cluster).wanted == {}


def test_a_pod_larger_than_a_node_of_the_pool_buys_nothing() -> None:
    cluster = elastic(n_gpus=4)
    cluster.job("big", "a", gpus=8)
    found = asked(cluster)
    assert found.wanted == {}
    assert found.refused["ns/big"].startswith("new nodes do not help")


def test_a_fraction_gets_no_nodes_and_this_is_reported() -> None:
    cluster = elastic()
    cluster.job("half", "a", gpus="0.5")
    found = asked(cluster)
    assert (found.wanted, found.refused["ns/half"]) == ({}, "nodes are added for whole GPUs only")


def test_a_pool_that_is_not_elastic_gets_none() -> None:
    cluster = elastic()
    cluster.pool("default")
    cluster.job("train", "a", gpus=8)
    assert asked(cluster) == ScaleUps()


def test_a_project_may_use_another_pool_beyond_its_quota() -> None:
    cluster = elastic()
    cluster.pool("fixed")
    cluster.node("f0", gpus=8, pool="fixed")
    cluster.project("c", pools={"fixed": PoolQuota()}, department="d")
    cluster.job("there", "c", gpus=8, pools=("fixed",))
    assert scale_ups(cluster.snapshot(), ["ns/there"]) == ScaleUps()


def test_work_for_which_cards_become_free_gets_no_nodes() -> None:
    cluster = elastic()
    cluster.node("n0", gpus=8)
    cluster.job("leaves", "b", gpus=8, on="n0", terminating=True)
    cluster.job("next", "a", gpus=8, pods=2, max=1, min=1)
    plan = decide(cluster.snapshot())
    assert [each.state for each in plan.admissions] == ["nominated"]
    assert asked(cluster).wanted == {}


@pytest.mark.parametrize(
    "small",
    [{"gpus": "0.5"}, {"mib": 2048}, {"counted": (("nvidia.com/mig-1g.5gb", 1),)}],
    ids=["fraction", "gpu-memory", "mig"],
)
def test_work_that_buys_nothing_takes_no_node_and_no_quota_from_work_behind_it(small: Any) -> None:
    cluster = elastic(max_nodes=2)
    cluster.project("a", quota=16, department="d")
    cluster.job("small", "a", **small)
    cluster.job("train", "a", gpus=8, pods=2)
    found = asked(cluster)
    assert nodes(found) == {"ns/train": 2}
    assert found.refused["ns/small"] == "nodes are added for whole GPUs only"


def test_waiting_fractions_of_a_workload_that_runs_take_no_node_from_others() -> None:
    cluster = elastic(max_nodes=2)
    cluster.node("n0", gpus=1)
    cluster.job("trials", "a", gpus="0.75", on=["n0"], waiting=1, min=1)
    cluster.job("train", "a", gpus=8)
    assert nodes(asked(cluster)) == {"ns/train": 1}


def test_what_runs_counts_against_the_quota_when_its_waiting_pods_buy_nothing() -> None:
    cluster = elastic(max_nodes=2)
    cluster.project("a", quota=8, department="d")
    cluster.node("n0", gpus=1)
    cluster.job("trials", "a", gpus="0.75", on=["n0"], waiting=1, min=1)
    cluster.job("train", "a", gpus=8)
    assert asked(cluster).wanted == {}


def test_work_that_waits_for_kube_scheduler_alone_buys_nothing() -> None:
    cluster = elastic()
    cluster.node("n0", gpus=8)
    cluster.job("borrowed", "b", gpus=8, on="n0")
    cluster.job("owner", "a", gpus=8)
    plan = hold_back(decide(cluster.snapshot()), 0)
    assert plan.waits["ns/owner"].reason is Reason.SCHEDULER_AWAY
    assert left_waiting(plan) == []


def test_work_whose_victims_a_disruption_budget_protects_gets_no_nodes() -> None:
    cluster = elastic()
    cluster.budgets = {"p": 0}
    cluster.node("n0", gpus=8)
    cluster.job("borrowed", "b", gpus=8, on="n0", budgets=("p",))
    cluster.job("owner", "a", gpus=8)
    plan = decide(cluster.snapshot())
    assert plan.waits["ns/owner"].reason is Reason.VICTIMS_PROTECTED
    assert left_waiting(plan) == []


def test_work_that_the_cycle_had_no_time_for_buys_nothing() -> None:
    cluster = elastic()
    cluster.node("n0", gpus=8)
    cluster.job("runs", "a", gpus=8, on="n0")
    cluster.job("train", "a", gpus=8)
    plan = decide(cluster.snapshot(), Settings(is_spent=lambda: True))
    assert plan.cut == {"ns/train"}
    assert left_waiting(plan) == []


def test_work_without_gpus_buys_nothing() -> None:
    cluster = elastic()
    cluster.job("cpus", "a", gpus=0, cpu=32_000)
    found = asked(cluster)
    assert (found.wanted, found.refused["ns/cpus"]) == ({}, "nodes are added for whole GPUs only")


def test_a_driver_without_gpus_buys_no_node_while_its_workers_are_above_quota() -> None:
    cluster = elastic()
    cluster.project("a", quota=4, department="d")
    cluster.job("search", "a", gpus=8, pods=2, min=1)
    workload = cluster.workloads["ns/search"]
    driver = replaced(workload.pods[0], demand=Demand(cpu_milli=1000), order=1)
    pods = (driver, *workload.pods[1:])
    cluster.workloads["ns/search"] = replaced(workload, pods=pods)
    assert asked(cluster).wanted == {}


@pytest.mark.parametrize("quota_milli", [8_000, UNLIMITED])
def test_the_quota_of_cpus_binds_too(quota_milli: int) -> None:
    cluster = elastic()
    cluster.project(
        "a",
        pools={"default": PoolQuota(Figures(32_000), cpu=Figures(quota_milli))},
        department="d",
    )
    cluster.job("train", "a", gpus=8, cpu=32_000)
    expected = {"ns/train": 1} if quota_milli == UNLIMITED else {}
    assert nodes(asked(cluster)) == expected


def test_the_quota_of_memory_binds_too() -> None:
    cluster = elastic()
    figures = PoolQuota(Figures(32_000), memory=Figures(1024))
    cluster.project("a", pools={"default": figures}, department="d")
    cluster.job("train", "a", gpus=8)
    (workload,) = cluster.workloads.values()
    (pod,) = workload.pods
    pods = (replaced(pod, demand=replaced(pod.demand, memory_mib=2048)),)
    cluster.workloads[workload.key] = replaced(workload, pods=pods)
    assert asked(cluster).wanted == {}


def test_a_request_is_for_the_pods_in_one_pool() -> None:
    cluster = two_pools()
    cluster.job("search", "a", gpus=8, pods=2, min=1, pools=("pb", "pa"))
    found = asked(cluster).wanted["ns/search"]
    assert (found.pool, found.n_nodes, len(found.pods)) == ("pb", 1, 1)


def test_pods_on_nodes_of_another_pool_are_not_asked_for() -> None:
    cluster = two_pools()
    cluster.node("b0", gpus=8, pool="pb")
    cluster.job("search", "a", gpus=8, pods=2, min=1, pools=("pa", "pb"))
    found = scale_ups(cluster.snapshot(), ["ns/search"]).wanted["ns/search"]
    assert (found.pool, found.n_nodes, len(found.pods)) == ("pa", 1, 1)


def test_a_node_counts_towards_the_maximum_whose_gpus_are_broken() -> None:
    cluster = elastic(max_nodes=2)
    cluster.node("n0", gpus=8, unhealthy=range(8))
    cluster.job("one", "a", gpus=8)
    cluster.job("two", "a", gpus=8)
    assert nodes(asked(cluster)) == {"ns/one": 1}


def test_a_node_that_is_not_ready_counts_while_pods_hold_its_gpus() -> None:
    cluster = elastic(max_nodes=2)
    cluster.node("n0", gpus=8, is_ready=False)
    cluster.job("runs", "a", gpus=1, on="n0")
    cluster.job("one", "a", gpus=8)
    cluster.job("two", "a", gpus=8)
    assert nodes(asked(cluster)) == {"ns/one": 1}


def test_nodes_without_gpus_do_not_count_towards_the_maximum() -> None:
    cluster = elastic(max_nodes=1)
    cluster.node("cpus", gpus=0)
    cluster.job("train", "a", gpus=8)
    assert nodes(asked(cluster)) == {"ns/train": 1}


def waits_for_nodes(**given: Any) -> Cluster:
    """One of the four nodes of a gang of project a is there; its pods wait without the gate."""
    cluster = elastic(**given)
    cluster.project("c", quota=8, department="d")
    cluster.node("n0", gpus=8)
    cluster.job("train", "a", gpus=8, pods=4)
    train = cluster.workloads["ns/train"]
    pods = tuple(replaced(pod, is_gated=False) for pod in train.pods)
    cluster.workloads["ns/train"] = replaced(train, pods=pods)
    return cluster


def started(cluster: Cluster) -> list[str]:
    return [each.workload.key for each in decide(cluster.snapshot()).admissions]


def test_a_node_is_kept_for_pods_that_others_are_added_for() -> None:
    cluster = waits_for_nodes(reads_pods=True)
    cluster.job("borrows", "b", gpus=8)
    cluster.job("small", "a", gpus=1)
    plan = decide(cluster.snapshot())
    assert plan.admissions == []
    assert "its place is kept for work of project a" in plan.waits["ns/borrows"].detail
    assert "its place is kept for ns/train" in plan.waits["ns/small"].detail


def test_work_of_other_projects_within_quota_may_have_the_node() -> None:
    cluster = waits_for_nodes(reads_pods=True)
    cluster.job("owner", "c", gpus=8)
    assert started(cluster) == ["ns/owner"]


def test_the_node_goes_to_the_gang_once_the_others_are_there() -> None:
    cluster = waits_for_nodes(reads_pods=True)
    cluster.job("borrows", "b", gpus=8)
    for name in ("n1", "n2", "n3"):
        cluster.node(name, gpus=8)
    assert started(cluster) == ["ns/train"]


def test_no_node_is_kept_where_nodes_are_asked_for_by_requests() -> None:
    cluster = waits_for_nodes()
    cluster.job("borrows", "b", gpus=8)
    assert started(cluster) == ["ns/borrows"]


def test_pods_that_wait_without_the_gate_take_back_what_is_borrowed() -> None:
    cluster = waits_for_nodes(reads_pods=True)
    for name in ("n1", "n2", "n3"):
        cluster.node(name, gpus=8)
    cluster.job("borrows", "b", gpus=8, on="n1")
    cluster.job("more", "b", gpus=8)
    plan = decide(cluster.snapshot())
    assert [each.pod.name for each in plan.evictions] == ["borrows-0"]
    assert [each.workload.key for each in plan.admissions] == ["ns/train"]
