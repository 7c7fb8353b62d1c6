"""Which replicas are kept, at one moment and over time."""

from typing import Any

from msgspec.structs import replace

from extender.policy.decide import decide
from extender.policy.workloads.floors import keep_floors
from extender.state.model import Figures, PoolQuota, ReplicaOf
from tests.support.snapshots import Cluster


def cluster(quota: int) -> Cluster:
    made = Cluster()
    made.node("n0", gpus=8)
    made.department("everybody", quota=quota)
    made.project("a", quota=quota)
    return made


def two_pools(quota: int) -> Cluster:
    made = Cluster()
    for at, pool in enumerate(("default", "other")):
        made.node(f"n{at}", gpus=8, pool=pool)
    figures = PoolQuota(Figures(quota * 1000))
    made.department("everybody", pools={"default": figures, "other": figures})
    made.project("a", pools={"default": figures, "other": figures})
    return made


def grow(of: Cluster, name: str, node: str) -> None:
    """The pod that the gang lacks starts on this node."""
    key = f"ns/{name}"
    view = of.workloads[key]
    of.job("grown", "a", on=node)
    pods = tuple(pod for pod in view.pods if pod.state != "gated")
    of.workloads[key] = replace(view, pods=(*pods, *of.workloads.pop("ns/grown").pods))


def replica(of: Cluster, name: str, floor: int, owner: str = "llm", **job: Any) -> None:
    of.job(name, "a", kind="inference", preemptible=True, **job)
    key = f"ns/{name}"
    of.workloads[key] = replace(of.workloads[key], replica=ReplicaOf(owner, floor))


def kept(of: Cluster) -> set[str]:
    forward, backward = decide(of.snapshot()).kept, decide(of.snapshot(is_reversed=True)).kept
    assert forward == backward
    return {key.removeprefix("ns/") for key in forward}


def test_where_nothing_states_a_floor_the_snapshot_is_the_same() -> None:
    plain = cluster(quota=2)
    plain.job("j", "a", on="n0")
    snapshot = plain.snapshot()
    assert keep_floors(snapshot) == (snapshot, frozenset())
    assert keep_floors(snapshot)[0] is snapshot


def test_replicas_that_have_run_longest_are_kept() -> None:
    c = cluster(quota=4)
    for name, ran in (("young", 10), ("old", 30), ("middle", 20)):
        replica(c, name, 2, on="n0", ran=ran)
    replica(c, "waits", 2, age=1_000_000)
    assert kept(c) == {"old", "middle"}


def test_the_floor_is_that_of_the_youngest_replica() -> None:
    c = cluster(quota=4)
    replica(c, "old", 1, on="n0", age=100)
    replica(c, "young", 2, on="n0", age=50)
    assert kept(c) == {"old", "young"}


def test_each_owner_has_a_floor_of_its_own() -> None:
    c = cluster(quota=4)
    for owner in ("llm", "ocr"):
        for at in range(2):
            replica(c, f"{owner}{at}", 1, owner, on="n0", ran=90 - at)
    assert kept(c) == {"llm0", "ocr0"}


def test_a_replica_that_starts_later_takes_no_quota_from_one_that_is_kept() -> None:
    c = cluster(quota=1)
    replica(c, "first", 1, "young-owner", on="n0", ran=50, age=60)
    replica(c, "second", 1, "old-owner", on="n0", ran=0, age=1_000_000)
    assert kept(c) == {"first"}


def test_of_replicas_that_started_in_one_second_the_earlier_plan_counts() -> None:
    c = cluster(quota=1)
    for name, epoch in (("a-later", 8), ("b-first", 7)):
        replica(c, name, 1, on="n0", ran=5)
        view = c.workloads[f"ns/{name}"]
        pods = tuple(replace(pod, epoch=epoch) for pod in view.pods)
        c.workloads[f"ns/{name}"] = replace(view, pods=pods)
    assert kept(c) == {"b-first"}


def test_a_replica_that_is_ending_makes_room_for_the_next() -> None:
    c = cluster(quota=1)
    replica(c, "ends", 1, on="n0", ran=50, terminating=True)
    replica(c, "next", 1, on="n0", ran=10)
    assert kept(c) == {"next"}


def test_the_quota_of_the_department_bounds_it_as_well() -> None:
    c = cluster(quota=2)
    c.department("everybody", quota=1)
    replica(c, "r0", 2, on="n0", ran=50)
    replica(c, "r1", 2, on="n0", ran=10)
    assert kept(c) == {"r0"}


def test_a_gang_counts_with_the_pods_that_it_lacks() -> None:
    c = cluster(quota=3)
    replica(c, "whole", 2, pods=2, on="n0", ran=50)
    replica(c, "lost-a-pod", 2, pods=1, waiting=1, on="n0", ran=40)
    assert kept(c) == {"whole"}


def test_a_gang_that_grows_into_another_node_pool_stays_kept() -> None:
    c = two_pools(quota=2)
    replica(c, "gang", 2, pods=1, waiting=1, on="n0", ran=50)
    replica(c, "next", 2, on="n0", ran=40)
    assert kept(c) == {"gang"}
    grow(c, "gang", "n1")
    assert kept(c) == {"gang", "next"}


def test_the_quota_of_each_node_pool_bounds_what_a_gang_has_there() -> None:
    c = two_pools(quota=1)
    replica(c, "first", 1, "ocr", on="n1", ran=90)
    replica(c, "gang", 1, pods=1, waiting=1, on="n0", ran=50)
    grow(c, "gang", "n1")
    assert kept(c) == {"first"}


def test_kept_replicas_are_published_as_non_preemptible() -> None:
    c = cluster(quota=2)
    replica(c, "r0", 1, on="n0")
    replica(c, "r1", 1, on="n0")
    share = decide(c.snapshot()).shares[("a", "default")]
    assert share.allocated[0] == 2000
    assert share.allocated_non_preemptible[0] == 1000


def test_a_larger_replica_that_has_run_longer_comes_first_once_it_fits() -> None:
    c = cluster(quota=2)
    replica(c, "gang", 2, pods=2, on="n0", ran=50)
    replica(c, "single", 2, on="n0", ran=10)
    c.job("fixed", "a", on="n0", preemptible=False)
    assert kept(c) == {"single"}
    del c.workloads["ns/fixed"]
    assert kept(c) == {"gang"}
