"""A borrower with disruption budgets and long grace periods, on a real control plane."""

import json
from typing import Any

from tests.integration.cycle.two_projects import Scene
from tests.support import workloads

DAY_S = 86_400


def protect(scene: Scene, **spec: Any) -> None:
    """A budget over all pods of team-a."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"selector": {}, **spec},
    }
    scene.admin.post("/apis/policy/v1/namespaces/team-a/poddisruptionbudgets", budget)


def state_deadline(scene: Scene, **spec: int) -> None:
    scene.cluster.kubectl(
        "patch", "gpuproject", "team-a", "--type=merge", "-p", json.dumps({"spec": spec})
    )


def pods(scene: Scene, project: str) -> dict[str, Any]:
    items = scene.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
    return {pod["metadata"]["uid"]: pod for pod in items if pod["spec"].get("nodeName")}


async def test_a_gang_is_never_taken_apart_by_its_budget(scene: Scene) -> None:
    body = workloads.pod_group("gang", "team-a", 3)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", body)
    protect(scene, minAvailable=2)
    scene.submit_job("team-a", "gang", 3, 1000, group="gang")
    await scene.until_bound("team-a", 3)
    before = pods(scene, "team-a").keys()
    scene.submit_job("team-b", "owner", 2, 1000)
    await scene.until(
        lambda: "VictimsProtected" in {reason for reason, _ in scene.events("team-b")},
        "the owner to be told of the budget",
    )
    await scene.until_decided(5)
    after = pods(scene, "team-a")
    assert after.keys() == before
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in after.values())


async def test_a_borrower_keeps_nothing_by_a_budget_or_a_grace_of_its_own(scene: Scene) -> None:
    state_deadline(scene, disruptionBudgetSeconds=5, maxTerminationGraceSeconds=2)
    protect(scene, maxUnavailable=0)
    scene.submit_job("team-a", "keep", 4, 1000, stop_s=DAY_S // 10)
    await scene.until_bound("team-a", 4)
    scene.submit_job("team-b", "owner", 2, 1000)

    def graces() -> list[int]:
        listed = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
        return [
            pod["metadata"]["deletionGracePeriodSeconds"]
            for pod in listed
            if pod["metadata"].get("deletionTimestamp")
        ]

    await scene.until(lambda: graces() == [2, 2], "two pods to end within the bounded grace")
    # No kubelet ends them here when the grace is over.
    scene.end_now("team-a")
    await scene.until_bound("team-b", 2)
