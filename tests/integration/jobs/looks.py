"""Reads and changes team-a's namespace as a user or a kubelet would, for the tests of jobs."""

import json
from typing import Any

from extender.api import names
from extender.kube.resources import PODS
from tests.integration.cycle.two_projects import Scene

NAMESPACE = "team-a"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
#: Cards of the cluster, of which each project has half as quota.
CARDS = 8
HALF = CARDS // 2
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_TIMES = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
Labels = dict[str, str]


def container(gpus: int, **more: Any) -> dict[str, Any]:
    """A container with so many GPUs."""
    wanted = {"cpu": "1"} | ({names.NVIDIA_GPU: str(gpus)} if gpus else {})
    return {"name": "main", "image": "example.invalid/none", "resources": {"limits": wanted}} | more


def pods(scene: Scene, labels: Labels | None = None) -> list[dict[str, Any]]:
    """Pods with these labels that are not terminating."""
    listed = scene.admin.get(_PODS)["items"]
    wanted = (labels or {}).items()
    return [
        pod
        for pod in listed
        if wanted <= pod["metadata"]["labels"].items()
        and not pod["metadata"].get("deletionTimestamp")
    ]


def running(scene: Scene, labels: Labels | None = None) -> dict[str, str]:
    """The nodes of pods that hold cards, by UID."""
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"]
        for pod in pods(scene, labels)
        if names.ANNOTATION_CARDS in (pod["metadata"].get("annotations") or {})
        and pod["status"]["phase"] == "Running"
    }


async def until_running(scene: Scene, n_pods: int, labels: Labels | None = None) -> dict[str, str]:
    """`running`, once exactly so many of them run."""
    await scene.until(lambda: len(running(scene, labels)) == n_pods, f"{n_pods} running pods")
    return running(scene, labels)


async def until_nothing_is_left(scene: Scene) -> None:
    """Until no pod, row or group of the namespace is there."""

    def is_gone() -> bool:
        rows = (row for node in scene.get("gpunodes")["items"] for row in node["spec"]["rows"])
        groups = scene.get(f"namespaces/{NAMESPACE}/gpupodgroups")["items"]
        is_held = any(row["namespace"] == NAMESPACE for row in rows)
        return not (is_held or groups or scene.admin.get(_PODS)["items"])

    await scene.until(is_gone, "nothing of the job to be left")


async def owner_returns(scene: Scene) -> None:
    """team-b takes all of its quota."""
    scene.submit_job("team-b", "owner", HALF, 1000)
    await scene.until_bound("team-b", HALF)


def owner_leaves(scene: Scene) -> None:
    """team-b gives it back."""
    scene.cluster.kubectl("delete", "job", "owner", "-n", "team-b")


async def end(scene: Scene, labels: Labels, exit_code: int, *, only: str = "") -> None:
    """The running pods with these labels end, as a kubelet would tell; with `only`, just their
    containers whose names begin so."""
    phase = "Running" if only else "Failed" if exit_code else "Succeeded"
    ended = {"ready": False, "state": {"terminated": {"exitCode": exit_code} | _TIMES}}
    for pod in pods(scene, labels):
        if pod["status"]["phase"] != "Running":
            continue
        statuses = [
            each | (ended if each["name"].startswith(only) else {})
            for each in pod["status"]["containerStatuses"]
        ]
        body = {"status": {"phase": phase, "containerStatuses": statuses}}
        name = pod["metadata"]["name"]
        await scene.client.merge_patch(PODS, name, body, namespace=NAMESPACE, subresource="status")


def change(scene: Scene, kind: str, name: str, **spec: Any) -> None:
    """Write these fields of the object's spec."""
    patch = json.dumps({"spec": spec})
    words = ("patch", kind, name, "-n", NAMESPACE, "--type=merge", "-p", patch)
    scene.cluster.kubectl(*words)


def delete(scene: Scene, kind: str, *objects: str) -> None:
    """Delete the objects, and do not wait for what they own."""
    scene.cluster.kubectl("delete", kind, *objects, "-n", NAMESPACE, "--wait=false")
