"""Sums of held and requested resources, and the workloads that a cycle must consider."""

from msgspec.structs import replace

from extender.api.kinds import CardShare
from extender.policy.decide import decide
from extender.state.model import WorkloadView
from extender.state.tally import (
    ALLOCATED,
    ALLOCATED_NP,
    HELD,
    LEAVING,
    PENDING,
    PENDING_NP,
    Tally,
)
from tests.support.snapshots import Cluster

KEY = ("default", "a", "")


def cluster_of(gpus: int = 8) -> Cluster:
    cluster = Cluster()
    cluster.node("n0", gpus=gpus)
    cluster.project("a", 4)
    return cluster


def tally_of(cluster: Cluster) -> Tally:
    snapshot = cluster.snapshot()
    return Tally.of(snapshot.nodes, snapshot.workloads)


def figure(tally: Tally, at: int, key: tuple[str, str, str] = KEY) -> int:
    return tally.sums[key][at] if key in tally.sums else 0


def workload(cluster: Cluster, name: str) -> WorkloadView:
    return cluster.snapshot().workloads[f"ns/{name}"]


def test_running_work_is_allocated_and_held() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2, pods=2, on="n0")
    cluster.job("build", "a", 1, on="n0", kind="build")
    tally = tally_of(cluster)
    assert figure(tally, ALLOCATED) == figure(tally, HELD) == 5000
    assert figure(tally, ALLOCATED_NP) == 1000
    assert tally.waiting | tally.leaving | tally.nominated == set()


def test_promised_places_are_allocated_and_not_held() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2, on="n0", state="nominated")
    tally = tally_of(cluster)
    assert (figure(tally, ALLOCATED), figure(tally, HELD)) == (2000, 0)
    assert tally.nominated == {"ns/job"}


def test_what_leaves_is_held_and_no_longer_allocated() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2, on="n0", terminating=True)
    tally = tally_of(cluster)
    assert (figure(tally, LEAVING), figure(tally, HELD)) == (2000, 2000)
    assert figure(tally, ALLOCATED) == 0
    assert tally.leaving == {"ns/job"}


def test_waiting_work_asks_in_every_pool_that_it_may_use() -> None:
    cluster = cluster_of()
    cluster.node("n1", gpus=8, pool="other")
    cluster.job("job", "a", 3, pools=["default", "other"], kind="build")
    tally = tally_of(cluster)
    for pool in ("default", "other"):
        assert figure(tally, PENDING, (pool, "a", "")) == 3000
        assert figure(tally, PENDING_NP, (pool, "a", "")) == 3000
    assert tally.waiting == {"ns/job"}


def test_no_more_is_asked_than_may_run_at_once() -> None:
    cluster = cluster_of()
    cluster.job("search", "a", 1, pods=1, on=["n0"], waiting=6, max=3, min=1)
    assert figure(tally_of(cluster), PENDING) == 2000


def test_a_request_in_mib_is_measured_on_the_smallest_card() -> None:
    cluster = cluster_of()
    cluster.node("n1", gpus=1, mib=8192)
    cluster.job("job", "a", mib=4096)
    assert figure(tally_of(cluster), PENDING) == 500


def test_fractions_are_counted_and_forgotten() -> None:
    cluster = cluster_of()
    cluster.job("half", "a", "0.5", on="n0")
    tally = tally_of(cluster)
    assert tally.granule(KEY) == 500
    tally.replace(workload(cluster, "half"), None)
    assert tally.granule(KEY) == 1000
    assert (tally.sums, tally.fractions) == ({}, {})


def test_a_moved_pod_leaves_one_place_and_has_the_next() -> None:
    cluster = cluster_of()
    cluster.node("n1", gpus=8, pool="other")
    cluster.job("job", "a", 2, on="n0", terminating=True)
    cards = (CardShare(0, 1000, 16384), CardShare(1, 1000, 16384))
    (view,) = cluster.workloads.values()
    moved = replace(view.pods[0], next_node="n1", next_cards=cards)
    cluster.workloads[view.key] = replace(view, pods=(moved,))
    tally = tally_of(cluster)
    assert figure(tally, LEAVING) == 2000
    assert figure(tally, ALLOCATED, ("other", "a", "")) == 2000


def test_users_are_summed_apart() -> None:
    cluster = cluster_of()
    for user in ("ada", "bob"):
        cluster.job(user, "a", 1, on="n0")
        view = cluster.workloads[f"ns/{user}"]
        cluster.workloads[view.key] = replace(view, user=user)
    tally = tally_of(cluster)
    assert figure(tally, ALLOCATED, ("default", "a", "ada")) == 1000
    assert tally.users() == {"a": {"ada", "bob"}}


def test_project_that_names_no_user_has_none() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 1)
    assert tally_of(cluster).users() == {}


def test_change_of_a_workload_is_taken_in() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2)
    tally = tally_of(cluster)
    before = workload(cluster, "job")
    cards = (CardShare(0, 1000, 16384), CardShare(1, 1000, 16384))
    pod = replace(before.pods[0], state="bound", is_gated=False, node="n0", cards=cards)
    tally.replace(before, replace(before, pods=(pod,)))
    assert (figure(tally, PENDING), figure(tally, ALLOCATED)) == (0, 2000)
    assert tally.waiting == set()


def test_copy_stays_as_it_is_while_the_original_changes() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2)
    tally = tally_of(cluster)
    copy = tally.copy()
    tally.replace(workload(cluster, "job"), None)
    assert (copy.waiting, figure(copy, PENDING)) == ({"ns/job"}, 2000)


def test_node_that_changes_its_pool_takes_its_pods_along() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2, on="n0")
    snapshot = cluster.snapshot()
    tally = Tally.of(snapshot.nodes, snapshot.workloads)
    snapshot.nodes.pool[snapshot.nodes.cards.ix["n0"]] = "other"
    tally.follow(snapshot.nodes, snapshot.workloads)
    assert tally == Tally.of(snapshot.nodes, snapshot.workloads)
    assert figure(tally, ALLOCATED, ("other", "a", "")) == 2000


def test_smaller_card_makes_requests_in_mib_larger() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", mib=4096)
    tally = tally_of(cluster)
    cluster.node("n1", gpus=1, mib=8192)
    snapshot = cluster.snapshot()
    tally.follow(snapshot.nodes, snapshot.workloads)
    assert figure(tally, PENDING) == 500
    assert tally.waiting == {"ns/job"}


def test_snapshot_without_a_tally_is_given_one() -> None:
    cluster = cluster_of()
    cluster.job("job", "a", 2)
    snapshot = cluster.snapshot()
    decide(snapshot)
    assert snapshot.tally is not None
    assert snapshot.tally.waiting == {"ns/job"}


def test_instances_are_held_as_the_gpus_they_stand_for() -> None:
    cluster = cluster_of(gpus=0)
    cluster.job("cut", "a", gpus=0, counted=(("nvidia.com/mig-3g.40gb", 2),), on="n0")
    cluster.job("waits", "a", gpus=0, counted=(("nvidia.com/mig-3g.40gb", 2),))
    held = {name: workload(cluster, name).pods[0].held_milli for name in ("cut", "waits")}
    assert held == {"cut": 6000, "waits": 0}
    assert figure(tally_of(cluster), HELD) == 6000
