"""Which pods Kubernetes' controllers remove first where some run and others wait for GPUs."""

import json
from typing import Any

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import (
    CARDS,
    DEPLOYMENTS,
    FLOOR,
    deployment,
    running,
)

PODS = "/api/v1/namespaces/team-a/pods"
SETS = "/apis/apps/v1/namespaces/team-a/statefulsets"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


def n_pods(scene: Scene) -> int:
    """How many pods team-a has."""
    return len(scene.admin.get(PODS)["items"])


def scale(scene: Scene, what: str, n: int) -> None:
    """Change the number of replicas by the subresource `scale`, as autoscalers do."""
    scene.cluster.kubectl("scale", what, "-n", "team-a", f"--replicas={n}")


async def test_a_deployment_removes_pods_that_wait_before_any_that_runs(scene: Scene) -> None:
    scene.admin.post(DEPLOYMENTS, deployment(CARDS, None))
    await scene.until_bound("team-a", FLOOR)
    await scene.until(lambda: n_pods(scene) == CARDS, "the others to wait")
    before = running(scene).keys()
    cost = "controller.kubernetes.io/pod-deletion-cost=-1000"
    scene.cluster.kubectl("annotate", "pods", *before, "-n", "team-a", cost)
    for n in range(CARDS - 1, FLOOR - 1, -1):
        scale(scene, "deployment/llm", n)
        await scene.until(lambda left=n: n_pods(scene) == left, f"{n} pods")  # type: ignore[misc]
        assert running(scene).keys() == before


async def test_a_job_removes_pods_that_wait_before_any_that_runs(scene: Scene) -> None:
    scene.submit_job("team-b", "owner", FLOOR, 1000)
    await scene.until_bound("team-b", FLOOR)
    scene.submit_job("team-a", "search", CARDS, 1000)
    await scene.until_bound("team-a", FLOOR)
    await scene.until(lambda: n_pods(scene) == CARDS, "the others to wait")
    before = running(scene).keys()
    patch = json.dumps({"spec": {"parallelism": FLOOR}})
    scene.cluster.kubectl("patch", "job", "search", "-n", "team-a", "--type=merge", "-p", patch)
    await scene.until(lambda: n_pods(scene) == FLOOR, "those that wait to go")
    assert running(scene).keys() == before


def stateful_set(n: int) -> dict[str, Any]:
    """The Deployment of the page as a StatefulSet with so many replicas, two of them kept."""
    made = deployment(n, FLOOR)
    made["kind"] = "StatefulSet"
    del made["spec"]["strategy"]
    made["spec"] |= {"serviceName": "llm", "podManagementPolicy": "Parallel"}
    return made


async def test_a_stateful_set_removes_its_last_pod_though_it_runs_and_an_earlier_one_waits(
    scene: Scene,
) -> None:
    scene.admin.post(SETS, stateful_set(FLOOR + 1))
    await scene.until_bound("team-a", FLOOR + 1)
    uid = scene.admin.get(f"{PODS}/llm-0")["metadata"]["uid"]
    scene.cluster.kubectl("delete", "pod", "llm-0", "-n", "team-a")
    await scene.until(
        lambda: (
            "llm-0" in running(scene) and scene.admin.get(f"{PODS}/llm-0")["metadata"]["uid"] != uid
        ),
        "the first pod to be the youngest",
    )
    scene.submit_job("team-b", "owner", FLOOR, 1000)
    await scene.until_bound("team-b", FLOOR)
    await scene.until(lambda: n_pods(scene) == FLOOR + 1, "the first pod again")
    assert running(scene).keys() == {"llm-1", "llm-2"}
    scale(scene, "statefulset/llm", FLOOR)
    await scene.until(lambda: running(scene).keys() == {"llm-0", "llm-1"}, "the last pod to go")
