"""Which work an elastic node pool gets new nodes for."""

from dataclasses import replace
from typing import Any

from extender.policy.decide import decide
from extender.policy.scale_up import ScaleUps, left_waiting, scale_ups
from extender.state.model import ElasticView, PoolQuota
from tests.support.snapshots import Cluster

NODE = ElasticView(
    max_nodes=4,
    n_gpus=8,
    card_mib=16384,
    card_model="A100",
    cpu_milli=64_000,
    memory_mib=1 << 20,
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


def nodes(found: ScaleUps) -> dict[str, int]:
    return {key: each.n_nodes for key, each in found.wanted.items()}


def test_a_gang_within_quota_gets_exactly_its_nodes() -> None:
    cluster = elastic()
    cluster.job("train", "a", gpus=8, pods=4)
    found = asked(cluster)
    assert nodes(found) == {"ns/train": 4}
    assert [each.demand.devices for each in found.wanted["ns/train"].pods] == [8, 8, 8, 8]


def test_what_waits_for_quota_buys_nothing_and_is_told_so() -> None:
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


def test_what_starts_now_and_what_gets_room_by_reclaim_buys_nothing() -> None:
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


def test_a_fraction_buys_nothing_and_is_told_so() -> None:
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


def test_work_whose_place_is_about_to_be_free_buys_nothing() -> None:
    cluster = elastic()
    cluster.node("n0", gpus=8)
    cluster.job("leaves", "b", gpus=8, on="n0", terminating=True)
    cluster.job("next", "a", gpus=8, pods=2, max=1, min=1)
    plan = decide(cluster.snapshot())
    assert [each.state for each in plan.admissions] == ["nominated"]
    assert asked(cluster).wanted == {}
