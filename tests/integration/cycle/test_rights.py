"""The controller's own checks, without webhooks, on a real control plane."""

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
    """Two nodes of four cards; team-a and team-b may have four each. Ends at rest."""
    async with Scene.open(cluster, n_nodes=2, cards=4) as opened:
        yield opened
        await audited.finish()


def add_project(scene: Scene, name: str, **spec: Any) -> None:
    """One more project, with a namespace of its name."""
    scene.plane.make_namespace(name)
    body = workloads.project(name, "research", name, 4)
    body["spec"].update(spec)
    scene.admin.post(f"{workloads.API}/gpuprojects", body)


async def test_a_class_that_the_project_does_not_allow_starts_nothing(scene: Scene) -> None:
    add_project(scene, "strict", allowedPriorityClasses=["ballast-training"])
    group = workloads.pod_group("sly", "strict", 1)
    group["spec"]["priorityClassName"] = "ballast-inference"
    scene.admin.post(f"{workloads.API}/namespaces/strict/gpupodgroups", group)
    scene.submit_job("strict", "sly", 1, 1000, group="sly")
    await scene.until(
        lambda: "PriorityClassNotAllowed" in scene.reasons("strict", "sly"),
        "an event that says why",
    )
    scene.submit_job("strict", "honest", 1, 1000)
    await scene.until_bound("strict", 1)
    rows = [row for node in scene.get("gpunodes")["items"] for row in node["spec"]["rows"]]
    assert [row["name"].split("-")[0] for row in rows] == ["honest"]


async def test_what_a_pod_asks_for_as_a_whole_counts_against_its_projects_limit(
    scene: Scene,
) -> None:
    figures = {"name": "default", "gpu": {"quota": 4}, "cpu": {"quota": "8", "limit": "8"}}
    add_project(scene, "small", nodePools=[figures])
    pod = workloads.bare_pod("big", "small", 1000)
    pod["spec"]["resources"] = {"requests": {"cpu": "20"}, "limits": {"cpu": "20"}}
    scene.admin.post("/api/v1/namespaces/small/pods", pod)
    await scene.until(
        lambda: "OverLimit" in scene.reasons("small", "big"), "an event that says why"
    )
    scene.submit_pod("small", "within", 1000)
    await scene.until_bound("small", 1)


async def test_more_compute_time_than_the_fraction_starts_nothing(scene: Scene) -> None:
    for name, gated in (("planned", True), ("direct", False)):
        pod = workloads.bare_pod(name, "team-a", 100, gated=gated)
        pod["metadata"]["annotations"]["gpu-compute-request"] = "1"
        scene.admin.post("/api/v1/namespaces/team-a/pods", pod)
    scene.submit_pod("team-a", "neighbour", 900)
    await scene.until_bound("team-a", 1)
    await scene.until(
        lambda: "InvalidRequest" in scene.reasons("team-a", "planned"), "an event that says why"
    )
    pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
    bound = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
    assert bound == ["neighbour"]


async def test_gated_pod_that_asks_for_no_gpu_is_told_so_and_is_in_nothings_way(
    scene: Scene,
) -> None:
    pod = workloads.bare_pod("no-gpu", "team-a", 1000)
    resources = {"cpu": "100m", "memory": "64Mi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    scene.admin.post("/api/v1/namespaces/team-a/pods", pod)

    def placed() -> list[tuple[str, str]]:
        found = scene.admin.get("/api/v1/namespaces/team-a/pods/no-gpu")["status"]
        return [
            (each["reason"], each["message"])
            for each in found.get("conditions", ())
            if each["type"] == names.CONDITION_PLACED
        ]

    await scene.until(lambda: bool(placed()), "a condition that says why")
    ((reason, message),) = placed()
    assert reason == "InvalidRequest"
    assert "requests no GPU" in message
    await scene.until_told("team-a", "InvalidRequest", "no-gpu")
    scene.submit_pod("team-a", "with-gpu", 1000)
    await scene.until_bound("team-a", 1)
    assert "rows refused" not in scene.installation.control.read_log()


async def test_a_launcher_that_asks_for_no_gpu_starts_beside_its_gang(scene: Scene) -> None:
    scene.admin.post(
        f"{workloads.API}/namespaces/team-a/gpupodgroups", workloads.pod_group("mpi", "team-a", 2)
    )
    launcher = workloads.bare_pod("launcher", "team-a", 1000, group="mpi", gated=False)
    resources = {"cpu": "100m", "memory": "64Mi"}
    launcher["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    scene.admin.post("/api/v1/namespaces/team-a/pods", launcher)
    scene.submit_job("team-a", "worker", 2, 1000, group="mpi")
    await scene.until_bound("team-a", 3)
