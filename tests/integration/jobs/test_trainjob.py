"""Kubeflow Trainer's controller, beside JobSet's and Ballast. Skipped unless `make jobset kubeflow`
built both."""

from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.jobs.looks import (
    JOBS,
    change,
    delete,
    end,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_nothing_is_left,
    until_running,
)
from tests.support import jobset, kubeflow
from tests.support.controllers import SigsController

pytestmark = pytest.mark.skipif(
    not (jobset.PROGRAMS.has() and kubeflow.PROGRAMS.has(kubeflow.TRAINER)),
    reason="no Kubeflow Trainer: make jobset kubeflow builds it",
)
API = "/apis/trainer.kubeflow.org/v1alpha1"
TRAIN_JOBS = f"{API}/namespaces/team-a/trainjobs"
NAME = "train"
#: Nodes of two GPUs each, more than half of the cards. The Job controller creates three pods that
#: were evicted together again after 40 s.
NODES = 3


def runtime() -> dict[str, Any]:
    """A runtime as an administrator writes it for PyTorch."""
    container = {"name": "node", "image": "example.invalid/none"}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = {
        "metadata": {"labels": step},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {
            "name": "torch-distributed",
            "labels": {"trainer.kubeflow.org/framework": "torch"},
        },
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


def train_job() -> dict[str, Any]:
    per_node = {"limits": {"cpu": "1", "nvidia.com/gpu": "2"}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": NAME, "namespace": "team-a"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": NODES, "resourcesPerNode": per_node},
        },
    }


def conditions(scene: Scene) -> set[str]:
    """What holds of the job."""
    found = scene.admin.get(f"{TRAIN_JOBS}/{NAME}").get("status") or {}
    return {each["type"] for each in found.get("conditions") or () if each["status"] == "True"}


@pytest.mark.timeout(300)
async def test_a_train_job_is_evicted_whole_starts_whole_again_and_succeeds(
    scene: Scene, trainer: SigsController
) -> None:
    await owner_returns(scene)
    scene.admin.post(f"{API}/clustertrainingruntimes", runtime())
    scene.admin.post(TRAIN_JOBS, train_job())
    await scene.until(lambda: len(pods(scene)) == NODES, "the pods")
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    before = await until_running(scene, NODES)
    await owner_returns(scene)
    await until_running(scene, 0)
    await scene.until(lambda: len(pods(scene)) == NODES, "the pods again")
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    after = await until_running(scene, NODES)
    assert before.keys().isdisjoint(after)
    assert not conditions(scene) & {"Failed", "Complete"}
    assert not any(job["status"].get("failed") for job in scene.admin.get(JOBS)["items"])
    change(scene, "trainjob", NAME, suspend=True)
    await until_running(scene, 0)
    change(scene, "trainjob", NAME, suspend=False)
    await until_running(scene, NODES)
    await end(scene, {}, 0)
    await scene.until(lambda: "Complete" in conditions(scene), "it to be complete")
    delete(scene, "trainjob", NAME)
    await until_nothing_is_left(scene)
    assert trainer.is_alive
