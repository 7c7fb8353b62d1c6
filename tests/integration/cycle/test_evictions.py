"""Evictions in progress while the preemptor is deleted or other projects need the controller."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cycle.two_projects import NEVER_S, Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.faultproxy import FaultProxy

N_NODES, CARDS = 9, 8
#: Pods that leave; the last node stays free for others.
N_LEAVING = 60
#: Seconds that every answer of the API server takes.
SLOW_S = 0.2
#: Pods of a third project that must be bound before the reclaim is done.
N_MEANWHILE = 3


def bound(scene: Scene, project: str) -> set[str]:
    """UIDs of the bound pods that nothing told to end."""
    pods: list[dict[str, Any]] = scene.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
    return {
        pod["metadata"]["uid"]
        for pod in pods
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    }


def n_rows(scene: Scene, project: str) -> int:
    nodes = scene.get("gpunodes")["items"]
    rows = [row for node in nodes for row in node["spec"].get("rows", [])]
    return sum(row["namespace"] == project for row in rows)


async def test_nothing_is_evicted_any_more_for_a_beneficiary_that_was_deleted(
    cluster: Cluster, audited: Auditor
) -> None:
    async with Scene.open(cluster, n_nodes=2, cards=2) as scene:
        scene.submit_job("team-a", "loan", 4, 1000)
        await scene.until_bound("team-a", 4)
        before = bound(scene, "team-a")
        control = scene.installation.control
        control.kill()
        await asyncio.to_thread(control.start, "after POST pods/eviction:1")
        scene.submit_pod("team-b", "owner", 2000)
        await scene.until(lambda: not control.is_alive, "the first of two evictions")
        assert len(before & bound(scene, "team-a")) == 3
        assert n_rows(scene, "team-b") == 1
        scene.cluster.kubectl("delete", "pod", "owner", "-n", "team-b")
        await asyncio.to_thread(control.start)
        await scene.until(lambda: n_rows(scene, "team-b") == 0, "its places to be given up")
        await scene.until_bound("team-a", 4)
        assert len(before & bound(scene, "team-a")) == 3
        await audited.finish()


@pytest.fixture
async def slow(
    cluster: Cluster, audited: Auditor, tmp_path: Path
) -> AsyncIterator[tuple[Scene, FaultProxy]]:
    """A third project within its quota, and a controller for which the API server can be slow."""
    async with (
        Scene.open(cluster, n_nodes=N_NODES, cards=CARDS) as scene,
        FaultProxy(cluster.control_plane.url) as proxy,
    ):
        scene.plane.make_namespace("team-c")
        body = workloads.project("team-c", "research", "team-c", CARDS)
        scene.admin.post(f"{workloads.API}/gpuprojects", body)
        for project, quota in (("team-a", 0), ("team-b", N_LEAVING)):
            pools = workloads.project(project, "research", project, quota)["spec"]["nodePools"]
            patch = json.dumps({"spec": {"nodePools": pools}})
            cluster.kubectl("patch", "gpuproject", project, "--type=merge", "-p", patch)
        shared = [f"gpu-node-{at:04}" for at in range(N_NODES - 1)]
        cluster.kubectl("label", "node", *shared, "example.com/side=shared")
        scene.installation.control.kill()
        own = scene.installation.kubeconfig("ballast-control")
        through = proxy.kubeconfig(own, tmp_path)
        control = scene.installation.another_control("slow", through)
        scene.installation.control = control
        try:
            await asyncio.to_thread(control.start)
            yield scene, proxy
            await audited.finish()
        finally:
            control.kill()


def submit_shared(scene: Scene, project: str, n_pods: int, **options: Any) -> None:
    """A Job with pods that run on the nodes that are not kept free."""
    body = workloads.job("shared", project, n_pods, 1000, **options)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/side": "shared"}
    scene.admin.post(f"/apis/batch/v1/namespaces/{project}/jobs", body)


async def test_work_of_others_is_bound_while_a_big_reclaim_is_under_way(
    slow: tuple[Scene, FaultProxy],
) -> None:
    scene, proxy = slow
    n_shared = (N_NODES - 1) * CARDS
    submit_shared(scene, "team-a", n_shared, stop_s=NEVER_S)
    await scene.until_bound("team-a", n_shared)
    proxy.delay_s = SLOW_S
    submit_shared(scene, "team-b", N_LEAVING)
    await scene.until(lambda: len(bound(scene, "team-a")) < n_shared, "the first eviction")
    for at in range(N_MEANWHILE):
        scene.submit_pod("team-c", f"small-{at}", 1000)
        await scene.until_bound("team-c", at + 1)
        assert not bound(scene, "team-b"), f"the reclaim was done before pod {at} was bound"
    proxy.delay_s = 0.0
    n_left = n_shared - N_LEAVING
    await scene.until(lambda: len(bound(scene, "team-a")) == n_left, "the last eviction")
    scene.end_now("team-a")
    await scene.until_bound("team-b", N_LEAVING)
    assert len(bound(scene, "team-a")) <= n_left
