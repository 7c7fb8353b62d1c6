"""The descheduler beside Ballast, once with the policy of docs/platforms.md and once with one that
excludes nothing. Skipped unless `make descheduler` has built it."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import (
    DEPLOYMENTS,
    deployment,
    opened_with_webhooks,
    running,
)
from tests.support import descheduler, workloads
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.installation import ROOT

pytestmark = pytest.mark.skipif(
    not descheduler.PROGRAMS.has(), reason="no descheduler: make descheduler builds it"
)
CARDS: Final = 4
PODS: Final = "/api/v1/namespaces/team-a/pods"
RUN_S: Final = 60.0
#: Evicts pods that wait for more than a second.
OF_PENDING: Final = {
    "pluginConfig": [
        {"name": "DefaultEvictor", "args": {}},
        {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1, "states": ["Pending"]}},
    ],
    "plugins": {"deschedule": {"enabled": ["PodLifeTime"]}},
}


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, half of them each project's quota. The audit would take the
    descheduler's evictions for Ballast's."""
    async with opened_with_webhooks(cluster, CARDS, tmp_path) as opened:
        yield opened


def policy_of_page() -> dict[str, Any]:
    """The policy as it stands on the page."""
    text = (ROOT / "docs" / "platforms.md").read_text("utf-8")
    blocks = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S))
    (found,) = [each for each in blocks if each.get("kind") == "DeschedulerPolicy"]
    return dict(found)


def without_exclusion() -> dict[str, Any]:
    """The same policy for all namespaces."""
    policy = policy_of_page()
    del policy["profiles"][0]["pluginConfig"][0]["args"]["namespaceLabelSelector"]
    return policy


async def run_once(scene: Scene, folder: Path, policy: dict[str, Any]) -> int:
    """One run with this policy; returns how many pods it evicted."""
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    argv = [
        str(descheduler.PROGRAMS.path(descheduler.PROGRAM)),
        f"--kubeconfig={scene.plane.kubeconfig}",
        f"--policy-config-file={file}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={free_port()}",
        "--v=1",
    ]
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    (evicted,) = re.findall(r"totalEvicted=(\d+)", done.stderr)
    return int(evicted)


def uids(scene: Scene) -> set[str]:
    """UIDs of the pods of team-a that nothing told to end."""
    pods = scene.admin.get(PODS)["items"]
    return {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}


async def test_a_packed_gang_is_taken_apart_unless_projects_are_excluded(
    scene: Scene, tmp_path: Path
) -> None:
    body = workloads.pod_group("gang", "team-a", CARDS)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", body)
    scene.submit_job("team-a", "gang", CARDS, 1000, group="gang")
    await scene.until_bound("team-a", CARDS)
    gang = uids(scene)
    assert await run_once(scene, tmp_path, policy_of_page()) == 0
    assert uids(scene) == gang
    n_evicted = await run_once(scene, tmp_path, without_exclusion())
    assert n_evicted >= CARDS // 2

    async def rows_follow() -> bool:
        sight = await scene.look("team-a")
        return sight.n_rows == len(sight.bound) == CARDS - n_evicted

    async with asyncio.timeout(30):
        while not await rows_follow():
            await asyncio.sleep(0.2)


async def test_replicas_that_are_spread_are_packed_again(scene: Scene, tmp_path: Path) -> None:
    scene.admin.post(DEPLOYMENTS, deployment(CARDS, None))
    await scene.until_bound("team-a", CARDS)
    for _ in range(2):
        before = running(scene).keys()
        n_evicted = await run_once(scene, tmp_path, without_exclusion())
        assert n_evicted >= 1
        await scene.until(
            lambda kept=CARDS - n_evicted, old=before: (  # type: ignore[misc]
                len(running(scene)) == CARDS and len(running(scene).keys() & old) == kept
            ),
            "the replicas again",
        )
        nodes = {each["spec"]["nodeName"] for each in scene.admin.get(PODS)["items"]}
        assert len(nodes) == 1


async def test_pods_that_wait_are_left_alone(scene: Scene, tmp_path: Path) -> None:
    scene.submit_job("team-b", "all", 2 * CARDS, 1000)
    await scene.until_bound("team-b", 2 * CARDS)
    scene.admin.post(DEPLOYMENTS, deployment(2 * CARDS, None))
    await scene.until(lambda: len(uids(scene)) == 2 * CARDS, "every replica to exist")
    await scene.until_bound("team-a", CARDS)
    await scene.until_bound("team-b", CARDS)
    await asyncio.sleep(2)  # older than the policy lets a pod become
    before = uids(scene)
    policy = policy_of_page() | {"profiles": [{"name": "old", **OF_PENDING}]}
    assert await run_once(scene, tmp_path, policy) == 0
    assert uids(scene) == before
