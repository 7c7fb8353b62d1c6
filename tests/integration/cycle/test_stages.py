"""Every action of a cycle on a real control plane: pods are moved and evicted."""

from typing import Any

from tests.integration.cycle.two_projects import Scene
from tests.support import workloads


def bound_on(scene: Scene, project: str) -> dict[str, str]:
    """Node of each bound pod that stays, by the name of its Job."""
    pods: list[dict[str, Any]] = scene.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
    return {
        pod["metadata"]["labels"]["job-name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    }


async def leave_one_card_on_each_node(scene: Scene) -> None:
    """Team-a runs a pod on each of two nodes, which have a free card each."""
    names = [f"small-{at}" for at in range(4)]
    for name in names:
        scene.submit_job("team-a", name, 1, 1000)
    await scene.until_bound("team-a", 4)
    on = bound_on(scene, "team-a")
    for node in sorted(set(on.values())):
        name = next(name for name in names if on[name] == node)
        scene.cluster.kubectl("delete", "job", name, "-n", "team-a", "--wait=false")
    await scene.until_bound("team-a", 2)


async def test_pod_is_moved_so_that_a_bigger_one_fits(scene: Scene) -> None:
    await leave_one_card_on_each_node(scene)
    before = bound_on(scene, "team-a")
    scene.submit_job("team-b", "big", 1, 2000)
    await scene.until_bound("team-b", 1)
    await scene.until(lambda: len(bound_on(scene, "team-a")) == 2, "both pods running again")
    after = bound_on(scene, "team-a")
    assert len(set(before.values())) == 2
    assert set(after.values()) == {"gpu-node-0000", "gpu-node-0001"} - {
        bound_on(scene, "team-b")["big"]
    }
    await scene.until(lambda: "Moved" in scene.reasons("team-a"), "the event Moved")
    assert "Reclaimed" not in scene.reasons("team-a")


async def test_pods_under_a_disruption_budget_are_not_moved(scene: Scene) -> None:
    await leave_one_card_on_each_node(scene)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "team-a"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    scene.admin.post("/apis/policy/v1/namespaces/team-a/poddisruptionbudgets", budget)
    before = bound_on(scene, "team-a")
    scene.submit_job("team-b", "big", 1, 2000)

    def is_nominated() -> list[bool]:
        nodes = scene.get("gpunodes")["items"]
        return [row["state"] == "nominated" for node in nodes for row in node["spec"]["rows"]]

    await scene.until(lambda: bool(scene.reasons("team-b")), "a reason to wait")
    assert "ballast_control_eviction_refusals_total 0.0" in scene.metrics()
    await scene.until(lambda: is_nominated() == [False, False], "no place is kept")
    assert bound_on(scene, "team-a") == before


async def test_work_of_higher_priority_takes_from_its_own_project(scene: Scene) -> None:
    scene.submit_job("team-a", "low", 2, 1000, priority_class="ballast-training")
    scene.submit_job("team-b", "other", 2, 1000)
    await scene.until_bound("team-a", 2)
    await scene.until_bound("team-b", 2)
    scene.submit_job("team-a", "urgent", 1, 1000, priority_class="ballast-interactive")
    await scene.until(lambda: "urgent" in bound_on(scene, "team-a"), "the urgent pod")
    await scene.until(lambda: "Preempted" in scene.reasons("team-a"), "the event Preempted")
    assert not scene.reasons("team-b") & {"Reclaimed", "Preempted", "Moved"}


async def test_work_of_a_class_that_never_preempts_waits_and_goes_first(scene: Scene) -> None:
    patient = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "patient"},
        "value": 90,
        "preemptionPolicy": "Never",
    }
    scene.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", patient)
    scene.submit_job("team-a", "low", 2, 1000, priority_class="ballast-training")
    scene.submit_job("team-b", "other", 2, 1000)
    await scene.until_bound("team-a", 2)
    await scene.until_bound("team-b", 2)
    scene.submit_job("team-a", "patient", 1, 1000, priority_class="patient")
    await scene.until(lambda: bool(scene.reasons("team-a", "patient")), "an event on patient")
    scene.submit_job("team-a", "urgent", 1, 1000, priority_class="ballast-interactive")
    await scene.until(lambda: "urgent" in bound_on(scene, "team-a"), "the urgent pod")
    assert "patient" not in bound_on(scene, "team-a")
    scene.cluster.kubectl("delete", "job", "low", "urgent", "-n", "team-a", "--wait=false")
    await scene.until(lambda: "patient" in bound_on(scene, "team-a"), "the patient pod")
    evicted = [pod for reason, pod in scene.events("team-a") if reason == "Preempted"]
    assert len(evicted) == 1, evicted
    assert evicted[0].startswith("low"), evicted


async def test_gang_that_stays_below_its_minimum_is_taken_down_whole(scene: Scene) -> None:
    body = workloads.pod_group("gang", "team-a", 2)
    body["spec"]["stalenessGraceSeconds"] = 2
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", body)
    for name in ("a", "b"):
        scene.submit_pod("team-a", name, 1000, group="gang")
    await scene.until_bound("team-a", 2)
    scene.cluster.kubectl("delete", "pod", "b", "-n", "team-a", "--wait=false")
    await scene.until_bound("team-a", 0)
    await scene.until(lambda: "GangStale" in scene.reasons("team-a"), "the event GangStale")
