"""Dask's operator beside everything of ours. Skipped unless `make dask` has installed it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    CARDS,
    HALF,
    NAMESPACE,
    change,
    delete,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_nothing_is_left,
    until_running,
)
from tests.support import dask as program
from tests.support.dask.running import Dask, cluster

pytestmark = [
    pytest.mark.skipif(not program.PROGRAMS.has(), reason="no Dask: make dask installs it"),
    pytest.mark.timeout(300),
]
CLUSTERS = f"/apis/kubernetes.dask.org/v1/namespaces/{NAMESPACE}/daskclusters"
WORKERS = {"dask.org/component": "worker"}
SCHEDULER = {"dask.org/component": "scheduler"}
GPU = '{"limits": {"nvidia.com/gpu": "1"}}'


@pytest.fixture
async def dask(scene: Scene) -> AsyncIterator[Dask]:
    """Dask's operator."""
    async with started(Dask(scene.plane)) as made:
        yield made


def submit(scene: Scene, n_workers: int, **scheduler: Any) -> None:
    """A cluster named `train`, whose scheduler has these resources."""
    body = cluster("train", n_workers, GPU)
    (made,) = body["spec"]["scheduler"]["spec"]["containers"]
    assert made["resources"] == {"limits": {names.NVIDIA_GPU: "1"}}, "Dask gives it a GPU, too"
    made["resources"] = scheduler
    scene.admin.post(CLUSTERS, body)


async def test_workers_start_and_are_evicted_one_by_one(scene: Scene, dask: Dask) -> None:
    await owner_returns(scene)
    submit(scene, CARDS)
    await until_running(scene, HALF, WORKERS)
    assert len(pods(scene, SCHEDULER)) == 1
    assert names.LABEL_PROJECT not in pods(scene, SCHEDULER)[0]["metadata"]["labels"]
    owner_leaves(scene)
    await until_running(scene, CARDS, WORKERS)
    await owner_returns(scene)
    after = await until_running(scene, HALF, WORKERS)
    await scene.until(lambda: len(pods(scene, WORKERS)) == CARDS, "evicted workers to wait")
    owner_leaves(scene)
    assert after.items() <= (await until_running(scene, CARDS, WORKERS)).items()
    change(scene, "daskcluster", "train", worker={"replicas": CARDS + 2})
    await scene.until(lambda: len(pods(scene, WORKERS)) == CARDS + 2, "two more to wait")
    await scene.until_decided(2)
    assert len(running(scene, WORKERS)) == CARDS
    assert not scene.get(f"namespaces/{NAMESPACE}/gpupodgroups")["items"]
    assert dask.is_alive
    delete(scene, "daskcluster", "train")
    await until_nothing_is_left(scene)


async def test_a_scheduler_with_a_gpu_counts_like_a_worker(scene: Scene, dask: Dask) -> None:
    await owner_returns(scene)
    submit(scene, HALF, limits={names.NVIDIA_GPU: "1"})
    await scene.until(lambda: len(pods(scene, WORKERS)) == HALF, "the workers")
    await until_running(scene, HALF)
    assert len(running(scene, SCHEDULER)) == 1
    assert len(running(scene, WORKERS)) == HALF - 1
    delete(scene, "daskcluster", "train")
    await until_nothing_is_left(scene)
