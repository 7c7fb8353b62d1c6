"""What the controller checks itself, with no webhook installed, on the real control plane."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.scene import Scene
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
    """One more project of team-a's namespace."""
    body = workloads.project(name, "research", "team-a", 4)
    body["spec"].update(spec)
    scene.admin.post(f"{workloads.API}/gpuprojects", body)


def events_of(scene: Scene, prefix: str) -> set[str]:
    """Reasons of our events on team-a's pods of these names."""
    return {reason for reason, pod in scene.events("team-a") if pod.startswith(prefix)}


async def test_a_class_that_the_project_does_not_allow_starts_nothing(scene: Scene) -> None:
    add_project(scene, "strict", allowedPriorityClasses=["ballast-training"])
    group = workloads.pod_group("sly", "team-a", 1)
    group["spec"]["priorityClassName"] = "ballast-inference"
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", group)
    labels = {names.LABEL_PROJECT: "strict"}
    scene.submit_job("team-a", "sly", 1, 1000, group="sly", labels=labels)
    await scene.until(
        lambda: "PriorityClassNotAllowed" in events_of(scene, "sly"), "an event that says why"
    )
    scene.submit_job("team-a", "honest", 1, 1000, labels=labels)
    await scene.until_bound("team-a", 1)
    rows = [row for node in scene.get("gpunodes")["items"] for row in node["spec"]["rows"]]
    assert [row["name"].split("-")[0] for row in rows] == ["honest"]


async def test_what_a_pod_asks_for_as_a_whole_counts_against_its_projects_limit(
    scene: Scene,
) -> None:
    figures = {"name": "default", "gpu": {"quota": 4}, "cpu": {"quota": "8", "limit": "8"}}
    add_project(scene, "small", nodePools=[figures])
    pod = workloads.bare_pod("big", "team-a", 1000, labels={names.LABEL_PROJECT: "small"})
    pod["spec"]["resources"] = {"requests": {"cpu": "20"}, "limits": {"cpu": "20"}}
    scene.admin.post("/api/v1/namespaces/team-a/pods", pod)
    await scene.until(lambda: "OverLimit" in events_of(scene, "big"), "an event that says why")
    scene.submit_pod("team-a", "within", 1000, labels={names.LABEL_PROJECT: "small"})
    await scene.until_bound("team-a", 1)


async def test_more_compute_time_than_the_fraction_starts_nothing(scene: Scene) -> None:
    for name, gated in (("planned", True), ("direct", False)):
        pod = workloads.bare_pod(name, "team-a", 100, gated=gated)
        pod["metadata"]["annotations"]["gpu-compute-request"] = "1"
        scene.admin.post("/api/v1/namespaces/team-a/pods", pod)
    scene.submit_pod("team-a", "neighbour", 900)
    await scene.until_bound("team-a", 1)
    await scene.until(
        lambda: "InvalidRequest" in events_of(scene, "planned"), "an event that says why"
    )
    pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
    bound = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
    assert bound == ["neighbour"]
