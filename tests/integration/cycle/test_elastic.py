"""An elastic node pool on a real control plane: what is asked for, and until when.

The autoscaler's part is played by the test: it writes a condition and adds the node.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.provisioning import API, DEFINITION

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOL = {
    "apiVersion": "ballast.dev/v1alpha1",
    "kind": "GpuNodePool",
    "metadata": {"name": "default"},
    "spec": {"elastic": {"maxNodes": 3, "node": {"gpus": 2, "cpu": 96, "memoryGiB": 512}}},
}


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """A node of two cards in a pool that may have three; team-a may have four cards, team-b one."""
    cluster.control_plane.admin.post(_CRDS, DEFINITION)
    cluster.control_plane.admin.post(f"{workloads.API}/gpunodepools", POOL)
    async with Scene.open(cluster, n_nodes=1, cards=2) as opened:
        patch(opened, "gpudepartment", "research", 5)
        patch(opened, "gpuproject", "team-a", 4)
        yield opened
        await audited.finish()


def patch(scene: Scene, kind: str, name: str, quota: int) -> None:
    figures = {"spec": {"nodePools": [{"name": "default", "gpu": {"quota": quota}}]}}
    words = ("patch", kind, name, "--type=merge", "-p", json.dumps(figures))
    scene.cluster.kubectl(*words)


def requests(scene: Scene) -> list[Any]:
    found: list[Any] = scene.admin.get(f"{API}/provisioningrequests")["items"]
    return found


def submit_gang(scene: Scene, project: str, n_pods: int) -> None:
    """The gang `train` of pods that need a node each."""
    group = workloads.pod_group("train", project, n_pods)
    scene.admin.post(f"{workloads.API}/namespaces/{project}/gpupodgroups", group)
    scene.submit_job(project, "train", n_pods, 2000, group="train")


def waits_for(scene: Scene, namespace: str) -> str:
    """What the condition of the namespace's pods says of their places."""
    pods = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    told = {
        condition.get("message", "")
        for pod in pods
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "ballast.dev/Placed"
    }
    return " ".join(told)


async def test_work_within_quota_is_asked_for_once_and_until_it_starts(scene: Scene) -> None:
    # Above quota, and on as many nodes as the pool may have.
    submit_gang(scene, "team-b", 3)
    submit_gang(scene, "team-a", 2)
    await scene.until(lambda: len(requests(scene)) == 1, "a ProvisioningRequest")
    (request,) = requests(scene)
    assert request["metadata"]["namespace"] == "team-a"
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set["count"] == 2
    template = pod_set["podTemplateRef"]["name"]
    path = f"/api/v1/namespaces/team-a/podtemplates/{template}"
    await scene.until(lambda: scene.admin.has(path), "the PodTemplate")
    asked = scene.admin.get(path)["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert asked["nvidia.com/gpu"] == "2"
    assert not any("ballast.dev" in name for name in asked)
    name = request["metadata"]["name"]
    word = f"1 node is requested by ProvisioningRequest {name}"
    await scene.until(lambda: word in waits_for(scene, "team-a"), "the pods to say so")
    why_not = "only work within its project's and department's quota gets new nodes"
    await scene.until(lambda: why_not in waits_for(scene, "team-b"), "team-b to be told why not")
    accepted = {"status": {"conditions": [{"type": "Accepted", "status": "True"}]}}
    scene.cluster.kubectl(
        "patch", "provisioningrequest", name, "-n", "team-a", "--subresource=status",
        "--type=merge", "-p", json.dumps(accepted),
    )  # fmt: skip
    metric = 'ballast_control_provisioning_requests{state="Accepted"} 1.0'
    await scene.until(lambda: metric in scene.metrics(), "the metric")
    await scene.until_decided(5)
    assert [each["metadata"]["uid"] for each in requests(scene)] == [request["metadata"]["uid"]]
    scene.cluster.add_gpu_nodes(1, 2, prefix="new")
    await scene.until_bound("team-a", 2)
    await scene.until(lambda: not requests(scene), "the request to go")
    await scene.until(lambda: not scene.admin.has(path), "its PodTemplate to go")


async def test_a_request_goes_with_its_workload(scene: Scene) -> None:
    scene.submit_job("team-b", "small", 1, 1000)
    await scene.until_bound("team-b", 1)
    submit_gang(scene, "team-a", 2)
    await scene.until(lambda: len(requests(scene)) == 1, "a ProvisioningRequest")
    scene.cluster.kubectl("delete", "job", "train", "-n", "team-a")
    await scene.until(lambda: not requests(scene), "the request to go")
