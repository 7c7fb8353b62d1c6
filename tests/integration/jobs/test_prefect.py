"""Prefect's worker for Kubernetes beside everything of ours. Skipped unless `make prefect` has
installed it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    HALF,
    JOBS,
    NAMESPACE,
    owner_leaves,
    owner_returns,
    pods,
    until_running,
)
from tests.support import prefect as program
from tests.support.prefect.running import Prefect

pytestmark = [
    pytest.mark.skipif(not program.PROGRAMS.has(), reason="no Prefect: make prefect installs it"),
    pytest.mark.timeout(600),
]
RUNS = {"app.kubernetes.io/managed-by": "prefect"}
#: A worker asks for new runs every 15 s.
DONE_S = 180.0


@pytest.fixture
async def prefect(scene: Scene, tmp_path: Path) -> AsyncIterator[Prefect]:
    """A server and a worker."""
    scene.done_s = DONE_S
    async with started(Prefect(scene.plane, NAMESPACE, tmp_path)) as made:
        yield made


def jobs(scene: Scene) -> list[dict[str, Any]]:
    """The Jobs of flow runs."""
    listed = scene.admin.get(JOBS)["items"]
    return [job for job in listed if RUNS.items() <= job["metadata"]["labels"].items()]


async def test_a_job_of_a_flow_run_outlives_an_eviction_and_a_cancelled_run(
    scene: Scene, prefect: Prefect
) -> None:
    labels = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}
    scene.submit_job(NAMESPACE, "held", HALF, 1000, labels=labels)
    await owner_returns(scene)
    run = prefect.submit("train", gpus=1, pod_watch_timeout_seconds=1)
    await scene.until(lambda: len(pods(scene, RUNS)) == 1, "the pod to wait")
    await scene.until_decided(2)
    await scene.until(
        lambda: prefect.state(run)["name"] == "InfrastructurePending", "the flow run to be pending"
    )
    owner_leaves(scene)
    first = await until_running(scene, 1, RUNS)
    await owner_returns(scene)
    await scene.until(
        lambda: [pod["metadata"]["uid"] in first for pod in pods(scene, RUNS)] == [False],
        "another pod",
    )
    (job,) = jobs(scene)
    assert job["spec"]["backoffLimit"] == 0
    assert prefect.state(run)["type"] == "PENDING"
    prefect.cancel(run)
    owner_leaves(scene)
    await until_running(scene, 1, RUNS)
    assert prefect.state(run)["type"] == "CANCELLING"


async def test_variables_of_the_template_state_a_share_and_a_kind(
    scene: Scene, prefect: Prefect
) -> None:
    kind = {names.LABEL_WORKLOAD_KIND: "interactive"}
    share = {"gpu-fraction": "0.5", names.ANNOTATION_EXPECTED_RUN: "3600"}
    prefect.submit("half", labels=kind, annotations=share)
    await until_running(scene, 1, RUNS)
    (pod,) = pods(scene, RUNS)
    assert pod["spec"]["priorityClassName"] == "ballast-interactive"
    assert share.items() <= pod["metadata"]["annotations"].items()
    refused = prefect.submit("both", gpus=1, annotations=share)
    await scene.until(lambda: len(jobs(scene)) == 2, "the second Job")
    await scene.until_decided(2)
    assert len(pods(scene, RUNS)) == 1
    assert prefect.state(refused)["type"] == "PENDING"
