"""Airflow's operators for Kubernetes beside everything of ours. Skipped unless `make airflow` has
installed it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    HALF,
    NAMESPACE,
    container,
    end,
    owner_leaves,
    owner_returns,
    pods,
    until_running,
)
from tests.support import airflow as program
from tests.support.airflow.running import Airflow

pytestmark = [
    pytest.mark.skipif(not program.PROGRAMS.has(), reason="no Airflow: make airflow installs it"),
    pytest.mark.timeout(900),
]
TASK = {"app": "task"}
#: Airflow computes for about ten seconds before its first request, and again before each retry.
DONE_S = 300.0
#: What the operator logs when it finds its pod.
FOUND = "Found matching pod"
MakeRun = Callable[..., AbstractAsyncContextManager[Airflow]]


@pytest.fixture
async def make_run(scene: Scene, tmp_path: Path) -> MakeRun:
    """A run of a DAG whose task wants a GPU that its project can only borrow."""
    scene.done_s = DONE_S
    labels = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}
    scene.submit_job(NAMESPACE, "held", HALF, 1000, labels=labels)
    await until_running(scene, HALF)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": TASK},
        "spec": {"containers": [container(1) | {"name": "base"}], "restartPolicy": "Never"},
    }

    @asynccontextmanager
    async def make(operator: str = "KubernetesPodOperator", **given: Any) -> AsyncIterator[Airflow]:
        template = {"pod_template_dict": pod, "namespace": NAMESPACE}
        async with started(Airflow(scene.plane, tmp_path, operator, **template, **given)) as made:
            yield made

    return make


async def loses_its_gpu_and_gets_it_back(scene: Scene) -> None:
    """The owner of the GPU returns while the task runs, and leaves once its next pod waits."""
    first = await until_running(scene, 1, TASK)
    await owner_returns(scene)

    def waits() -> bool:
        return [each["metadata"]["uid"] in first for each in pods(scene, TASK)] == [False]

    await scene.until(waits, "another pod")
    owner_leaves(scene)
    await until_running(scene, 1, TASK)
    await end(scene, TASK, 0)


async def has_ended(scene: Scene, run: Airflow) -> str:
    """The log of the run."""
    await scene.until(lambda: not run.is_alive, "the run to end")
    return run.read_log()


async def test_a_task_may_wait_for_its_gpu_as_long_as_its_schedule_timeout(
    scene: Scene, make_run: MakeRun
) -> None:
    await owner_returns(scene)
    async with make_run(schedule_timeout_seconds=15) as run:
        log = await has_ended(scene, run)
        assert "The Pod has an Event: needs 1 GPU; all 8 GPUs" in log
        assert "Pod took too long to be scheduled on the cluster" in log
        assert not pods(scene, TASK)


@pytest.mark.parametrize("deferrable", [False, True])
async def test_an_eviction_is_one_try_of_a_task(
    scene: Scene, make_run: MakeRun, deferrable: bool
) -> None:
    tries = {"schedule_timeout_seconds": 600, "retries": 1}
    async with make_run(
        deferrable=deferrable, poll_interval=1, log_events_on_failure=True, **tries
    ) as run:
        await loses_its_gpu_and_gets_it_back(scene)
        log = await has_ended(scene, run)
        assert "DagRun Finished" in log
        assert "state=success" in log
        # When a deferred task is resumed, it asks for no events of a pod that is gone.
        assert deferrable or "reclaimed for project team-b" in log


async def test_a_job_of_airflow_outlives_an_eviction(scene: Scene, make_run: MakeRun) -> None:
    waits = {"wait_until_job_complete": True, "job_poll_interval": 1}
    async with make_run("KubernetesJobOperator", **waits) as run:
        await loses_its_gpu_and_gets_it_back(scene)
        assert "state=success" in await has_ended(scene, run)


async def test_another_worker_goes_on_waiting_with_the_same_pod(
    scene: Scene, make_run: MakeRun
) -> None:
    await owner_returns(scene)
    async with make_run(schedule_timeout_seconds=600) as run:
        await scene.until(lambda: len(pods(scene, TASK)) == 1, "the pod to wait")
        (waits,) = pods(scene, TASK)
        await scene.until_decided(1)
        run.take_over()
        owner_leaves(scene)
        assert list(await until_running(scene, 1, TASK)) == [waits["metadata"]["uid"]]
        earlier = run.read_log().count(FOUND)
        await scene.until(lambda: run.read_log().count(FOUND) > earlier, "the pod to be found")
        await end(scene, TASK, 0)
        assert "new_state=success" in await has_ended(scene, run)
