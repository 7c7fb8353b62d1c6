"""What tenants see with `kubectl describe` of their pods, on a real control plane."""

import asyncio
from typing import Any

from click.testing import CliRunner

from extender.__main__ import main
from tests.integration.cycle.two_projects import Scene


def pods(scene: Scene, namespace: str, job: str) -> list[Any]:
    listed = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in listed if pod["metadata"]["labels"].get("job-name") == job]


def conditions(pod: Any) -> dict[str, Any]:
    return {each["type"]: each for each in pod["status"].get("conditions", ())}


def placed(scene: Scene, namespace: str, job: str) -> list[tuple[str, str]]:
    """(status, reason) of the pods' condition, of those that have it."""
    found = (conditions(pod).get("ballast.dev/Placed") for pod in pods(scene, namespace, job))
    return sorted((each["status"], each["reason"]) for each in found if each)


def is_ready(pod: Any) -> bool:
    """Whether the kubelet and kube-scheduler say that the pod runs."""
    told = conditions(pod)
    return all(told.get(each, {}).get("status") == "True" for each in ("PodScheduled", "Ready"))


async def submit_at_once(scene: Scene, name: str, n_pods: int) -> None:
    """A Job of team-a with pods that the controller sees all at once: what it says of the first
    would be said of one pod only."""
    control = scene.installation.control
    control.freeze()
    try:
        scene.submit_job("team-a", name, n_pods, 1000)
        await scene.until(lambda: len(pods(scene, "team-a", name)) == n_pods, f"{n_pods} pods")
    finally:
        control.thaw()


async def test_a_waiting_job_says_why_on_its_pods_and_on_itself(scene: Scene) -> None:
    scene.submit_job("team-a", "first", 4, 1000)
    await scene.until_bound("team-a", 4)
    await submit_at_once(scene, "second", 3)
    await scene.until(
        lambda: placed(scene, "team-a", "second") == [("False", "OverFairShare")] * 3,
        "a condition on every pod that waits",
    )
    (one, *_) = pods(scene, "team-a", "second")
    message = conditions(one)["ballast.dev/Placed"]["message"]
    assert "fair share" in message
    assert "milli" not in message
    assert conditions(one)["PodScheduled"]["reason"] == "SchedulingGated", "kept as it was"
    assert placed(scene, "team-a", "first") == [], "no write for pods that start at once"

    def told() -> list[tuple[str, str]]:
        return sorted(
            (event["regarding"]["kind"], event["note"])
            for event in scene.full_events("team-a")
            if event["reason"] == "OverFairShare"
        )

    await scene.until(lambda: len(told()) == 2, "an event on the Job and on one pod")
    (job, on_job), (pod, on_pod) = told()
    assert (job, pod) == ("Job", "Pod")
    assert on_job.startswith("3 pods wait: needs 1 GPU")
    assert "OverFairShare" not in on_pod
    assert "OverFairShare" in scene.cluster.kubectl("describe", "job", "second", "-n", "team-a")

    scene.admin.delete("/apis/batch/v1/namespaces/team-a/jobs/first")
    await scene.until(
        lambda: placed(scene, "team-a", "second") == [("True", "Scheduled")] * 3,
        "pods that have waited say that they are placed",
    )
    await scene.until(
        lambda: all(is_ready(pod) for pod in pods(scene, "team-a", "second")),
        "the kubelet's conditions, which stay",
    )
    assert placed(scene, "team-a", "second") == [("True", "Scheduled")] * 3


async def test_a_gang_by_label_has_a_group_that_goes_with_its_job(scene: Scene) -> None:
    labels = {"ballast.dev/pod-group": "train"}
    scene.submit_job("team-a", "train", 2, 1000, labels=labels)
    await scene.until_bound("team-a", 2)
    path = "namespaces/team-a/gpupodgroups"
    await scene.until(lambda: len(scene.get(path)["items"]) == 1, "a group for the pods")
    (group,) = scene.get(path)["items"]
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "train")

    def statuses() -> list[str]:
        status = scene.get(f"{path}/{group['metadata']['name']}").get("status", {})
        return [each["status"] for each in status.get("conditions", [])]

    await scene.until(lambda: statuses()[:1] == ["True"], "the condition Scheduled")

    def told() -> set[str]:
        events = scene.full_events("team-a")
        return {each["regarding"]["kind"] for each in events if "has no size" in each["note"]}

    await scene.until(lambda: told() == {"Job", "Pod"}, "a warning that the group has no size")
    scene.admin.delete("/apis/batch/v1/namespaces/team-a/jobs/train")
    await scene.until(lambda: not scene.get(path)["items"], "the group to go with its Job")


async def test_a_reclaimed_job_learns_for_whom_and_with_which_figures(scene: Scene) -> None:
    scene.submit_job("team-a", "borrower", 4, 1000)
    await scene.until_bound("team-a", 4)
    scene.submit_job("team-b", "secret", 2, 1000)
    await scene.until_bound("team-b", 2)
    await scene.until_bound("team-a", 2)

    def told() -> list[Any]:
        events = scene.full_events("team-a")
        return [each for each in events if each["reason"] == "Reclaimed"]

    await scene.until(lambda: len(told()) == 3, "an event for each victim, and one for the Job")
    for event in told():
        assert "reclaimed for project team-b (1 GPU): team-b holds" in event["note"]
        assert "(quota 2); team-a holds" in event["note"]
        assert "Job borrower creates the pod again" in event["note"]
        assert "secret" not in str(event)
    assert "borrower" not in str(scene.full_events("team-b"))

    env = {"KUBECONFIG": scene.plane.kubeconfig, "COLUMNS": "300"}
    asked = ["history", "job/borrower", "-n", "team-a", "--evictions"]
    done = await asyncio.to_thread(CliRunner().invoke, main, asked, env=env)
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["TIME", "OBJECT", "WHAT", "MESSAGE"]
    evicted = sorted(
        each["regarding"]["name"] for each in told() if each["regarding"]["kind"] == "Pod"
    )
    assert sorted(line.split()[1] for line in lines) == [f"pod/{name}" for name in evicted]
    for line in lines:
        assert line.split()[2] == "Reclaimed"
        assert "reclaimed for project team-b (1 GPU): team-b holds" in line
