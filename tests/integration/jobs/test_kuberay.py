"""KubeRay's own operator, beside everything of ours. Skipped unless `make kuberay` has built it.

Nothing of Ray runs, so KubeRay submits a RayJob and never hears of it.
"""

from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.jobs.looks import (
    CARDS,
    HALF,
    change,
    container,
    delete,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_nothing_is_left,
    until_running,
)
from tests.support import kuberay as program
from tests.support.kuberay.running import KubeRay

pytestmark = pytest.mark.skipif(
    not program.PROGRAMS.has(), reason="no KubeRay: make kuberay builds it"
)
API = "/apis/ray.io/v1/namespaces/team-a"
#: More than half of the cards: two of them cannot run at once.
SIZE = HALF + 1


def template(gpus: int) -> dict[str, Any]:
    """Pods of a role. The scheduler of this test knows no other profile than ours."""
    return {"spec": {"containers": [container(gpus)], "schedulerName": names.SCHEDULER_NAME}}


def workers(replicas: int, **more: Any) -> list[dict[str, Any]]:
    """One group of workers with a GPU each."""
    return [
        {
            "groupName": "gpu",
            "replicas": replicas,
            "rayStartParams": {},
            "template": template(1),
        }
        | more
    ]


def cluster_of(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """A RayCluster's spec: a head without GPUs, and these groups of workers."""
    head = {"rayStartParams": {}, "template": template(0)}
    return {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": groups}


def submit(scene: Scene, kind: str, name: str, spec: dict[str, Any]) -> None:
    meta = {"name": name, "namespace": "team-a"}
    body = {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": spec}
    scene.admin.post(f"{API}/{kind.lower()}s", body)


def status(scene: Scene, name: str) -> dict[str, Any]:
    return dict(scene.admin.get(f"{API}/rayjobs/{name}").get("status") or {})


def cluster_name(scene: Scene, name: str) -> dict[str, str]:
    """The label of pods of the RayJob."""
    return {"ray.io/cluster": str(status(scene, name).get("rayClusterName"))}


def is_submitted(scene: Scene, name: str) -> bool:
    return status(scene, name).get("jobDeploymentStatus") == "Running"


@pytest.mark.timeout(300)
async def test_ray_jobs_start_whole_one_after_the_other(scene: Scene, kuberay: KubeRay) -> None:
    spec = {
        "entrypoint": "python train.py",
        "backoffLimit": 10,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": cluster_of(workers(SIZE)),
    }
    for name in ("one", "two"):
        submit(scene, "RayJob", name, spec)
    await scene.until(lambda: len(pods(scene, {"ray.io/group": "gpu"})) == 2 * SIZE, "all workers")
    await until_running(scene, SIZE)
    await scene.until_decided(3)
    assert len(running(scene)) == SIZE
    first = "one" if running(scene, cluster_name(scene, "one")) else "two"
    await scene.until(lambda: is_submitted(scene, first), "it to be submitted")
    change(scene, "rayjob", first, suspend=True)
    second = {"one": "two", "two": "one"}[first]
    await scene.until(lambda: is_submitted(scene, second), "the other to be submitted")
    assert len(running(scene, cluster_name(scene, second))) == SIZE
    await owner_returns(scene)
    await until_running(scene, 0)
    owner_leaves(scene)
    await until_running(scene, SIZE)
    assert is_submitted(scene, second)
    delete(scene, "rayjob", first, second)
    await until_nothing_is_left(scene)
    assert kuberay.is_alive


@pytest.mark.timeout(300)
async def test_workers_above_the_fewest_come_and_go_and_those_of_a_service_are_inference(
    scene: Scene, kuberay: KubeRay
) -> None:
    submit(scene, "RayCluster", "tune", cluster_of(workers(CARDS, minReplicas=2)))
    before = await until_running(scene, CARDS)
    await owner_returns(scene)
    await until_running(scene, HALF)
    assert running(scene).keys() <= before.keys()
    change(scene, "raycluster", "tune", workerGroupSpecs=workers(3, minReplicas=2))
    await until_running(scene, 3)
    change(scene, "raycluster", "tune", suspend=True)
    await until_running(scene, 0)
    change(scene, "raycluster", "tune", suspend=False)
    await until_running(scene, 3)
    delete(scene, "raycluster", "tune")
    await until_nothing_is_left(scene)
    service = {"serveConfigV2": "applications: []", "rayClusterConfig": cluster_of(workers(2))}
    submit(scene, "RayService", "llm", service)
    await until_running(scene, 2)
    kinds = {
        pod["metadata"]["labels"][names.LABEL_WORKLOAD_KIND]
        for pod in pods(scene, {"ray.io/group": "gpu"})
    }
    assert kinds == {"inference"}
    assert kuberay.is_alive
