"""Kubeflow's MPI operator, beside Ballast. Skipped unless `make kubeflow` built it.

Nothing of MPI runs: a launcher ends when the test says so.
"""

from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.jobs.looks import (
    HALF,
    JOBS,
    change,
    container,
    delete,
    end,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_nothing_is_left,
    until_running,
)
from tests.support import kubeflow
from tests.support.kubeflow.running import MpiOperator

pytestmark = pytest.mark.skipif(not kubeflow.PROGRAMS.has(kubeflow.MPI), reason=kubeflow.NOT_BUILT)
MPI_JOBS = "/apis/kubeflow.org/v2beta1/namespaces/team-a/mpijobs"
NAME = "allreduce"
ROLE = "training.kubeflow.org/job-role"
LAUNCHER, WORKERS = {ROLE: "launcher"}, {ROLE: "worker"}
#: More than half of the cards: the workers do not fit beside the owner of the other half.
SIZE = HALF + 1


def replicas(n_pods: int, gpus: int) -> dict[str, Any]:
    """Pods of a role. The scheduler of this test knows no other profile than ours."""
    spec = {"containers": [container(gpus)], "schedulerName": names.SCHEDULER_NAME}
    return {"replicas": n_pods, "restartPolicy": "Never", "template": {"spec": spec}}


def submit(scene: Scene, launcher_gpus: int = 0, **spec: Any) -> None:
    n_workers = SIZE - launcher_gpus
    specs = {"Launcher": replicas(1, launcher_gpus), "Worker": replicas(n_workers, 1)}
    scene.admin.post(
        MPI_JOBS,
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": NAME, "namespace": "team-a"},
            "spec": {"slotsPerWorker": 1, "mpiReplicaSpecs": specs} | spec,
        },
    )


def conditions(scene: Scene) -> set[str]:
    """What holds of the job."""
    found = scene.admin.get(f"{MPI_JOBS}/{NAME}").get("status") or {}
    return {each["type"] for each in found.get("conditions") or () if each["status"] == "True"}


def launcher(scene: Scene) -> str:
    """The UID of the launcher that runs, if one does."""
    found = [each for each in pods(scene, LAUNCHER) if each["status"]["phase"] == "Running"]
    return str(found[0]["metadata"]["uid"]) if found else ""


async def until_launched(scene: Scene) -> str:
    await scene.until(lambda: bool(launcher(scene)), "the launcher to run")
    return launcher(scene)


async def until_made(scene: Scene, n_workers: int) -> None:
    await scene.until(lambda: len(pods(scene, WORKERS)) == n_workers, f"{n_workers} workers")


@pytest.mark.timeout(300)
async def test_a_launcher_without_gpus_does_not_wait_for_workers_and_can_fail_before_them(
    scene: Scene, mpi: MpiOperator
) -> None:
    await owner_returns(scene)
    submit(scene, runPolicy={"backoffLimit": 0})
    await until_made(scene, SIZE)
    await until_launched(scene)
    await scene.until_decided(3)
    assert not running(scene)
    await end(scene, LAUNCHER, 1)
    await scene.until(lambda: "Failed" in conditions(scene), "the job to fail")
    assert mpi.is_alive


@pytest.mark.timeout(300)
async def test_a_launcher_that_waits_starts_after_its_workers_and_survives_their_eviction(
    scene: Scene, mpi: MpiOperator
) -> None:
    await owner_returns(scene)
    patience = {"backoffLimit": 100}
    submit(scene, launcherCreationPolicy="WaitForWorkersReady", runPolicy=patience)
    await until_made(scene, SIZE)
    await scene.until_decided(3)
    assert not running(scene)
    assert not scene.admin.get(JOBS)["items"]
    owner_leaves(scene)
    before = await until_running(scene, SIZE)
    first = await until_launched(scene)
    await owner_returns(scene)
    await until_running(scene, 0)
    await until_made(scene, SIZE)
    assert launcher(scene) == first
    await end(scene, LAUNCHER, 1)
    owner_leaves(scene)
    after = await until_running(scene, SIZE)
    assert before.keys().isdisjoint(after)
    second = await until_launched(scene)
    assert second != first
    await scene.until(lambda: "Running" in conditions(scene), "the job to run")
    assert "Failed" not in conditions(scene)
    change(scene, "mpijob", NAME, runPolicy={"suspend": True})
    await until_running(scene, 0)
    change(scene, "mpijob", NAME, runPolicy={"suspend": False})
    await until_running(scene, SIZE)
    delete(scene, "mpijob", NAME)
    await until_nothing_is_left(scene)
    assert mpi.is_alive


@pytest.mark.timeout(300)
async def test_a_launcher_that_works_too_is_of_the_gang(scene: Scene, mpi: MpiOperator) -> None:
    await owner_returns(scene)
    submit(scene, launcher_gpus=1, runLauncherAsWorker=True)
    await scene.until(lambda: len(pods(scene)) == SIZE, "all pods")
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    await until_running(scene, SIZE)
    await owner_returns(scene)
    await until_running(scene, 0)
    owner_leaves(scene)
    await until_running(scene, SIZE)
    assert "Failed" not in conditions(scene)
    assert mpi.is_alive


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("cleaning", "n_left"), [("None", SIZE), ("Running", 0)])
async def test_workers_outlive_their_launcher_unless_they_are_cleaned_up(
    scene: Scene, mpi: MpiOperator, cleaning: str, n_left: int
) -> None:
    submit(scene, runPolicy={"cleanPodPolicy": cleaning})
    await until_running(scene, SIZE)
    await until_launched(scene)
    await end(scene, LAUNCHER, 0)
    await scene.until(lambda: "Succeeded" in conditions(scene), "the job to succeed")
    await scene.until_decided(3)
    await until_running(scene, n_left)
    assert mpi.is_alive
