"""Why a workload is not placed: the actual cause, with figures."""

import pytest
from msgspec.structs import replace

from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement
from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.policy.placement.explain import help_for
from extender.policy.plan import Settings
from extender.state.model import Constraints, ElasticView, GroupView, PodTerm, TopologyRule
from tests.support.snapshot_job import demand_of
from tests.support.snapshots import Cluster, allocated

SLICE = "nvidia.com/mig-1g.5gb"


def why(cluster: Cluster, job: str = "job") -> Refused:
    return allocated(cluster).waits[f"ns/{job}"]


def cluster_of(*gpus: int, **facts: object) -> Cluster:
    cluster = Cluster()
    cluster.project("a", 100)
    for at, count in enumerate(gpus):
        cluster.node(f"n{at}", gpus=count, **facts)
    return cluster


def test_every_cause_that_bars_nodes_is_counted() -> None:
    cluster = cluster_of()
    ssd = {"disk": "ssd"}
    cluster.node("n0", labels=ssd, taints=(("key", "NoSchedule"),))
    cluster.node("n1")
    cluster.node("n2", labels=ssd, model="T4")
    cluster.node("n3", labels=ssd)
    term = NodeSelectorTerm(match_expressions=[Requirement("zone", "Exists")])
    cluster.job(
        "job",
        "a",
        constraints=Constraints(
            node_selector=(("disk", "ssd"),),
            affinity=NodeSelector([term]),
            gpu_models=("A100",),
        ),
    )
    refused = why(cluster)
    assert refused.reason is Reason.NO_MATCHING_NODE
    assert refused.detail == (
        "ns/job: of 4 ready nodes of pool default, 1 do not meet the node affinity, 1 have a taint"
        " that is not tolerated (they have key), 1 have cards of another model (they have T4),"
        " 1 lack the label disk=ssd of the node selector"
    )


def test_first_label_that_a_node_lacks_is_named() -> None:
    cluster = cluster_of()
    cluster.node("n0", labels={"disk": "ssd"})
    cluster.node("n1", labels={"disk": "hdd", "rack": "7"})
    cluster.node("n2")
    selector = (("disk", "ssd"), ("rack", "7"))
    cluster.job("job", "a", constraints=Constraints(node_selector=selector))
    assert why(cluster).detail == (
        "ns/job: of 3 ready nodes of pool default, 2 lack the label disk=ssd of the node selector"
        " (they have disk=hdd), 1 lack the label rack=7 of the node selector"
    )


def test_pool_without_ready_nodes_is_said_to_have_none() -> None:
    cluster = cluster_of(8, is_ready=False)
    cluster.job("job", "a")
    assert why(cluster).detail == "ns/job: no node of pool default is ready"


def test_largest_free_part_is_named() -> None:
    cluster = cluster_of(2)
    cluster.job("old", "a", "0.6", on="n0", cards=[0])
    cluster.job("older", "a", "0.7", on="n0", cards=[1])
    cluster.job("job", "a", "0.5")
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_GPU
    assert refused.detail == "ns/job: needs 0.5 of a GPU; largest free is 0.4 of a GPU (n0/gpu0)"


def test_missing_instances_are_named() -> None:
    cluster = cluster_of(0, free_counted={SLICE: 1})
    cluster.job("job", "a", counted=((SLICE, 2),))
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_GPU
    assert refused.detail == f"ns/job: needs 2 {SLICE}; one node has at most 1 {SLICE} free"


def test_other_counted_resources_are_not_called_gpus() -> None:
    cluster = cluster_of(0)
    cluster.job("job", "a", counted=(("example.com/fpga", 1),))
    assert why(cluster).reason is Reason.INSUFFICIENT_NODE_RESOURCES


def test_lack_of_cpu_beside_free_cards_is_distinguished() -> None:
    cluster = cluster_of(8, cpu=1500)
    cluster.job("old", "a", 1, cpu=1000, on="n0")
    cluster.job("job", "a", 1, cpu=1000)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
    assert refused.detail == (
        "ns/job: needs 1 CPU; a node with its GPUs free has at most 0.5 CPU (n0)"
    )


@pytest.mark.parametrize(("gpus", "node"), [(1, "a node with enough GPUs"), (0, "a node")])
def test_pod_with_more_cpu_than_any_node_has_will_never_start(gpus: int, node: str) -> None:
    cluster = cluster_of(1, cpu=96_000)
    cluster.job("old", "a", 1, on="n0")
    cluster.job("job", "a", gpus, cpu=200_000)
    refused = decide(cluster.snapshot()).waits["ns/job"]
    assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
    assert refused.detail == (
        f"ns/job: needs 200 CPU; {node} has at most 96 CPU when empty (n0);"
        " it will never start on the nodes of pool default"
    )


def test_cpu_of_nodes_without_the_gpus_does_not_help() -> None:
    cluster = cluster_of(1, cpu=96_000)
    cluster.node("n1", gpus=0, cpu=400_000)
    cluster.job("job", "a", 1, cpu=200_000)
    assert "at most 96 CPU when empty (n0); it will never start" in why(cluster).detail


@pytest.mark.parametrize(
    ("asked", "is_never"),
    [
        ({"gpus": 2, "cpu": 150_000}, False),
        ({"gpus": 2, "cpu": 250_000}, True),
        ({"gpus": 4}, True),
        ({"mib": 70_000}, False),
        ({"mib": 90_000}, True),
    ],
)
def test_pod_that_fits_a_node_which_the_pool_may_add_is_not_told_never(
    asked: dict[str, int], is_never: bool
) -> None:
    cluster = cluster_of(1, cpu=96_000)
    elastic = ElasticView(4, 2, 81_920, "", 200_000, 1 << 20, (), (), "")
    cluster.pool("default", elastic=elastic)
    cluster.job("job", "a", **asked)
    assert ("it will never start" in why(cluster).detail) is is_never


def test_pod_affinity_is_the_cause_only_where_there_is_room() -> None:
    apart = Constraints(pod_anti_affinity=(PodTerm("host", (("app", "db"),)),))
    cluster = cluster_of()
    cluster.node("n0", gpus=2, labels={"host": "n0"})
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    cluster.job("job", "a", constraints=apart)
    assert why(cluster).reason is Reason.POD_AFFINITY_UNMET
    cluster.job("full", "a", on="n0")
    assert why(cluster).reason is Reason.INSUFFICIENT_GPU


def test_gang_that_fits_in_parts_only_is_reported() -> None:
    cluster = cluster_of(2, 2)
    cluster.job("first", "a", 1, on="n0")
    cluster.job("job", "a", 1, pods=4)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_GPU
    assert refused.detail == "ns/job: needs 1 GPU in each of 4 pods; only 3 of them fit at once"


def test_gang_for_which_the_gpus_do_but_not_the_cpu_is_reported() -> None:
    cluster = cluster_of(8, cpu=4000)
    cluster.job("first", "a", 1, cpu=1000, on="n0")
    cluster.job("job", "a", 1, pods=4, cpu=1000)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
    assert refused.detail == (
        "ns/job: needs 1 GPU with 1 CPU in each of 4 pods; only 3 of them fit at once"
    )


def test_unequal_pods_that_lack_cpu_together_are_not_told_that_gpus_lack() -> None:
    cluster = cluster_of(8, cpu=4000)
    cluster.job("job", "a", 1, cpu=3000, pods=2)
    workload = cluster.workloads["ns/job"]
    large, small = workload.pods
    small = replace(small, demand=replace(small.demand, cpu_milli=2000))
    cluster.workloads["ns/job"] = replace(workload, pods=(large, small))
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
    assert "1 GPU with 3 CPU in one pod and 1 GPU with 2 CPU in one pod" in refused.detail


def test_pods_that_exclude_one_another_are_reported() -> None:
    apart = Constraints(pod_anti_affinity=(PodTerm("host", (("app", "db"),)),))
    cluster = cluster_of()
    cluster.node("n0", gpus=4, labels={"host": "n0"})
    cluster.job("job", "a", pods=2, labels={"app": "db"}, constraints=apart)
    assert why(cluster).reason is Reason.POD_AFFINITY_UNMET


def test_pod_slots_that_lack_are_distinguished() -> None:
    cluster = cluster_of(8, pods=1)
    cluster.job("job", "a", 1, pods=2)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
    assert "a pod slot in each of 2 pods" in refused.detail


@pytest.mark.parametrize(
    ("gpus", "needs", "n_held"),
    [
        (1, "1 GPU in each of 5 pods", 4),
        (2, "2 GPUs on one node in each of 5 pods", 2),
        ("0.75", "0.75 of a GPU in each of 5 pods", 4),
    ],
)
def test_gang_that_is_larger_than_the_empty_pool_will_never_start(
    gpus: int | str, needs: str, n_held: int
) -> None:
    cluster = cluster_of(2, 2)
    cluster.job("job", "a", gpus, pods=5)
    refused = why(cluster)
    assert refused.detail == (
        f"ns/job: needs {needs}; the 2 ready nodes of pool default hold {n_held} of them when"
        " empty; it will never start on the nodes of pool default"
    )
    assert help_for(refused) == "Ask for less, or for another node pool."


def test_gang_that_is_larger_than_the_pool_never_starts_while_all_of_it_is_taken() -> None:
    cluster = cluster_of(2, 2)
    for node in ("n0", "n1"):
        cluster.job(f"old-{node}", "a", 2, on=node)
    cluster.job("job", "a", 1, pods=5)
    assert why(cluster).detail == (
        "ns/job: needs 1 GPU in each of 5 pods; the 2 ready nodes of pool default hold 4 of them"
        " when empty; it will never start on the nodes of pool default"
    )


def test_gang_that_is_larger_than_a_pool_that_grows_may_start() -> None:
    cluster = cluster_of(2, 2)
    elastic = ElasticView(4, 2, 81920, "", 1000, 1024, (), (), "")
    cluster.pool("default", elastic=elastic)
    cluster.job("job", "a", 1, pods=5)
    assert why(cluster).detail.endswith("only 4 of them fit at once")


def test_one_pod_of_a_gang_that_has_no_node_is_the_cause() -> None:
    cluster = cluster_of(8)
    cluster.job("job", "a", 1, pods=3)
    workload = cluster.workloads["ns/job"]
    first, *others = workload.pods
    far = Constraints(node_selector=(("disk", "ssd"),))
    pods = (replace(first, demand=demand_of(0), constraints=far), *others)
    cluster.workloads["ns/job"] = replace(workload, pods=pods)
    refused = why(cluster)
    assert refused.reason is Reason.NO_MATCHING_NODE
    assert refused.detail == (
        "ns/job: needs a pod slot in one of 3 pods; of 1 ready nodes of pool default,"
        " 1 lack the label disk=ssd of the node selector"
    )


def test_most_free_gpus_of_one_node_are_named() -> None:
    cluster = cluster_of(2, 2)
    cluster.job("old", "a", 2, on="n0")
    cluster.job("older", "a", on="n1")
    cluster.job("job", "a", 2)
    assert why(cluster).detail == ("ns/job: needs 2 GPUs on one node; most free on one is 1 (n1)")


def test_gpus_that_are_all_taken_are_distinguished_from_nodes_without_gpus() -> None:
    taken, bare = cluster_of(2), cluster_of(0)
    taken.job("old", "a", 2, on="n0")
    for cluster in (taken, bare):
        cluster.job("job", "a")
    assert why(taken).detail == (
        "ns/job: needs 1 GPU; all 2 GPUs of the 1 ready node of pool default are taken"
    )
    assert (
        why(bare).detail
        == "ns/job: needs 1 GPU; there is none on the 1 ready node of pool default;"
        " it will never start on the nodes of pool default"
    )


def test_gpus_of_nodes_that_it_may_not_use_do_not_count() -> None:
    cluster = cluster_of(0)
    cluster.node("big", labels={"disk": "ssd"})
    slow = Constraints(node_selector=(("disk", "hdd"),))
    cluster.node("slow", gpus=0, labels={"disk": "hdd"})
    cluster.job("job", "a", constraints=slow)
    assert why(cluster).detail == (
        "ns/job: needs 1 GPU; there is none on the 1 node (of 3 in pool default) that it may use;"
        " it will never start on the nodes of pool default"
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"gpus": 4},
            "needs 4 GPUs on one node; the largest node has 2 (n0); it will never start on"
            " the nodes of pool default",
        ),
        (
            {"mib": 20000},
            "needs 20000 MiB of GPU memory on one GPU; the largest has 16384 MiB (n0);"
            " it will never start on the nodes of pool default",
        ),
    ],
)
def test_what_no_empty_node_holds_is_never_called_a_matter_of_fair_share(
    asked: dict[str, int], told: str
) -> None:
    cluster = cluster_of(2, 2)
    cluster.project("b", 4)
    cluster.job("old", "a", 1, on="n1")
    cluster.job("older", "b", 1, on="n0")
    cluster.job("job", "a", **asked)
    refused = decide(cluster.snapshot()).waits["ns/job"]
    assert refused == Refused(Reason.INSUFFICIENT_GPU, f"ns/job: {told}")


@pytest.mark.parametrize("selector", [(), (("zone", "b"),)])
def test_work_that_a_later_pool_could_hold_is_not_told_why_the_first_never_will(
    selector: tuple[tuple[str, str], ...],
) -> None:
    cluster = Cluster()
    for pool in ("small", "large"):
        cluster.pool(pool)
    cluster.node("n0", gpus=1, pool="small", labels={"zone": "a"})
    cluster.node("n1", gpus=4, pool="large", labels={"zone": "b"})
    cluster.project("a", 8)
    pools, constraints = ("small", "large"), Constraints(node_selector=selector)
    cluster.job("runs", "a", 3, on="n1", pools=pools)
    cluster.job("job", "a", 2, pools=pools, constraints=constraints)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_GPU
    assert "pool small" not in refused.detail
    assert "never" not in refused.detail


def test_memory_of_a_card_is_compared_in_mib() -> None:
    cluster = cluster_of(1)
    cluster.job("old", "a", mib=8192, on="n0", cards=[0])
    cluster.job("job", "a", mib=9000)
    assert why(cluster).detail == (
        "ns/job: needs 9000 MiB of GPU memory on one GPU; largest free is 8192 MiB (n0/gpu0)"
    )


def test_parts_of_several_gpus_name_how_many_of_one_node_have_so_much() -> None:
    cluster = cluster_of(2)
    cluster.job("old", "a", "0.6", on="n0", cards=[0])
    cluster.job("job", "a", "0.5", devices=2)
    assert why(cluster).detail == (
        "ns/job: needs 0.5 of each of 2 GPUs of one node;"
        " at most 1 of one node has so much free (n0)"
    )


def test_share_of_its_project_comes_after_the_want_of_a_place() -> None:
    cluster = cluster_of(2, 2)
    cluster.projects.clear()
    cluster.project("a", 1)
    cluster.project("b", 1)
    for at in range(2):
        cluster.job(f"old{at}", "a", priority=100, on=f"n{at}")
        cluster.job(f"other{at}", "b", on=f"n{at}")
    cluster.job("job", "a")
    refused = decide(cluster.snapshot()).waits["ns/job"]
    assert refused.reason is Reason.OVER_FAIR_SHARE
    assert refused.detail == (
        "ns/job: needs 1 GPU; all 4 GPUs of the 2 ready nodes of pool default are taken;"
        " with this work a would hold 3 GPUs, above its fair share of 2 GPUs,"
        " so nothing is reclaimed for it"
    )


def test_share_of_a_project_with_several_pools_names_the_pool() -> None:
    cluster = cluster_of(2)
    cluster.pool("fast")
    cluster.node("f0", pool="fast", gpus=2)
    cluster.project("b", 2)
    cluster.job("other", "b", 2, on="n0")
    cluster.job("old", "a", 2, on="f0")
    cluster.job("job", "a", pools=("fast", "default"))
    refused = decide(cluster.snapshot()).waits["ns/job"]
    assert refused.reason is Reason.OVER_FAIR_SHARE
    assert "a would hold 3 GPUs in pool fast, above its fair share of 2 GPUs, so" in refused.detail


def test_limit_is_reported_with_what_is_needed() -> None:
    cluster = cluster_of(8)
    cluster.project("b", 2, limit=1)
    cluster.job("job", "b", 2)
    assert why(cluster) == Refused(
        Reason.OVER_LIMIT, "ns/job: needs 2 GPUs, b has 0 GPUs of its limit of 1 GPU"
    )


def test_without_the_stage_that_gives_free_places_that_is_the_cause() -> None:
    cluster = cluster_of(8)
    cluster.job("job", "a")
    refused = decide(cluster.snapshot(), Settings(stages=("consolidate",))).waits["ns/job"]
    assert refused.detail == (
        "ns/job: no place could be made for it;"
        " free places are given by stage allocate, which is left out"
    )


def test_topology_is_the_cause_only_where_the_pods_would_fit_otherwise() -> None:
    cluster = cluster_of()
    cluster.topologies = {"t": ("rack",)}
    for at in range(2):
        cluster.node(f"n{at}", gpus=2, labels={"rack": f"r{at}"})
    tree = GroupView(name="", min_member=3, topology=TopologyRule("t", "rack"))
    cluster.job("job", "a", 1, pods=3, tree=tree)
    assert why(cluster).reason is Reason.NO_TOPOLOGY_DOMAIN
    cluster.job("large", "a", 4, tree=GroupView(name="", topology=TopologyRule("t", "rack")))
    assert why(cluster, "large").reason is Reason.INSUFFICIENT_GPU


def test_unknown_topology_is_named() -> None:
    cluster = cluster_of(1)
    tree = GroupView(name="", min_member=2, topology=TopologyRule("none", "rack"))
    cluster.job("job", "a", 1, pods=2, tree=tree)
    refused = why(cluster)
    assert refused.reason is Reason.UNKNOWN_TOPOLOGY
    assert refused.detail == "ns/job: topology none has no level rack"
