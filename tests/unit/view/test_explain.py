"""Why a workload is pending, and ways out, each of which was tried."""

import dataclasses

import pytest
from msgspec.structs import replace

from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.state.model import Constraints, Figures, PoolQuota, WorkloadView
from extender.view.answers import AsOf, Explanation
from extender.view.explain import explain, find, try_ways
from extender.view.line import waiting
from extender.view.picture import Picture
from tests.support.snapshots import ELASTIC, Cluster
from tests.unit.policy.test_floors import cluster as one_project
from tests.unit.policy.test_floors import replica
from tests.unit.policy.test_month_budgets import spend

NOW = AsOf("2026-01-01T00:00:00Z", "1")


def full_cluster() -> Cluster:
    """Two nodes of 8: project a holds its quota of 8, and b holds 8 with a quota of 4."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.node("n1", gpus=8)
    cluster.project("a", quota=8)
    cluster.project("b", quota=4)
    cluster.job("a-run", "a", gpus=1, pods=8, on="n0", min=1)
    cluster.job("b-run", "b", gpus=1, pods=8, on="n1", min=1)
    return cluster


def told(cluster: Cluster, key: str, **given: str) -> Explanation:
    picture = Picture(cluster.snapshot())
    namespace, name = key.split("/")
    workload, others = find(picture, namespace, name)
    assert workload is not None
    return tried(picture, (workload, others), **given)


def tried(picture: Picture, found: tuple[WorkloadView, int], **given: str) -> Explanation:
    told = explain(picture, found, NOW, **given)
    try_ways(told, picture, found[0], lambda: False)
    return told


def test_a_gang_within_the_reclaim_band_is_told_the_band_by_all_of_the_explanation() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=30)
    cluster.project("blue")
    cluster.project("pink")
    cluster.job("blue-jobs", "blue", pods=20, on="n0", min=1)
    cluster.job("pink-jobs", "pink", pods=10, on="n0", min=1)
    cluster.job("pink-gang", "pink", pods=4)
    cluster.pool("default", reclaim_band_percent=25)
    found = told(cluster, "ns/pink-gang")
    checks = {each.name: each for each in found.checks}
    assert "reclaims only up to 11 GPUs" in found.message
    assert checks["reclaim"].message == found.message


def test_the_figures_of_work_that_runs_are_those_of_its_node_pool() -> None:
    cluster = Cluster()
    cluster.pool("first")
    cluster.node("n0", gpus=2, pool="second")
    cluster.pool("second")
    cluster.project("a", quota=2)
    cluster.job("run", "a", gpus=2, on="n0", pools=("first", "second"))
    found = told(cluster, "ns/run")
    assert found.queue is not None
    assert (found.queue.node_pool, found.queue.held) == ("second", "2")


def test_a_workload_above_its_share_is_told_the_share_and_what_would_help() -> None:
    cluster = full_cluster()
    cluster.job("wait", "a", gpus=1, pods=4)
    found = told(cluster, "ns/wait")
    assert found.state == "waits"
    assert found.request == "4"
    assert found.queue is not None
    assert (found.queue.held, found.queue.quota) == ("8", "8")
    checks = {each.name: each for each in found.checks}
    assert checks["room now"].outcome == "no"
    assert "above its fair share of 10" in checks["reclaim"].message
    assert "runs below priority 50" in checks["preemption"].message
    changes = {each.change: each.effect for each in found.ways_out}
    assert changes["the quota of a is 11 or more"] == "4 GPUs of b taken"


def test_what_a_disruption_budget_keeps_is_told_of_the_reclaim() -> None:
    cluster = Cluster(budgets={"ns/keep": 0})
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=4)
    cluster.project("b", quota=4)
    cluster.job("run", "b", gpus=1, pods=8, on="n0", min=1, budgets=("ns/keep",))
    cluster.job("wait", "a", gpus=1)
    found = told(cluster, "ns/wait")
    assert found.reason == "VictimsProtected"
    checks = {each.name: each.message for each in found.checks if each.outcome == "no"}
    assert "PodDisruptionBudget ns/keep allows 0 disruptions" in found.message
    assert checks["reclaim"] == found.message
    assert checks["preemption"] == "nothing of a runs below priority 50"


def test_each_way_out_is_one_with_which_the_decision_starts_it() -> None:
    cluster = full_cluster()
    cluster.job("wait", "a", gpus=1, pods=4)
    picture = Picture(cluster.snapshot())
    workload, _ = find(picture, "ns", "wait")
    assert workload is not None
    found = tried(picture, (workload, 0))
    quota = next(each for each in found.ways_out if "quota" in each.change)
    least = int(quota.change.split(" is ")[1].split()[0])
    for figure, is_enough in ((least, True), (least - 1, False)):
        changed = picture.changed(quotas={("a", "default"): figure * 1000})
        plan = decide(changed.snapshot)
        assert any(each.workload.name == "wait" for each in plan.admissions) is is_enough
    assert "GPUs of b taken" in quota.effect


def test_fewer_pods_start_where_less_is_free() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=8)
    cluster.job("run", "a", gpus=1, pods=5, on="n0")
    cluster.job("gang", "a", gpus=1, pods=8)
    found = told(cluster, "ns/gang")
    assert next(each.change for each in found.ways_out) == "3 pods or fewer must start together"


def test_half_of_a_gpu_starts_where_half_is_free() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", quota=1)
    cluster.job("run", "a", gpus="0.5", on="n0")
    cluster.job("whole", "a", gpus=1)
    found = told(cluster, "ns/whole")
    assert "gpu-fraction is 0.5 or less" in [each.change for each in found.ways_out]


def test_what_can_never_start_is_said_to() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("a", quota=16)
    cluster.job("huge", "a", gpus=8)
    found = told(cluster, "ns/huge")
    assert found.state == "never"
    assert found.help == "Ask for less, or for another node pool."
    assert "the largest node has 4" in found.message


def test_a_running_workload_has_its_nodes_and_no_checks() -> None:
    found = told(full_cluster(), "ns/a-run")
    assert (found.state, found.nodes, found.checks) == ("runs", ["n0"], [])


@pytest.mark.parametrize(("published", "agrees"), [("", True), ("InsufficientGpu", False)])
def test_an_answer_says_whether_the_controller_gave_the_same_reason(
    published: str, agrees: bool
) -> None:
    cluster = full_cluster()
    cluster.job("wait", "a", gpus=1, pods=4)
    found = told(cluster, "ns/wait", published=published)
    assert found.agrees is agrees or found.reason == published


def test_work_of_other_namespaces_has_no_name_in_the_line() -> None:
    cluster = full_cluster()
    cluster.job("mine", "a", gpus=1, pods=4)
    cluster.job("theirs", "b", gpus=1)
    theirs = cluster.workloads["ns/theirs"]
    cluster.workloads["ns/theirs"] = replace(theirs, namespace="other")
    lines = list(waiting(Picture(cluster.snapshot()), "ns"))
    assert {(each.project, each.workload) for each in lines} == {("a", "ns/mine"), ("b", "")}
    assert [each.position for each in lines] == [1, 2]
    own = list(waiting(Picture(cluster.snapshot()), "ns", is_own_only=True))
    assert own == [line for line in lines if line.workload]


def test_a_pod_and_an_owner_are_found_by_name() -> None:
    picture = Picture(full_cluster().snapshot())
    for name in ("a-run", "a-run-3"):
        workload, _ = find(picture, "ns", name)
        assert workload is not None
        assert workload.key == "ns/a-run"
    assert find(picture, "ns", "nothing") == (None, 0)


@pytest.mark.parametrize(
    ("reads_pods", "asks"), [(False, "a ProvisioningRequest asks"), (True, "its pods ask")]
)
def test_why_says_what_an_elastic_pool_buys_and_why_not(reads_pods: bool, asks: str) -> None:
    cluster = full_cluster()
    grows = dataclasses.replace(ELASTIC, provisioning_class="c", reads_pods=reads_pods)
    cluster.pool("default", elastic=grows)
    cluster.department("d", quota=64)
    cluster.project("owner", quota=16, department="d")
    cluster.job("big", "owner", gpus=8, pods=2)
    cluster.job("more", "b", gpus=8)

    def check(key: str) -> tuple[str, str]:
        found = {each.name: each for each in told(cluster, key).checks}
        return found["new nodes"].outcome, found["new nodes"].message

    assert check("ns/big") == ("yes", f"{asks} for 2 more nodes of default")
    assert check("ns/more")[0] == "no"
    assert "within its project's" in check("ns/more")[1]


def test_budget_that_is_used_is_reported_with_the_hours_that_would_help() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("a", quota=1)
    cluster.job("first", "a", on="n0")
    cluster.job("next", "a")
    spend(cluster, "a", used=100)
    picture = Picture(cluster.snapshot())
    found = tried(picture, (picture.snapshot.workloads["ns/next"], 0))
    assert found.reason == "OverBudget"
    assert found.help.startswith("It starts when it fits within the quota, or in the next month")
    (limits,) = (each for each in found.checks if each.name == "room within limits")
    assert limits.outcome == "no"
    assert "a has used 100.0 of its 100 GPU-hours of 1970-01" in limits.message
    changes = [each.change for each in found.ways_out]
    assert "gpuHoursPerMonth of a is 101 or more" in changes
    assert found.queue is not None
    assert (found.queue.gpu_hours_used, found.queue.gpu_hours_per_month) == ("100.0", 100)


def test_a_kept_replica_is_not_preemptible_and_not_named_as_what_might_make_room() -> None:
    cluster = one_project(quota=8)
    replica(cluster, "kept", 1, gpus=8, on="n0", priority=60)
    cluster.job("wait", "a", priority=90)
    assert not told(cluster, "ns/kept").is_preemptible
    checks = {each.name: each.message for each in told(cluster, "ns/wait").checks}
    assert checks["preemption"] == "nothing of a runs below priority 90"


def test_the_line_is_in_the_order_of_turns_and_not_of_names() -> None:
    cluster = full_cluster()
    cluster.job("b-never", "a", gpus=64)
    cluster.job("a-low", "a", gpus=1, pods=4, priority=40)
    cluster.job("z-old", "a", gpus=1, pods=4)
    cluster.job("c-young", "a", gpus=1, pods=4)
    lines = list(waiting(Picture(cluster.snapshot())))
    names = ["ns/z-old", "ns/c-young", "ns/a-low", "ns/b-never"]
    found = [(each.workload, each.position) for each in lines]
    assert found == list(zip(names, (1, 2, 3, 4), strict=True))


@pytest.mark.parametrize(
    "reason",
    [
        Reason.GANG_INCOMPLETE,
        Reason.UNKNOWN_NODE_POOL,
        Reason.UNKNOWN_PROJECT,
        Reason.UNKNOWN_TOPOLOGY,
        Reason.INVALID_REQUEST,
        Reason.PRIORITY_CLASS_NOT_ALLOWED,
        Reason.HELD_BY_OTHER_GATE,
        Reason.HELD_BY_OWNER,
        Reason.CLAIMS_NOT_MET,
    ],
)
def test_work_that_waits_for_its_owner_has_no_place_in_the_line(reason: Reason) -> None:
    cluster = full_cluster()
    cluster.job("first", "b", gpus=1, problem=Refused(reason, "ns/first-0: is not ready"))
    cluster.job("second", "b", gpus=1)
    lines = list(waiting(Picture(cluster.snapshot()), "ns"))
    assert [(each.workload, each.position) for each in lines] == [("ns/second", 1), ("ns/first", 0)]


def two_pools(**wait: object) -> Cluster:
    """Pools fast and slow, of 4 GPUs each. Project a holds 2 of fast, with a quota of 2, and
    nothing of slow; b holds all other GPUs, within its quota. A workload of a waits for both."""
    cluster = Cluster()
    for at, pool in enumerate(("fast", "slow")):
        cluster.pool(pool)
        cluster.node(f"n{at}", gpus=4, pool=pool)
    figures = {"fast": PoolQuota(Figures(2000)), "slow": PoolQuota(Figures(0))}
    cluster.project("a", pools=figures)
    figures = {"fast": PoolQuota(Figures(2000)), "slow": PoolQuota(Figures(4000))}
    cluster.project("b", pools=figures)
    cluster.job("a-run", "a", 2, on="n0", priority=25, pools=("fast",))
    cluster.job("b-fast", "b", 2, on="n0", pools=("fast",))
    cluster.job("b-slow", "b", 4, on="n1", pools=("slow",))
    cluster.job("wait", "a", **{"gpus": 3, "pools": ("fast", "slow"), **wait})  # type: ignore[arg-type]
    return cluster


def test_each_pool_of_a_workload_is_checked() -> None:
    found = told(two_pools(), "ns/wait")
    checks = {each.name: each.message for each in found.checks}
    assert "all 4 GPUs of the 1 ready node of pool fast" in checks["room now in fast"]
    assert "all 4 GPUs of the 1 ready node of pool slow" in checks["room now in slow"]
    assert "a holds 2 GPUs; with this work it would hold 5" in checks["reclaim in fast"]
    assert "a holds 0 GPUs; with this work it would hold 3" in checks["reclaim in slow"]
    assert "(2 GPUs) would not make enough room" in checks["preemption in fast"]
    assert checks["preemption in slow"] == "nothing of a runs below priority 50"
    assert checks["room within limits"] == "its project has no limit"
    assert found.queue is not None
    assert (found.queue.node_pool, found.queue.held) == ("fast", "2")
    assert [(each.node_pool, each.held) for each in found.other_queues] == [("slow", "0")]


def test_pools_that_there_is_no_time_for_are_named() -> None:
    picture = Picture(two_pools().snapshot())
    workload = picture.snapshot.workloads["ns/wait"]
    found = explain(picture, (workload, 0), NOW)
    try_ways(found, picture, workload, lambda: True)
    assert "checks in pool slow" in found.not_tried
    assert {each.name for each in found.checks} >= {"room now", "preemption"}


def test_quota_of_a_later_pool_is_a_way_out_too() -> None:
    cluster = two_pools(gpus=4)
    cluster.projects["b"].pools["slow"] = PoolQuota(Figures(0))  # type: ignore[index]
    cluster.projects["b"].pools["fast"] = PoolQuota(Figures(4000))  # type: ignore[index]
    changes = [each.change for each in told(cluster, "ns/wait").ways_out]
    assert [each for each in changes if each.startswith("the quota of a in pool ")]


def test_the_place_in_the_node_pools_counts_work_of_each() -> None:
    cluster = two_pools()
    cluster.job("other", "b", 1, pools=("slow",))
    place = told(cluster, "ns/wait").place
    assert place is not None
    assert place.of_pool == 2


def test_request_in_mib_is_shown_as_memory_and_as_the_share_that_it_is() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", quota=1)
    cluster.job("run", "a", on="n0")
    cluster.job("wait", "a", mib=4096)
    cluster.job("pair", "a", mib=500, pods=2)
    found = told(cluster, "ns/wait")
    assert (found.request, found.gpu_memory) == ("0.25", "4 GiB")
    lines = {each.workload: each for each in waiting(Picture(cluster.snapshot()))}
    assert (lines["ns/wait"].request, lines["ns/wait"].gpu_memory) == ("0.25", "4 GiB")
    assert lines["ns/pair"].gpu_memory == "1000 MiB"
    assert told(cluster, "ns/run").gpu_memory == ""


def test_a_limit_that_is_reached_is_told_beside_the_quota_for_non_preemptible_work() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=2, limit=4)
    cluster.job("builds", "a", 2, on="n0", kind="build")
    cluster.job("train", "a", 2, on="n0", priority=120, preemptible=True)
    cluster.job("wait", "a", kind="build")
    found = told(cluster, "ns/wait")
    assert found.reason == "NonPreemptibleOverQuota"
    assert [each.outcome for each in found.checks if each.name == "room within limits"] == ["no"]


def test_another_node_pool_is_a_way_out_with_the_annotation_that_allows_it() -> None:
    cluster = Cluster()
    cluster.pool("default")
    cluster.node("n0", gpus=1)
    cluster.pool("h100")
    cluster.node("n1", gpus=1, pool="h100")
    cluster.project("a", quota=1)
    cluster.job("run", "a", gpus=1, on="n0")
    cluster.job("wait", "a", gpus=1)
    changes = [each.change for each in told(cluster, "ns/wait").ways_out]
    assert "node pool h100 is allowed, too (annotation ballast.dev/node-pools)" in changes


def test_a_label_that_no_node_has_is_explained_with_those_that_nodes_have() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1, labels={"gpu": "A100"})
    cluster.project("a", quota=1)
    far = Constraints(node_selector=(("gpu", "A1000"),))
    cluster.job("wait", "a", gpus=1, constraints=far)
    assert told(cluster, "ns/wait").message.endswith(
        "1 lack the label gpu=A1000 of the node selector (they have gpu=A100)"
    )
