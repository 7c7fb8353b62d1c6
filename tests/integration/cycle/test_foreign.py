"""Pods that hold cards without a row, on a real control plane."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """Three nodes of four cards; team-a and team-b may have six each. Ends at rest."""
    async with Scene.open(cluster, n_nodes=3, cards=4) as opened:
        yield opened
        await audited.finish()


def nodes_of(scene: Scene) -> list[str]:
    return sorted(node["metadata"]["name"] for node in scene.get("gpunodes")["items"])


def foreign_pod(name: str, node: str, gpus: int, **annotations: str) -> Any:
    """A pod that was given whole cards by anything but Ballast."""
    resources = {"cpu": "100m", names.NVIDIA_GPU: str(gpus)}
    container = {
        "name": "main",
        "image": "example",
        "resources": {"requests": resources, "limits": resources},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [container]},
    }


def submit(scene: Scene, namespace: str, pod: Any) -> None:
    scene.admin.post(f"/api/v1/namespaces/{namespace}/pods", pod)


async def until_shown(scene: Scene, node: str, *holds: tuple[str, int]) -> None:
    def shown() -> list[tuple[str, int]]:
        status = scene.get(f"gpunodes/{node}").get("status", {})
        return [(hold["name"], hold["gpus"]) for hold in status.get("foreign", [])]

    await scene.until(lambda: shown() == list(holds), f"{node} to show {holds}")


def pods_of(scene: Scene, namespace: str, prefix: str = "") -> list[Any]:
    pods = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in pods if pod["metadata"]["name"].startswith(prefix)]


def node_of(pod: Any) -> str:
    return str(pod["spec"].get("nodeName", ""))


async def bound_to(scene: Scene, namespace: str) -> set[str]:
    return {node_of(pod) for pod in pods_of(scene, namespace)}


def was_refused(scene: Scene, name: str) -> bool:
    """Whether kube-scheduler has said that no node takes the pod."""
    (pod,) = pods_of(scene, "team-b", name)
    return any(
        (each["type"], each["status"]) == ("PodScheduled", "False")
        for each in pod["status"].get("conditions", [])
    )


async def test_work_goes_to_the_node_that_foreign_pods_left_free(scene: Scene) -> None:
    *full, empty = nodes_of(scene)
    scene.plane.make_namespace("noproject")
    for node in full:
        submit(scene, "noproject", foreign_pod(f"legit-{node}", node, 4))
        await until_shown(scene, node, (f"legit-{node}", 4))
    scene.submit_job("team-a", "owner", 4, 1000)
    await scene.until_bound("team-a", 4)
    assert await bound_to(scene, "team-a") == {empty}
    # No card is left for a pod that the extender places itself.
    scene.submit_pod("team-b", "direct", 500, gated=False)
    await scene.until(lambda: was_refused(scene, "direct"), "the refusal of the direct pod")
    assert await bound_to(scene, "team-b") == {""}
    scene.admin.delete(f"/api/v1/namespaces/noproject/pods/legit-{full[0]}?gracePeriodSeconds=0")
    await until_shown(scene, full[0])
    scene.submit_job("team-b", "later", 3, 1000)
    await scene.until(
        lambda: sum(bool(node_of(pod)) for pod in pods_of(scene, "team-b", "later-")) == 3,
        "the pods that take the node over",
    )
    assert {node_of(pod) for pod in pods_of(scene, "team-b", "later-")} == {full[0]}


async def test_mirror_pods_of_a_taken_over_node_cost_no_project_its_share(scene: Scene) -> None:
    taken_over, *_ = nodes_of(scene)
    mirror = {
        names.ANNOTATION_MIRROR: "hash",
        names.ANNOTATION_CARDS: "0:1000:1,1:1000:1,2:1000:1,3:1000:1",
        names.ANNOTATION_PLAN: f"1 {taken_over}",
    }
    for name in ("one", "two"):
        submit(scene, "team-a", foreign_pod(name, taken_over, 60, **mirror))
    await until_shown(scene, taken_over, ("one", 4))
    scene.submit_job("team-b", "borrower", 8, 1000)
    await scene.until_bound("team-b", 8)
    scene.submit_job("team-a", "owner", 2, 1000)
    await scene.until(
        lambda: len([pod for pod in pods_of(scene, "team-a", "owner-") if node_of(pod)]) == 2,
        "the pods of the project whose share the mirror pods were to fill",
    )
    assert float(scene.get("gpuprojects/team-a")["status"]["gpu"]["allocated"]) <= 2
    for name in ("one", "two"):
        scene.admin.delete(f"/api/v1/namespaces/team-a/pods/{name}?gracePeriodSeconds=0")


async def test_a_pod_of_a_project_without_a_row_is_told_of_and_evicted_where_asked_for(
    scene: Scene,
) -> None:
    node, *_ = nodes_of(scene)
    scene.submit_job("team-b", "beside", 1, 1000)
    await scene.until_bound("team-b", 1)
    submit(scene, "team-a", foreign_pod("stray", node, 2))
    await scene.until(
        lambda: ("Unledgered", "stray") in scene.events("team-a"), "an event on the pod"
    )
    assert 'ballast_control_foreign_gpus{managed="true"} 2.0' in scene.metrics()
    assert scene.get("gpuprojects/team-a")["status"]["gpu"]["allocated"] == "0"
    pool = {
        "apiVersion": names.API_VERSION,
        "kind": "GpuNodePool",
        "metadata": {"name": "default"},
        "spec": {"unledgeredPods": "Evict"},
    }
    scene.admin.post(f"{workloads.API}/gpunodepools", pool)
    await scene.until(
        lambda: scene.admin.get("/api/v1/namespaces/team-a/pods")["items"] == [],
        "the eviction of the pod",
    )
    await until_shown(scene, node)
