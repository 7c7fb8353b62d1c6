"""Plain Jobs with all programs: an eviction by Ballast does not make them fail."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.webhooks.conftest import CONFIGURATIONS
from tests.support.controlplane.handles import Cluster
from tests.support.webhook_config import is_admitting, webhook_configurations

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
JOB_WEBHOOK = "jobs.ballast.dev"
NODES, CARDS = 3, 8
N_PODS = NODES * CARDS
#: Each project has half of the cards as quota. All at once: after a pod of a Job has ended early,
#: the Job controller waits before it makes another, twice as long for each (10 s to 10 min).
RECLAIMED = N_PODS // 2
#: Seconds for which the gang of these tests may run below its minimum.
GRACE_S = 15


@pytest.fixture
async def scene(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Scene]:
    """Two projects with twelve cards each, and those webhooks of ours that are asked for."""
    async with Scene.open(cluster, n_nodes=NODES, cards=CARDS) as opened:
        webhooks = opened.installation.webhooks(tmp_path)
        await asyncio.to_thread(webhooks.start)
        label = "ballast.dev/managed=true"
        for namespace in ("team-a", "team-b"):
            opened.cluster.kubectl("label", "namespace", namespace, label, "--overwrite")
        ca = (tmp_path / "ca.crt").read_bytes()
        try:
            for document in webhook_configurations(webhooks.port, ca):
                kept = [each for each in document["webhooks"] if each["name"] in request.param]
                opened.admin.post(CONFIGURATIONS, document | {"webhooks": kept})
            yield opened
        finally:
            opened.cluster.kubectl("delete", "mutatingwebhookconfiguration", "ballast-webhooks")
            webhooks.kill()


def stock_job() -> dict[str, Any]:
    """A Job of pods with one GPU each, as users write it."""
    container = {
        "name": "train",
        "image": "example.invalid/none",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "stock"},
        "spec": {"parallelism": N_PODS, "completions": N_PODS, "template": {"spec": pod}},
    }


async def reclaim_twelve(scene: Scene) -> None:
    """The stock Job has borrowed all cards, and the other project takes back its own."""
    await scene.until(lambda: is_admitting(scene.admin, "team-a"), "a pod with the gate")
    scene.admin.post(JOBS, stock_job())
    await scene.until_bound("team-a", N_PODS)
    scene.submit_job("team-b", "owner", RECLAIMED, 1000)
    await scene.until_bound("team-b", RECLAIMED)


def _failed_because(scene: Scene) -> str:
    """Why the Job has failed; empty where it has not."""
    conditions = scene.admin.get(f"{JOBS}/stock")["status"].get("conditions") or []
    return "".join(each["reason"] for each in conditions if each["type"] == "Failed")


def _status(scene: Scene) -> dict[str, Any]:
    return dict(scene.admin.get(f"{JOBS}/stock")["status"])


def _n_uncounted(scene: Scene) -> int:
    """How many ended pods the Job controller has still to count."""
    status = _status(scene)
    listed = status.get("uncountedTerminatedPods") or {}
    return sum(map(len, listed.values())) + int(status.get("terminating", 0))


@pytest.mark.parametrize("scene", [("pods.ballast.dev", JOB_WEBHOOK)], indirect=True)
async def test_stock_job_lives_through_twelve_reclaims(scene: Scene) -> None:
    await reclaim_twelve(scene)
    await scene.until(
        lambda: _status(scene).get("active") == N_PODS - RECLAIMED and not _n_uncounted(scene),
        "every pod that ended to be counted",
    )
    assert _failed_because(scene) == ""
    assert _status(scene).get("failed", 0) == 0
    (rule,) = scene.admin.get(f"{JOBS}/stock")["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"


@pytest.mark.parametrize("scene", [("pods.ballast.dev",)], indirect=True)
async def test_stock_job_without_the_webhook_dies_of_them(scene: Scene) -> None:
    await reclaim_twelve(scene)
    await scene.until(lambda: bool(_failed_because(scene)), "the Job to fail")
    assert _failed_because(scene) == "BackoffLimitExceeded"


def _indexed(name: str, n_pods: int) -> dict[str, Any]:
    """A Job whose pods all run at once, each with an index: a gang."""
    job = stock_job()
    job["metadata"]["name"] = name
    job["spec"] |= _size(n_pods) | {"completionMode": "Indexed"}
    return job


def _size(n_pods: int) -> dict[str, int]:
    return {"parallelism": n_pods, "completions": n_pods}


def _groups(scene: Scene) -> list[str]:
    return [each["metadata"]["name"] for each in scene.get("gpupodgroups")["items"]]


def _scale(scene: Scene, name: str, n_pods: int) -> None:
    patch = json.dumps({"spec": _size(n_pods)})
    scene.cluster.kubectl("patch", "job", name, "-n", "team-a", "--type=merge", "-p", patch)


@pytest.mark.parametrize("scene", [("pods.ballast.dev",)], indirect=True)
async def test_a_gang_follows_its_indexed_job(scene: Scene) -> None:
    await scene.until(lambda: is_admitting(scene.admin, "team-a"), "a pod with the gate")
    scene.admin.post(JOBS, _indexed("runs", 4))
    await scene.until_bound("team-a", 4)
    scene.admin.post(JOBS, _indexed("waits", N_PODS))
    first = (await scene.look("team-a")).bound
    await scene.until(lambda: "job-runs" in _groups(scene), "the group of the gang")
    grace = json.dumps({"spec": {"stalenessGraceSeconds": GRACE_S}})
    scene.cluster.kubectl(
        "patch", "gpupodgroup", "job-runs", "-n", "team-a", "--type=merge", "-p", grace
    )

    _scale(scene, "runs", 3)
    await scene.until_bound("team-a", 3)
    _scale(scene, "waits", 2)
    await scene.until_bound("team-a", 5)
    await asyncio.sleep(GRACE_S)
    _scale(scene, "runs", N_PODS)
    await scene.until_bound("team-a", N_PODS)
    await asyncio.sleep(GRACE_S)

    assert len(first & (await scene.look("team-a")).bound) == 3
    assert {reason for reason, _ in scene.events("team-a")}.isdisjoint({"GangStale"})
