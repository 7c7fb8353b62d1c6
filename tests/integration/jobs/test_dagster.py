"""Dagster's launcher, executor and Pipes for Kubernetes beside everything of ours. Skipped unless
`make dagster` has installed it."""

import asyncio
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
from tests.support import dagster as program
from tests.support.dagster.running import PIPES, STEPS, Dagster, LaunchedDagster

pytestmark = [
    pytest.mark.skipif(not program.PROGRAMS.has(), reason="no Dagster: make dagster installs it"),
    pytest.mark.timeout(600),
]
TASK = {"app": "task"}
#: Dagster computes for about ten seconds before its first request, and again before each retry.
DONE_S = 180.0
GPU = {"container_config": {"resources": {"limits": {names.NVIDIA_GPU: "1"}}}}
POD = {
    "namespace": NAMESPACE,
    "base_pod_meta": {"labels": TASK},
    "base_pod_spec": {"containers": [container(1)]},
}
MakeRun = Callable[..., AbstractAsyncContextManager[Dagster]]


@pytest.fixture
async def make_run(scene: Scene, tmp_path: Path) -> MakeRun:
    """A run with a step that requests a GPU above its project's quota while none is free."""
    scene.done_s = DONE_S
    labels = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}
    scene.submit_job(NAMESPACE, "held", HALF, 1000, labels=labels)
    await owner_returns(scene)
    await until_running(scene, HALF)

    @asynccontextmanager
    async def make(
        code: str, given: dict[str, Any], kind: type[Dagster] = Dagster
    ) -> AsyncIterator[Dagster]:
        async with started(kind(scene.plane, NAMESPACE, tmp_path, code, given)) as made:
            yield made

    return make


async def gets_its_gpu_and_loses_it(scene: Scene, labels: dict[str, str]) -> None:
    """The owner of the GPU leaves while the pod waits, and returns while it runs; then another pod
    waits."""
    await scene.until(lambda: len(pods(scene, labels)) == 1, "the pod to wait")
    await scene.until_decided(2)
    owner_leaves(scene)
    first = await until_running(scene, 1, labels)
    # Dagster looks every second, and waits on for a pod that it has never seen run.
    await asyncio.sleep(5)
    await owner_returns(scene)
    await scene.until(
        lambda: [pod["metadata"]["uid"] in first for pod in pods(scene, labels)] == [False],
        "another pod",
    )


async def test_an_eviction_is_one_try_of_a_step_with_pipes(scene: Scene, make_run: MakeRun) -> None:
    async with make_run(PIPES, POD) as run:
        await gets_its_gpu_and_loses_it(scene, TASK)
        owner_leaves(scene)
        await until_running(scene, 1, TASK)
        assert "was unexpectedly killed" in run.read_log()
        await end(scene, TASK, 0)
        await scene.until(lambda: not run.is_alive, "the run to end")
        assert "Finished execution of run" in run.read_log()


async def test_a_step_of_the_executor_outlives_an_eviction(scene: Scene, make_run: MakeRun) -> None:
    meta = {
        "labels": {names.LABEL_WORKLOAD_KIND: "interactive"},
        "annotations": {names.ANNOTATION_EXPECTED_RUN: "3600"},
    }
    async with make_run(STEPS, GPU | {"pod_template_spec_metadata": meta}) as run:
        step = {"dagster/op": "train"}
        await gets_its_gpu_and_loses_it(scene, step)
        owner_leaves(scene)
        await until_running(scene, 1, step)
        (pod,) = pods(scene, step)
        assert pod["spec"]["priorityClassName"] == "ballast-interactive"
        assert run.is_alive


async def test_a_run_that_waits_longer_than_the_start_timeout_fails_and_keeps_its_job(
    scene: Scene, make_run: MakeRun
) -> None:
    async with make_run(STEPS, GPU, LaunchedDagster) as run:
        whole = {"dagster/job": "work"}
        await scene.until(lambda: len(pods(scene, whole)) == 1, "the pod to wait")
        await scene.until(
            lambda: "longer than 30 seconds to start" in run.read_log(), "the run to be given up"
        )
        assert "OverFairShare: needs 1 GPU; all 8 GPUs" in run.read_log()
        owner_leaves(scene)
        await until_running(scene, 1, whole)
