"""A node pool whose autoscaler reads pods, on the real API server, scheduler and Job controller.

The autoscaler's part is played by the test: it looks at the pods and adds nodes.
`test_karpenter.py` runs one.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.test_elastic import patch, submit_gang, waits_for
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster

POOL = {
    "apiVersion": "ballast.dev/v1alpha1",
    "kind": "GpuNodePool",
    "metadata": {"name": "default"},
    "spec": {
        "elastic": {
            "maxNodes": 3,
            "trigger": "UnschedulablePods",
            "node": {"gpus": 2, "cpu": 96, "memoryGiB": 512},
        }
    },
}
DISRUPTIONS = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """A node of two cards in a pool that may have three; team-a may have four cards, team-b one."""
    cluster.control_plane.admin.post(f"{workloads.API}/gpunodepools", POOL)
    async with Scene.open(cluster, n_nodes=1, cards=2) as opened:
        patch(opened, "gpudepartment", "research", 5)
        patch(opened, "gpuproject", "team-a", 4)
        yield opened
        await audited.finish()


def pods_of(scene: Scene, namespace: str) -> list[Any]:
    found: list[Any] = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def is_gated(pod: Any) -> bool:
    gates = pod["spec"].get("schedulingGates", ())
    return names.GATE in [gate["name"] for gate in gates]


def is_provisionable(pod: Any) -> bool:
    """What autoscalers look at (Karpenter 1.14, `pkg/utils/pod/scheduling.go::IsProvisionable`)."""
    reasons = {
        each["type"]: each.get("reason") for each in pod.get("status", {}).get("conditions", ())
    }
    is_free = not pod["spec"].get("nodeName") and not pod["status"].get("nominatedNodeName")
    return is_free and reasons.get("PodScheduled") == "Unschedulable"


def are_seen(scene: Scene, namespace: str, n_pods: int) -> bool:
    """Whether an autoscaler sees exactly so many pods of the namespace."""
    return sum(map(is_provisionable, pods_of(scene, namespace))) == n_pods


async def test_pods_that_are_owed_nodes_are_seen_and_bound_nowhere_before_they_have_a_row(
    scene: Scene,
) -> None:
    # Of lower priority, on the only node: kube-scheduler would preempt it, Ballast may not.
    patch(scene, "gpudepartment", "research", 6)
    patch(scene, "gpuproject", "team-b", 2)
    scene.submit_job("team-b", "low", 1, 2000, priority_class="ballast-training")
    await scene.until_bound("team-b", 1)
    group = workloads.pod_group("train", "team-a", 2)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", group)
    urgent = "ballast-interactive"
    scene.submit_job("team-a", "train", 2, 2000, group="train", priority_class=urgent)
    await scene.until(lambda: are_seen(scene, "team-a", 2), "two unschedulable pods")
    word = "2 nodes are requested by its pods, which wait without the gate"
    await scene.until(lambda: word in waits_for(scene, "team-a"), "the pods to say so")
    # One node of the two: it fits a pod of the gang, and the gang waits for both.
    scene.cluster.add_gpu_nodes(1, 2, prefix="first")
    await scene.until(lambda: scene.nodes_say_milli() == ["2000", "2000"], "the node's cards")
    await scene.until_decided(5)
    sight = await scene.look("team-a")
    assert not sight.bound, sight
    assert are_seen(scene, "team-a", 2)
    assert len((await scene.look("team-b")).bound) == 1
    scene.cluster.add_gpu_nodes(1, 2, prefix="second")
    await scene.until_bound("team-a", 2)
    assert len((await scene.look("team-b")).bound) == 1


async def test_pods_without_a_claim_come_back_behind_the_gate_and_their_job_does_not_fail(
    scene: Scene,
) -> None:
    body = workloads.job("train", "team-a", 2, 2000, group="train")
    body["spec"] |= {
        "backoffLimit": 0,
        "podFailurePolicy": DISRUPTIONS,
        "podReplacementPolicy": "Failed",
    }
    group = workloads.pod_group("train", "team-a", 2)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", group)
    scene.admin.post("/apis/batch/v1/namespaces/team-a/jobs", body)
    await scene.until(lambda: are_seen(scene, "team-a", 2), "two unschedulable pods")
    before = {pod["metadata"]["uid"] for pod in pods_of(scene, "team-a")}
    patch(scene, "gpuproject", "team-a", 2)

    def are_back() -> bool:
        pods = pods_of(scene, "team-a")
        uids = {pod["metadata"]["uid"] for pod in pods}
        return len(pods) == 2 and not uids & before and all(map(is_gated, pods))

    await scene.until(are_back, "two other pods, behind the gate")
    await scene.until(
        lambda: "GatedAgain" in {reason for reason, _ in scene.events("team-a")}, "the event"
    )
    status = scene.admin.get("/apis/batch/v1/namespaces/team-a/jobs/train")["status"]
    assert (status.get("failed", 0), status.get("conditions", [])) == (0, []), status
    await scene.until_decided(5)
    assert are_seen(scene, "team-a", 0)
    patch(scene, "gpuproject", "team-a", 4)
    scene.cluster.add_gpu_nodes(1, 2, prefix="more")
    await scene.until_bound("team-a", 2)


async def test_what_waits_for_quota_and_a_pod_without_an_owner_are_not_seen(scene: Scene) -> None:
    scene.submit_job("team-a", "runs", 1, 2000)
    await scene.until_bound("team-a", 1)
    submit_gang(scene, "team-b", 3)
    scene.submit_pod("team-a", "bare", 2000)
    why_not = "only work within its project's and department's quota gets new nodes"
    await scene.until(lambda: why_not in waits_for(scene, "team-b"), "team-b to be told why not")
    why_not = "nodes are added only for pods that a controller creates again"
    await scene.until(lambda: why_not in waits_for(scene, "team-a"), "the pod to be told why not")
    waiting = [pod for name in ("team-a", "team-b") for pod in pods_of(scene, name)]
    assert [is_gated(pod) for pod in waiting if not pod["spec"].get("nodeName")] == [True] * 4
