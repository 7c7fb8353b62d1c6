"""Kubeflow's training operator, beside Ballast. Skipped unless `make kubeflow` built it.

Nothing of PyTorch runs: how an evicted program ends is an annotation of its pod.
"""

from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.kubeflow_jobs import (
    API,
    INDEX,
    NAME,
    ROLE,
    SIZE,
    conditions,
    replicas,
    submit,
    until_it_is,
    until_made,
    whole,
)
from tests.integration.jobs.looks import (
    CARDS,
    HALF,
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
from tests.support import kubeflow
from tests.support.controlplane.handles import apply_kinds
from tests.support.kubeflow.running import TrainingOperator

pytestmark = pytest.mark.skipif(
    not kubeflow.PROGRAMS.has(kubeflow.TRAINING), reason=kubeflow.NOT_BUILT
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "policy", "exit_code"),
    [
        ("PyTorchJob", "", "143"),
        ("PyTorchJob", "OnFailure", "1"),
        ("PyTorchJob", "ExitCode", "143"),
        ("PyTorchJob", "Always", "1"),
        ("JAXJob", "OnFailure", "1"),
        ("PaddleJob", "", "1"),
        ("XGBoostJob", "ExitCode", "143"),
    ],
)
async def test_a_job_starts_whole_is_evicted_whole_and_starts_whole_again(
    scene: Scene, training: TrainingOperator, kind: str, policy: str, exit_code: str
) -> None:
    await owner_returns(scene)
    submit(scene, kind, whole(kind, policy, exit_code), runPolicy={"backoffLimit": 1})
    await until_made(scene, SIZE)
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    before = await until_running(scene, SIZE)
    await until_it_is(scene, "Running", kind)
    await owner_returns(scene)
    await until_running(scene, 0)
    await until_made(scene, SIZE)
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    after = await until_running(scene, SIZE)
    assert before.keys().isdisjoint(after)
    await until_it_is(scene, "Running", kind)
    assert not conditions(scene, kind) & {"Failed", "Succeeded"}
    delete(scene, kind.lower(), NAME)
    await until_nothing_is_left(scene)
    assert training.is_alive


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "policy", "exit_code", "ends_as"),
    [
        ("PyTorchJob", "Never", "143", "Failed"),
        ("PyTorchJob", "ExitCode", "1", "Failed"),
        ("PyTorchJob", "OnFailure", "0", "Succeeded"),
        ("JAXJob", "", "143", "Failed"),
        ("TFJob", "OnFailure", "143", "Failed"),
        ("TFJob", "ExitCode", "143", "Failed"),
        ("XGBoostJob", "OnFailure", "143", "Failed"),
    ],
)
async def test_a_job_that_an_eviction_ends(
    scene: Scene,
    training: TrainingOperator,
    kind: str,
    policy: str,
    exit_code: str,
    ends_as: str,
) -> None:
    submit(scene, kind, whole(kind, policy, exit_code))
    await until_running(scene, SIZE)
    await owner_returns(scene)
    await until_it_is(scene, ends_as, kind)
    assert training.is_alive


@pytest.mark.timeout(300)
async def test_a_tf_job_with_dynamic_workers_survives_their_eviction(
    scene: Scene, training: TrainingOperator
) -> None:
    specs = {"Worker": replicas("TFJob", SIZE, "OnFailure", "143")}
    submit(scene, "TFJob", specs, enableDynamicWorker=True)
    await until_running(scene, SIZE)
    await owner_returns(scene)
    await until_running(scene, 0)
    await until_made(scene, SIZE)
    owner_leaves(scene)
    await until_running(scene, SIZE)
    assert "Failed" not in conditions(scene, "TFJob")
    assert training.is_alive


@pytest.mark.timeout(300)
async def test_a_job_can_be_suspended_and_is_cleaned_up_as_it_says(
    scene: Scene, training: TrainingOperator
) -> None:
    policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 5}
    submit(scene, "PyTorchJob", whole("PyTorchJob"), runPolicy=policy | {"suspend": True})
    await until_it_is(scene, "Suspended")
    assert not pods(scene)
    change(scene, "pytorchjob", NAME, runPolicy={"suspend": False})
    await until_running(scene, SIZE)
    change(scene, "pytorchjob", NAME, runPolicy={"suspend": True})
    await until_running(scene, 0)
    assert not pods(scene)
    change(scene, "pytorchjob", NAME, runPolicy={"suspend": False})
    await until_running(scene, SIZE)
    await end(scene, {ROLE: "master"}, 0)
    await until_running(scene, 0)
    await until_it_is(scene, "Succeeded")
    await scene.until(lambda: not scene.admin.has(f"{API}/pytorchjobs/{NAME}"), "it to be deleted")
    await until_nothing_is_left(scene)
    assert training.is_alive


def elastic(n_pods: int) -> dict[str, Any]:
    return {"Worker": replicas("PyTorchJob", n_pods)}


def indexes(scene: Scene) -> set[str]:
    """The indexes of running workers."""
    held = running(scene)
    return {
        each["metadata"]["labels"][INDEX] for each in pods(scene) if each["metadata"]["uid"] in held
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("least", [1, 2])
async def test_an_elastic_job_shrinks_and_grows_around_its_first_worker(
    scene: Scene, training: TrainingOperator, least: int
) -> None:
    policy = {"minReplicas": least, "maxReplicas": CARDS, "rdzvBackend": "c10d"}
    submit(scene, "PyTorchJob", elastic(CARDS), elasticPolicy=policy)
    await until_running(scene, CARDS)
    # Now it is the youngest, which loses least.
    delete(scene, "pod", f"{NAME}-worker-0")
    await scene.until(lambda: "0" not in indexes(scene), "the first worker to be gone")
    before = await until_running(scene, CARDS)
    await owner_returns(scene)
    after = await until_running(scene, HALF)
    assert after.keys() <= before.keys()
    assert "0" in indexes(scene)
    await until_made(scene, CARDS)
    change(scene, "pytorchjob", NAME, pytorchReplicaSpecs=elastic(3))
    await scene.until(lambda: indexes(scene) == {"0", "1", "2"}, "three workers")
    owner_leaves(scene)
    change(scene, "pytorchjob", NAME, pytorchReplicaSpecs=elastic(CARDS - 1))
    await until_running(scene, CARDS - 1)
    await until_it_is(scene, "Running")
    delete(scene, "pytorchjob", NAME)
    await until_nothing_is_left(scene)
    assert training.is_alive


@pytest.mark.timeout(300)
async def test_a_stated_minimum_starts_with_the_master(
    scene: Scene, training: TrainingOperator
) -> None:
    await owner_returns(scene)
    specs = {"Worker": replicas("PyTorchJob", 6), "Master": replicas("PyTorchJob", 1)}
    least = {"schedulingPolicy": {"minAvailable": HALF}}
    submit(scene, "PyTorchJob", specs, runPolicy=least)
    await until_running(scene, HALF)
    assert len(running(scene, {ROLE: "master"})) == 1
    owner_leaves(scene)
    await until_running(scene, 7)
    delete(scene, "pod", f"{NAME}-master-0")
    await scene.until(lambda: len(running(scene)) == 6, "the master to be gone")
    await until_running(scene, 7)
    await owner_returns(scene)
    await until_running(scene, HALF)
    assert len(running(scene, {ROLE: "master"})) == 1
    assert training.is_alive


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cleaning", ["None", "Running"])
async def test_pods_that_wait_when_the_job_succeeds(
    scene: Scene, training: TrainingOperator, cleaning: str
) -> None:
    await owner_returns(scene)
    policy = {"minReplicas": 2, "maxReplicas": CARDS}
    run_policy = {"cleanPodPolicy": cleaning}
    submit(scene, "PyTorchJob", elastic(SIZE + 1), elasticPolicy=policy, runPolicy=run_policy)
    await until_running(scene, HALF)
    await end(scene, {INDEX: "0"}, 0)
    await until_it_is(scene, "Succeeded")
    owner_leaves(scene)
    await until_running(scene, SIZE if cleaning == "None" else 0)
    assert training.is_alive


@pytest.mark.timeout(300)
async def test_an_operator_that_names_our_scheduler_for_gangs_gives_them_its_own_names(
    scene: Scene,
) -> None:
    apply_kinds(scene.plane, [kubeflow.pod_groups()])
    async with started(TrainingOperator(scene.plane, names.SCHEDULER_NAME)):
        await owner_returns(scene)
        submit(scene, "PyTorchJob", whole("PyTorchJob"))
        await until_made(scene, SIZE)
        await scene.until_decided(3)
        assert not running(scene)
        owner_leaves(scene)
        await until_running(scene, SIZE)
        groups = scene.get("namespaces/team-a/gpupodgroups")["items"]
        assert [each["metadata"]["name"] for each in groups] == [NAME]
        await owner_returns(scene)
        await until_running(scene, 0)
        owner_leaves(scene)
        await until_running(scene, SIZE)


@pytest.mark.timeout(300)
async def test_an_operator_that_names_another_scheduler_for_gangs_is_told_why_it_gets_no_pods(
    scene: Scene,
) -> None:
    apply_kinds(scene.plane, [kubeflow.pod_groups()])
    await owner_returns(scene)
    async with started(TrainingOperator(scene.plane, "other-scheduler")):
        submit(scene, "PyTorchJob", whole("PyTorchJob"))

        def is_told() -> bool:
            found = scene.admin.get("/api/v1/namespaces/team-a/events")["items"]
            return any(
                "leave schedulerName out" in each["message"]
                for each in found
                if each["involvedObject"]["name"] == NAME
            )

        await scene.until(is_told, "an event of the job")
        assert not pods(scene)
