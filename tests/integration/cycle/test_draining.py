"""`kubectl drain` of a node with work of a project, some of it under a disruption budget."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.cycle.test_budgets import protect
from tests.integration.cycle.two_projects import DONE_S, Scene
from tests.integration.inference.deployments import (
    DEPLOYMENTS,
    deployment,
    opened_with_webhooks,
    running,
    scale,
)
from tests.support.controlplane.handles import Cluster
from tests.support.sight import until

PODS: Final = "/api/v1/namespaces/team-a/pods"
JOBS: Final = "/apis/batch/v1/namespaces/team-a/jobs"
BUDGET: Final = "/apis/policy/v1/namespaces/team-a/poddisruptionbudgets/web"
CARDS: Final = 2


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of two cards; team-a may have one node's. The audit would take a drain's evictions
    for Ballast's."""
    async with opened_with_webhooks(cluster, CARDS, tmp_path) as opened:
        yield opened


def drain(scene: Scene, node: str, *options: str) -> None:
    """Drain the node; raises CalledProcessError if a pod could not be evicted within a
    `--timeout`."""
    scene.cluster.kubectl("drain", node, "--ignore-daemonsets", *options)


def node_of(scene: Scene) -> str:
    """The only node that pods of team-a are on."""
    nodes = {each["spec"].get("nodeName") for each in scene.admin.get(PODS)["items"]} - {None}
    (node,) = nodes
    return str(node)


def status(scene: Scene) -> dict[str, Any]:
    """The status of the Job."""
    return dict(scene.admin.get(f"{JOBS}/train")["status"])


def has_counted(scene: Scene) -> bool:
    """Whether the Job has counted every pod that ended."""
    found = status(scene)
    return not found.get("terminating") and not found.get("uncountedTerminatedPods")


@pytest.mark.parametrize(("options", "n_failed"), [((), 0), (("--disable-eviction",), CARDS)])
async def test_a_drain_fails_no_job_unless_it_deletes_pods_instead(
    scene: Scene, options: tuple[str, ...], n_failed: int
) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "example.invalid/none", "resources": limits}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"parallelism": CARDS, "completions": CARDS, "template": template}
    scene.admin.post(JOBS, {"metadata": {"name": "train"}, "spec": spec})
    await scene.until_bound("team-a", CARDS)
    before = (await scene.look("team-a")).bound
    drain(scene, node_of(scene), *options)
    await scene.until(lambda: has_counted(scene), "the ended pods to be counted")
    assert status(scene).get("failed", 0) == n_failed

    async def are_freed() -> bool:
        return not before & (await scene.look("team-a")).rows.keys()

    await until(are_freed, DONE_S, lambda: "the rows of the ended pods to go")


async def test_replicas_that_wait_are_unavailable_to_a_budget_so_it_blocks_a_drain(
    scene: Scene,
) -> None:
    scene.admin.post(DEPLOYMENTS, deployment(2 * CARDS, None))
    await scene.until_bound("team-a", CARDS)
    protect(scene, maxUnavailable=1)
    await scene.until(
        lambda: scene.admin.get(BUDGET).get("status", {}).get("expectedPods") == 2 * CARDS,
        "the budget to count the replicas that wait",
    )
    node, before = node_of(scene), running(scene).keys()
    with pytest.raises(subprocess.CalledProcessError) as refused:
        drain(scene, node, "--timeout=6s")
    assert "disruption budget" in refused.value.stderr
    assert running(scene).keys() == before
    scale(scene, CARDS)
    await scene.until(
        lambda: scene.admin.get(BUDGET)["status"]["disruptionsAllowed"] == 1,
        "the budget to allow an eviction",
    )
    drain(scene, node, f"--timeout={DONE_S:.0f}s")
    await scene.until_bound("team-a", CARDS)
    assert node_of(scene) != node
