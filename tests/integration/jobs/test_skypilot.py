"""SkyPilot beside everything of ours. Skipped unless `make skypilot` has installed it."""

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
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_running,
)
from tests.support import skypilot as program
from tests.support.controlplane.process import Process
from tests.support.skypilot.running import SkyPilot

pytestmark = [
    pytest.mark.skipif(
        not program.can_run(), reason="no SkyPilot: make skypilot installs it (socat, nc)"
    ),
    pytest.mark.timeout(900),
]
NODES = {"parent": "skypilot"}
KEPT = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}
ONE = {"accelerators": "A100:1"}
TWO = {"accelerators": "A100:2"}
#: Each command of SkyPilot computes for seconds.
DONE_S = 300.0
#: The first command in a pod, which no pod of the tests runs.
FIRST = "Failed to get ssh user for pod"
MakeSky = Callable[..., AbstractAsyncContextManager[SkyPilot]]


@pytest.fixture
def make_sky(scene: Scene, tmp_path: Path) -> MakeSky:
    """An API server with this configuration of `kubernetes`."""
    scene.done_s = DONE_S

    @asynccontextmanager
    async def make(**kubernetes: Any) -> AsyncIterator[SkyPilot]:
        async with started(SkyPilot(scene.plane, NAMESPACE, tmp_path, **kubernetes)) as made:
            yield made

    return make


def pod_config(**metadata: dict[str, str]) -> dict[str, Any]:
    """A task's own configuration with this metadata of its pods."""
    return {"config": {"kubernetes": {"pod_config": {"metadata": metadata}}}}


async def has_ended(scene: Scene, launch: Process) -> str:
    """What the launch printed."""
    await scene.until(lambda: not launch.is_alive, "the launch to end")
    return launch.log_path.read_text("utf-8")


async def keep(scene: Scene, n: int) -> None:
    """Work of the project that is not evicted holds so many of its GPUs."""
    scene.submit_job(NAMESPACE, "held", n, 1000, labels=KEPT)
    await until_running(scene, n)


async def until_waiting(scene: Scene, n: int) -> list[str]:
    """The UIDs of nodes of clusters, once there are so many and Ballast has looked at them."""
    await scene.until(lambda: len(pods(scene, NODES)) == n, f"{n} pods")
    await scene.until_decided(2)
    return [pod["metadata"]["uid"] for pod in pods(scene, NODES)]


async def test_a_launch_finds_a_model_of_cards_and_gets_one(
    scene: Scene, make_sky: MakeSky
) -> None:
    async with make_sky() as sky:
        listed = await asyncio.to_thread(sky.sky, "gpus", "list", "--infra", "kubernetes")
        assert "8 of 8 free" in listed
        launch = sky.launch("one", ONE)
        await until_running(scene, 1, NODES)
        (pod,) = pods(scene, NODES)
        assert pod["metadata"]["labels"][names.LABEL_PROJECT] == NAMESPACE
        assert pod["spec"]["priorityClassName"] == "ballast-training"
        assert FIRST in await has_ended(scene, launch)


async def test_a_task_states_a_share_and_a_kind(scene: Scene, make_sky: MakeSky) -> None:
    kind = {names.LABEL_WORKLOAD_KIND: "interactive"}
    share = {"gpu-fraction": "0.5", names.ANNOTATION_EXPECTED_RUN: "7200"}
    async with make_sky() as sky:
        sky.launch("share", {"cpus": 2}, **pod_config(labels=kind, annotations=share))
        await until_running(scene, 1, NODES)
        (pod,) = pods(scene, NODES)
        assert pod["spec"]["priorityClassName"] == "ballast-interactive"
        assert ":500:" in pod["metadata"]["annotations"][names.ANNOTATION_CARDS]
        sky.launch("part", {"accelerators": "A100:0.5"})
        await until_running(scene, 2, NODES)
        cards = [
            pod["metadata"]["annotations"][names.ANNOTATION_CARDS] for pod in pods(scene, NODES)
        ]
        assert sorted(":1000:" in each for each in cards) == [False, True]
        both = sky.launch("both", ONE, **pod_config(annotations=share))
        assert "gpu-fraction and nvidia.com/gpu; use one of them" in await has_ended(scene, both)


async def test_a_launch_waits_behind_the_gate_as_long_as_for_admission(
    scene: Scene, make_sky: MakeSky
) -> None:
    await owner_returns(scene)
    await keep(scene, HALF)
    async with make_sky(provision_timeout=5, kueue={"admission_timeout": 40}) as sky:
        first = sky.launch("first", ONE)
        waiting = await until_waiting(scene, 1)
        # Longer than `provision_timeout`.
        await asyncio.sleep(10)
        owner_leaves(scene)
        await scene.until(lambda: len(running(scene, NODES)) == 1, "the pod to run")
        assert list(running(scene, NODES)) == waiting
        assert FIRST in await has_ended(scene, first)
        await asyncio.to_thread(sky.sky, "down", "--yes", "first")
        await owner_returns(scene)
        log = await has_ended(scene, sky.launch("second", ONE))
        assert "were still held by scheduling gates after waiting 40 seconds" in log
        assert not pods(scene, NODES)


async def test_an_eviction_ends_a_cluster(scene: Scene, make_sky: MakeSky) -> None:
    await keep(scene, HALF)
    async with make_sky() as sky:
        launch = sky.launch("lent", ONE)
        await until_running(scene, 1, NODES)
        await has_ended(scene, launch)
        (pod,) = pods(scene, NODES)
        await owner_returns(scene)
        await scene.until(lambda: not pods(scene, NODES), "the eviction")
        await scene.until_told(NAMESPACE, "Reclaimed", pod["metadata"]["name"])
        status = await asyncio.to_thread(sky.sky, "status", "--refresh")
        assert "No existing clusters" in status


async def test_nodes_of_a_cluster_start_together_only_if_their_task_names_a_group(
    scene: Scene, make_sky: MakeSky
) -> None:
    group = pod_config(
        labels={names.LABEL_POD_GROUP: "gang"}, annotations={names.ANNOTATION_MIN_MEMBER: "2"}
    )
    await owner_returns(scene)
    await keep(scene, 1)
    async with make_sky() as sky:
        sky.launch("gang", TWO, num_nodes=2, **group)
        await until_waiting(scene, 2)
        assert not running(scene, NODES)
        await asyncio.to_thread(sky.sky, "down", "--yes", "gang")
        sky.launch("alone", TWO, num_nodes=2)
        await until_waiting(scene, 2)
        await until_running(scene, 1, NODES)
        owner_leaves(scene)
        await until_running(scene, 2, NODES)
