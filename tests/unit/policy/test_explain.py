"""Why something has no place: the cause that really keeps it waiting, with figures."""

from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement
from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import Constraints, GroupView, PodTerm, TopologyRule
from tests.support.snapshots import Cluster

SLICE = "nvidia.com/mig-1g.5gb"


def why(cluster: Cluster, job: str = "job") -> Refused:
    return decide(cluster.snapshot(), Settings(stages=("allocate",))).waits[f"ns/{job}"]


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
        " that is not tolerated, 1 have cards of another model, 1 lack a label of the node selector"
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
    assert refused.detail == "ns/job: needs 500 milli on one GPU; largest free is 400 (n0/gpu0)"


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


def test_lack_of_cpu_beside_free_cards_is_told_apart() -> None:
    cluster = cluster_of(8, cpu=500)
    cluster.job("job", "a", 1, cpu=1000)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
    assert "at most 500 milli-CPU" in refused.detail


def test_pod_affinity_is_the_cause_only_where_there_is_room() -> None:
    apart = Constraints(pod_anti_affinity=(PodTerm("host", (("app", "db"),)),))
    cluster = cluster_of()
    cluster.node("n0", gpus=2, labels={"host": "n0"})
    cluster.job("db", "a", on="n0", labels={"app": "db"})
    cluster.job("job", "a", constraints=apart)
    assert why(cluster).reason is Reason.POD_AFFINITY_UNMET
    cluster.job("full", "a", on="n0")
    assert why(cluster).reason is Reason.INSUFFICIENT_GPU


def test_gang_that_fits_in_parts_only_is_told_so() -> None:
    cluster = cluster_of(2, 2)
    cluster.job("job", "a", 1, pods=5)
    refused = why(cluster)
    assert refused.reason is Reason.INSUFFICIENT_GPU
    assert refused.detail.endswith("in each of 5 pods; not all of them fit at once")


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
