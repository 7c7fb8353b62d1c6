"""KEDA's own operator and metrics server, with the objects that docs/inference.md shows.

Skipped unless `make keda` has built them.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import (
    CARDS,
    DEPLOYMENTS,
    FLOOR,
    deployment,
    follow_load,
    is_unknown,
    measured,
    of_page,
    replicas,
    running,
    wanted,
)
from tests.integration.inference.metrics_api import Load, served
from tests.support import keda
from tests.support.keda.running import Keda

pytestmark = pytest.mark.skipif(not keda.PROGRAMS.has(), reason="no KEDA: make keda builds it")
API = "/apis/keda.sh/v1alpha1/namespaces/team-a"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
#: More than the cluster has room for.
MANY = 16 * 20
STRATEGIES = ("default", "accurate", "eager")


def impatient(found: dict[str, Any], prometheus: int, gateway: int) -> dict[str, Any]:
    """The object as it stands on the page, with the addresses of this test, without its patience,
    and with replicas forgotten within seconds."""
    spec = found["spec"]
    spec["pollingInterval"] = 1
    if found["kind"] == "ScaledObject":
        spec["cooldownPeriod"] = 2
        behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
        spec.setdefault("advanced", {})["horizontalPodAutoscalerConfig"] = {"behavior": behavior}
    for trigger in spec["triggers"]:
        metadata = trigger["metadata"]
        if trigger["type"] == "prometheus":
            metadata["serverAddress"] = f"http://127.0.0.1:{prometheus}"
            metadata["query"] = metadata["query"].replace("[5m]", "[3s]")
        else:
            metadata["url"] = f"http://127.0.0.1:{gateway}/load"
    return found


@pytest.mark.timeout(300)
async def test_keda_asks_for_little_more_than_can_run_and_for_nothing_else_without_a_controller(
    scene: Scene, operator: Keda, tmp_path: Path
) -> None:
    load, (by_load, _) = Load(), of_page("ScaledObject")
    with measured(scene, tmp_path, load) as (seen, gateway):
        scene.admin.post(f"{API}/scaledobjects", impatient(by_load, seen.port, gateway))
        await follow_load(scene, load)
        load.n_requests = MANY
        await scene.until(lambda: wanted(scene) == FLOOR + 1, "the load to be followed")
        scene.installation.control.kill()
        await scene.until(lambda: is_unknown(scene, "keda-hpa-llm"), "the metric to be unknown")
        load.n_requests = 0
        asked = wanted(scene)
        await asyncio.sleep(5)
        assert wanted(scene) == asked == FLOOR + 1
        scene.installation.control.start()
        await scene.until(lambda: wanted(scene) == FLOOR, "the load to be followed again")
    assert operator.is_alive


@pytest.mark.timeout(300)
async def test_a_service_without_replicas_gets_its_floor_back_and_surges_one_by_one(
    scene: Scene, operator: Keda, tmp_path: Path
) -> None:
    load, (_, to_zero) = Load(), of_page("ScaledObject")
    with measured(scene, tmp_path, load) as (seen, gateway):
        scene.admin.post(DEPLOYMENTS, deployment(0, FLOOR))
        scene.submit_job("team-b", "borrower", CARDS, 1000)
        await scene.until_bound("team-b", CARDS)
        scene.admin.post(f"{API}/scaledobjects", impatient(to_zero, seen.port, gateway))
        load.n_requests = MANY
        await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be back")
        await scene.until(lambda: wanted(scene) == FLOOR + 1, "the autoscaler to come to rest")
        floor = running(scene)
        await scene.until_decided(5)
        assert running(scene) == floor
        scene.cluster.kubectl("delete", "job", "borrower", "-n", "team-b")
        await scene.until(lambda: len(running(scene)) == CARDS, "every card to be used")
        await scene.until(lambda: wanted(scene) == CARDS + 1, "the autoscaler to come to rest")
        await waiting_go_first(scene, load)
        await owner_returns(scene, floor)
        load.n_requests = 0
        await scene.until(lambda: wanted(scene) == 0, "no replica to be asked for")
        await scene.until_bound("team-a", 0)
    assert operator.is_alive


async def waiting_go_first(scene: Scene, load: Load) -> None:
    """A scale-down to as many replicas as run stops none of them."""
    before = running(scene)
    load.n_requests = 16 * CARDS
    await scene.until(lambda: wanted(scene) == CARDS, "less to be asked for")
    await scene.until(lambda: replicas(scene, "waiting") == 0, "none to wait")
    assert running(scene) == before


async def owner_returns(scene: Scene, floor: dict[str, str]) -> None:
    """Each GPU that the owner of the rest takes back costs one replica, and never the floor."""
    for taken, name in enumerate(("one", "two"), start=1):
        scene.submit_job("team-b", name, 1, 1000)
        await scene.until_bound("team-b", taken)
        await scene.until_bound("team-a", CARDS - taken)
        assert floor.items() <= running(scene).items()


async def keda_looks(scene: Scene, load: Load) -> None:
    """Until KEDA has looked at each ScaledJob several times."""
    asked = load.n_asked
    await scene.until(lambda: load.n_asked > asked + 5 * len(STRATEGIES), "KEDA to look")


def are_whole(scene: Scene) -> bool:
    """Whether every Job has its pod, which runs or waits."""
    return all(job["status"].get("active") == 1 for job in scene.admin.get(JOBS)["items"])


def jobs_of(scene: Scene, name: str) -> list[Any]:
    listed = scene.admin.get(f"{JOBS}?labelSelector=scaledjob.keda.sh%2Fname%3D{name}")["items"]
    assert all("podFailurePolicy" in job["spec"] for job in listed)
    assert not any(job["status"].get("failed") for job in listed)
    return list(listed)


@pytest.mark.timeout(300)
async def test_keda_counts_jobs_that_wait_and_jobs_that_were_evicted(
    scene: Scene, operator: Keda
) -> None:
    load, (found,) = Load(), of_page("ScaledJob")
    most = found["spec"]["maxReplicaCount"]
    with served(load.page) as gateway:
        made = impatient(found, 0, gateway)
        for strategy in STRATEGIES:
            made["metadata"]["name"] = f"embed-{strategy}"
            made["spec"]["scalingStrategy"] = {"strategy": strategy}
            scene.admin.post(f"{API}/scaledjobs", made)
            # Only the first states it; KEDA would have its Jobs restart in place without it.
            made["spec"]["jobTargetRef"]["template"]["spec"].pop("restartPolicy", None)
        # KEDA begins anew while it makes a ScaledJob its own, and may then create one Job twice.
        await keda_looks(scene, load)
        load.n_requests = MANY
        await scene.until_bound("team-a", CARDS)
        scene.submit_job("team-b", "owner", FLOOR, 1000)
        await scene.until_bound("team-b", FLOOR)
        await scene.until(lambda: are_whole(scene), "every Job to have its pod again")
        await keda_looks(scene, load)
        counts = {each: len(jobs_of(scene, f"embed-{each}")) for each in STRATEGIES}
        # The strategy eager counts a Job that waits twice.
        assert most // 2 <= counts.pop("eager") <= most
        assert counts == {"default": most, "accurate": most}
        assert len((await scene.look("team-a")).bound) == CARDS - FLOOR
    assert operator.is_alive
