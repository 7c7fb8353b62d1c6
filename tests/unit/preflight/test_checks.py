"""Findings of preflight for clusters that lack something."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from extender.api.kinds import (
    Elastic,
    ElasticNode,
    GpuNode,
    GpuNodePool,
    GpuNodePoolSpec,
    GpuProject,
)
from extender.api.names import PRIORITY_CLASSES
from extender.api.objects import ObjectMeta, PriorityClass, Taint
from extender.cli.checks.checked import judge
from extender.preflight.cluster import SCHEDULER_MINOR
from extender.preflight.facts import (
    Budget,
    ConfigMap,
    Facts,
    Job,
    Named,
    Node,
    WebhookConfiguration,
)
from extender.preflight.findings import PreflightFinding, State, some
from tests.support.overlays import of_kind, rendered

LABELS: dict[str, str | None] = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.product": "A100",
}


def node(
    name: str = "gpu",
    runtime: str = "containerd://2.1.4",
    gpus: int = 8,
    labelled: Mapping[str, str | None] | None = None,
) -> Node:
    changed = LABELS | dict(labelled or {})
    labels = {key: text for key, text in changed.items() if text is not None}
    status: dict[str, Any] = {"nodeInfo": {"containerRuntimeVersion": runtime}}
    if gpus:
        status["capacity"] = {"nvidia.com/gpu": str(gpus)}
    body = {"metadata": {"name": name, "labels": labels if gpus else {}}, "status": status}
    return msgspec.convert(body, Node)


def named(name: str, **labels: str) -> Named:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Named)


def configuration(name: str, *webhooks: dict[str, Any]) -> WebhookConfiguration:
    body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
    return msgspec.convert(body, WebhookConfiguration)


def project(name: str, *namespaces: str) -> GpuProject:
    spec = {"department": "d", "namespaces": list(namespaces)}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GpuProject)


def good(**changed: Any) -> Facts:
    """A cluster that has everything."""
    facts: dict[str, Any] = {"version": "v1.36.3", "nodes": [node(), node("plain", gpus=0)]}
    return Facts(**(facts | changed))


def finding(facts: Facts, check: str) -> PreflightFinding:
    return next(each for each in judge(facts) if each.check == check)


def states(facts: Facts) -> set[State]:
    return {each.state for each in judge(facts)}


def test_cluster_that_has_everything_is_ok() -> None:
    assert states(good()) == {State.OK}


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("v1.31.9", State.FAIL),
        ("v1.32.0-eks-1", State.OK),
        ("v1.36.3+k3s1", State.OK),
        ("v1.37.2", State.OK),
        ("v1.38.0", State.WARN),
        ("unknown", State.FAIL),
    ],
)
def test_versions_of_kubernetes(version: str, state: State) -> None:
    assert finding(good(version=version), "Kubernetes version").state is state


def test_the_scheduler_that_is_installed_has_the_version_that_is_checked() -> None:
    (deployment,) = [
        each
        for each in of_kind(rendered("default"), "Deployment")
        if each["metadata"]["name"] == "ballast-scheduler"
    ]
    images = [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]]
    assert any(f"/kube-scheduler:v1.{SCHEDULER_MINOR}." in each for each in images)


@pytest.mark.parametrize(
    ("runtime", "nri", "cdi"),
    [
        ("containerd://2.1.0", State.OK, State.OK),
        ("containerd://2.0.5", State.OK, State.WARN),
        ("containerd://1.7.27", State.WARN, State.WARN),
        ("containerd://1.6.8", State.FAIL, State.WARN),
        ("cri-o://1.34.1", State.OK, State.OK),
        ("cri-o://1.25.0", State.FAIL, State.WARN),
        ("docker://27.0.3", State.FAIL, State.WARN),
        ("", State.FAIL, State.WARN),
    ],
)
def test_container_runtimes(runtime: str, nri: State, cdi: State) -> None:
    facts = good(nodes=[node(runtime=runtime), node("plain", gpus=0)])
    assert finding(facts, "NRI").state is nri
    assert finding(facts, "CDI by NRI").state is cdi


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {"nvidia.com/gpu.sharing-strategy": "time-slicing"},
        {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "1"},
    ],
)
def test_sharing_of_the_device_plugin_fails(labels: dict[str, str]) -> None:
    facts = good(nodes=[node(labelled=labels), node("plain", gpus=0)])
    assert finding(facts, "device plugin's sharing").state is State.FAIL


def test_one_replica_is_no_sharing() -> None:
    labels = {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}
    facts = good(nodes=[node(labelled=labels), node("plain", gpus=0)])
    assert finding(facts, "device plugin's sharing").state is State.OK


@pytest.mark.parametrize(
    ("strategy", "product", "is_told"),
    [
        ("single", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", True),
        ("single", "NVIDIA-A100-SXM4-80GB", False),
        ("mixed", "NVIDIA-A100-SXM4-80GB", False),
    ],
)
def test_instances_that_pass_for_whole_gpus_are_reported(
    strategy: str, product: str, is_told: bool
) -> None:
    labels = {"nvidia.com/mig.strategy": strategy, "nvidia.com/gpu.product": product}
    found = judge(good(nodes=[node(labelled=labels), node("plain", gpus=0)]))
    assert [each.state for each in found if each.check == "MIG"] == [State.WARN] * is_told


def test_gpu_node_of_a_cloud_without_nvidias_labels_fails() -> None:
    bare: dict[str, str | None] = dict.fromkeys(LABELS) | {
        "cloud.google.com/gke-accelerator": "nvidia-l4"
    }
    there = node(labelled=bare)
    there.status.capacity = {}
    facts = good(nodes=[there, node("plain", gpus=0)])
    assert finding(facts, "GPU labels").state is State.FAIL


def test_only_labels_that_a_node_lacks_are_named() -> None:
    bare = node("bare", labelled={"nvidia.com/gpu.present": None})
    found = finding(good(nodes=[node(), bare, node("plain", gpus=0)]), "GPU labels")
    assert (found.state, found.found) == (State.FAIL, "bare lack nvidia.com/gpu.present")
    assert found.advice.endswith("On nodes without these labels no node agent runs")


def test_gpu_node_without_a_device_plugin_is_named() -> None:
    bare = node("bare")
    bare.status.capacity = {}
    found = finding(good(nodes=[node(), bare, node("plain", gpus=0)]), "device plugin")
    assert (found.state, found.found) == (State.WARN, "bare have no nvidia.com/gpu")


def test_cluster_without_gpus_fails() -> None:
    assert finding(good(nodes=[node("plain", gpus=0)]), "GPU nodes").state is State.FAIL


def test_own_pods_need_a_node_without_gpus() -> None:
    check = "place for Ballast's own pods"
    assert finding(good(nodes=[node()]), check).state is State.FAIL
    plane = node("plane", gpus=0)
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    plane.spec.taints = [msgspec.convert(taint, Taint)]
    assert finding(good(nodes=[node(), plane]), check).state is State.OK
    plane.spec.taints.append(Taint(key="spare", effect="PreferNoSchedule"))
    assert finding(good(nodes=[node(), plane]), check).state is State.OK
    plane.spec.unschedulable = True
    assert finding(good(nodes=[node(), plane]), check).state is State.FAIL


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        (["kueue.x-k8s.io"], "Kueue"),
        (["scheduling.volcano.sh"], "Volcano"),
        (["scheduling.run.ai"], "KAI"),
    ],
)
def test_other_schedulers_are_named(groups: list[str], name: str) -> None:
    found = finding(good(groups=groups), "other schedulers")
    assert (found.state, name in found.found) == (State.WARN, True)


def test_yunikorn_is_known_by_its_webhook() -> None:
    facts = good(webhooks=[configuration("yunikorn-admission-controller-mutations")])
    assert "YuniKorn" in finding(facts, "other schedulers").found


@pytest.mark.parametrize(
    ("selector", "state"),
    [
        ("", State.WARN),
        (
            "namespaceLabelSelector: {matchExpressions:"
            " [{key: ballast.dev/managed, operator: DoesNotExist}]}",
            State.OK,
        ),
    ],
)
def test_a_descheduler_is_known_by_its_policy(selector: str, state: State) -> None:
    body = {
        "metadata": {"name": "descheduler", "namespace": "kube-system"},
        "data": {"policy.yaml": f"kind: DeschedulerPolicy\n{selector}"},
    }
    told = finding(good(descheduling=[msgspec.convert(body, ConfigMap)]), "descheduler")
    assert told.state is state
    assert told.found.startswith("ConfigMap kube-system/descheduler ")
    assert ("docs/platforms.md" in told.advice) == (state is State.WARN)


def test_priority_class_of_our_name_and_another_value_fails() -> None:
    name = next(iter(PRIORITY_CLASSES))
    other = msgspec.convert({"metadata": {"name": name}, "value": 7}, PriorityClass)
    assert finding(good(priority_classes=[other]), "priority classes").state is State.FAIL


@pytest.mark.parametrize(("value", "state"), [(1000, State.WARN), (0, State.OK)])
def test_default_class_of_the_cluster_is_reported(value: int, state: State) -> None:
    body = {"metadata": {"name": "usual"}, "value": value, "globalDefault": True}
    facts = good(priority_classes=[msgspec.convert(body, PriorityClass)])
    told = finding(facts, "default priority")
    assert told.state is state
    assert f"usual ({value})" in told.found
    assert ("allowedPriorityClasses" in told.advice) == (state is State.WARN)


def test_rights_that_lack_fail() -> None:
    facts = good(lacking=["create clusterroles"])
    assert finding(facts, "rights to install").state is State.FAIL


def test_installation_without_its_policy_fails() -> None:
    facts = good(groups=["ballast.dev"], webhooks=[configuration("ballast-webhooks")])
    assert finding(facts, "policies").state is State.FAIL
    facts.policies = [named("gpu-pods.ballast.dev")]
    assert finding(facts, "policies").state is State.OK


def test_the_definitions_that_an_uninstallation_leaves_are_no_failure() -> None:
    told = finding(good(groups=["ballast.dev"]), "policies")
    assert (told.state, told.found) == (State.OK, "only Ballast's CRDs are installed")
    unread = ["mutatingwebhookconfigurations: forbidden"]
    facts = good(groups=["ballast.dev"], unread=unread)
    assert finding(facts, "policies").state is State.FAIL


def test_policies_that_the_login_may_not_list_are_not_said_to_be_missing() -> None:
    facts = good(groups=["ballast.dev"], unread=["validatingadmissionpolicies: 403 Forbidden"])
    assert "policies" not in [each.check for each in judge(facts)]
    assert finding(facts, "read access").state is State.WARN


def test_nodes_that_the_login_may_not_list_are_not_said_to_have_no_gpus() -> None:
    facts = good(nodes=[], unread=["nodes: 403 Forbidden"])
    assert "GPU nodes" not in [each.check for each in judge(facts)]
    assert finding(facts, "read access").state is State.WARN


def test_label_of_projects_namespaces() -> None:
    facts = good(projects=[project("p", "vision", "not-yet-made")], namespaces=[named("vision")])
    check = "label of projects' namespaces"
    assert finding(facts, check).state is State.FAIL
    facts.namespaces = [named("vision", **{"ballast.dev/managed": "true"})]
    assert finding(facts, check).state is State.OK


def test_namespace_of_two_projects_is_reported() -> None:
    facts = good(projects=[project("p", "vision"), project("q", "vision")])
    found = finding(facts, "one project per namespace")
    assert (found.state, found.found.endswith("vision (p, q)")) == (State.WARN, True)


def job(resource: str = "nvidia.com/gpu", **spec: Any) -> Job:
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    template = {"spec": {"containers": [container]}}
    body = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"template": template, **spec}}
    return msgspec.convert(body, Job)


IGNORING = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def test_job_that_an_eviction_kills_is_named() -> None:
    found = finding(good(jobs=[job(), job("cpu")]), "Jobs and evictions")
    assert (found.state, found.found) == (State.WARN, "ns/j")
    found = finding(good(jobs=[job("nvidia.com/mig-1g.10gb")]), "Jobs and evictions")
    assert found.state is State.WARN


@pytest.mark.parametrize(
    "first",
    [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}},
        {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ],
    ids=["exit code", "condition"],
)
def test_job_whose_policy_counts_an_eviction_before_it_ignores_it_is_named(
    first: dict[str, Any],
) -> None:
    policy = {"rules": [first, *IGNORING["rules"]]}
    found = finding(good(jobs=[job(podFailurePolicy=policy)]), "Jobs and evictions")
    assert (found.state, found.found) == (State.WARN, "ns/j")


def test_jobs_that_evictions_do_not_harm_are_ok() -> None:
    ended = job()
    ended.status.conditions = [{"type": "Complete", "status": "True"}]
    facts = good(jobs=[job(podFailurePolicy=IGNORING), job("cpu"), ended])
    assert finding(facts, "Jobs and evictions").state is State.OK


@pytest.mark.parametrize(
    ("allowed", "pods", "found"), [(0, 1, "ns/b"), (1, 1, "1 seen"), (0, 0, "1 seen")]
)
def test_budget_that_allows_nothing_is_named(allowed: int, pods: int, found: str) -> None:
    body = {
        "metadata": {"name": "b", "namespace": "ns"},
        "status": {"disruptionsAllowed": allowed, "expectedPods": pods},
    }
    facts = good(budgets=[msgspec.convert(body, Budget)])
    assert finding(facts, "disruption budgets").found == found


def test_the_worst_comes_first() -> None:
    found = judge(good(version="v1.38.0", lacking=["create namespaces"]))
    assert [each.state for each in found[:2]] == [State.FAIL, State.WARN]


def test_long_lists_are_cut() -> None:
    assert some(["d", "c", "b", "a"]) == "a, b, c and 1 more"


def test_an_elastic_pool_needs_a_cluster_that_serves_its_requests() -> None:
    grows = Elastic(max_nodes=4, node=ElasticNode(gpus=8, cpu=64, memory_gib=512))
    pool = GpuNodePool(metadata=ObjectMeta(name="a100"), spec=GpuNodePoolSpec(elastic=grows))
    found = finding(good(node_pools=[pool]), "node autoscaling")
    assert (found.state, "a100" in found.found) == (State.FAIL, True)
    # Karpenter's CapacityBuffers are of the same group.
    buffers = ["autoscaling.x-k8s.io", "autoscaling.x-k8s.io/v1beta1"]
    assert finding(good(node_pools=[pool], groups=buffers), "node autoscaling").state is State.FAIL
    served = good(node_pools=[pool], groups=["autoscaling.x-k8s.io/v1"])
    assert finding(served, "node autoscaling").state is State.OK


def test_a_pool_whose_autoscaler_reads_pods_needs_no_requests() -> None:
    node = ElasticNode(gpus=8, cpu=64, memory_gib=512)
    grows = Elastic(max_nodes=4, node=node, trigger="UnschedulablePods")
    pool = GpuNodePool(metadata=ObjectMeta(name="a100"), spec=GpuNodePoolSpec(elastic=grows))
    karpenter = ["karpenter.sh"]
    told = [each.check for each in judge(good(node_pools=[pool], groups=karpenter))]
    assert "node autoscaling" not in told
    without = finding(good(groups=karpenter), "node autoscaling")
    assert (without.state, "UnschedulablePods" in without.advice) == (State.WARN, True)


def ledger(*pods: str, state: str = "bound") -> GpuNode:
    """A node whose rows are of pods with these names."""
    rows = [
        {"uid": pod, "namespace": space, "name": pod, "project": "p", "cards": [], "state": state,
         "epoch": 1, "reservedAt": 1}
        for space, _, pod in (each.partition("/") for each in pods)
    ]  # fmt: skip
    return msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"rows": rows}}, GpuNode)


def test_pods_that_hold_gpus_in_namespaces_without_a_project_are_named() -> None:
    check, of = "pods without a project", [ledger("a/train", "b/left")]
    told = finding(good(projects=[project("p", "a")], ledger=of), check)
    assert (told.state, told.found) == (State.WARN, "b/left hold GPUs")
    for facts in (
        good(projects=[project("p", "a", "b")], ledger=of),
        good(unread=["gpuprojects: forbidden"], ledger=of),
        # A place that is kept for a pod is not held by one.
        good(projects=[project("p", "a")], ledger=[ledger("b/left", state="nominated")]),
    ):
        assert check not in {each.check for each in judge(facts)}


def test_an_elastic_pool_that_shrank_to_nothing_is_no_failure() -> None:
    grows = Elastic(max_nodes=4, node=ElasticNode(gpus=8, cpu=64, memory_gib=512))
    pool = GpuNodePool(metadata=ObjectMeta(name="a100"), spec=GpuNodePoolSpec(elastic=grows))
    nodes = [node("plain", gpus=0)]
    found = finding(good(nodes=nodes, node_pools=[pool]), "GPU nodes")
    assert (found.state, "a100 has nodes" in found.advice) == (State.WARN, True)
    assert finding(good(nodes=nodes), "GPU nodes").state is State.FAIL
