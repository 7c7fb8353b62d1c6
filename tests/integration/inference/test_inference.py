"""A Deployment with a floor, a real HorizontalPodAutoscaler, and the query that docs/inference.md
shows, evaluated by Prometheus."""

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import (
    AUTOSCALERS,
    CARDS,
    DEPLOYMENTS,
    FLOOR,
    autoscaler,
    deployment,
    follow_load,
    is_unknown,
    of_page,
    query_of_page,
    replicas,
    running,
    scale,
    value_of,
    wanted,
)
from tests.integration.inference.metrics_api import Load, external_metrics, served
from tests.integration.monitoring.prometheus import monitoring, program


async def test_without_a_floor_replicas_beyond_the_quota_wait_beside_idle_gpus(
    scene: Scene,
) -> None:
    scene.admin.post(DEPLOYMENTS, deployment(CARDS, None))
    await scene.until_bound("team-a", FLOOR)
    await scene.until_decided(5)
    assert len(running(scene)) == FLOOR


async def test_the_floor_stays_when_the_owner_of_the_rest_returns(scene: Scene) -> None:
    scene.admin.post(DEPLOYMENTS, deployment(FLOOR, FLOOR))
    await scene.until_bound("team-a", FLOOR)
    floor = running(scene).keys()
    scale(scene, CARDS)
    await scene.until_bound("team-a", CARDS)
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be counted")
    scene.submit_job("team-b", "one", 1, 1000)
    await scene.until_bound("team-b", 1)
    await scene.until_bound("team-a", CARDS - 1)
    scene.submit_job("team-b", "two", 1, 1000)
    await scene.until_bound("team-b", 2)
    await scene.until_bound("team-a", FLOOR)
    assert running(scene).keys() == floor
    await scene.until(lambda: replicas(scene, "waiting") == CARDS - FLOOR, "the rest to wait")


async def test_whatever_a_scale_down_removes_the_floor_is_kept_by_those_that_are_left(
    scene: Scene,
) -> None:
    scene.admin.post(DEPLOYMENTS, deployment(CARDS, FLOOR))
    await scene.until_bound("team-a", CARDS)
    for name in list(running(scene))[:FLOOR]:
        scene.cluster.kubectl("delete", "pod", name, "-n", "team-a", "--wait=false")
        await scene.until(lambda gone=name: gone not in running(scene), f"{name} to be gone")  # type: ignore[misc]
        await scene.until_bound("team-a", CARDS)
        await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
    scale(scene, FLOOR)
    await scene.until_bound("team-a", FLOOR)
    await scene.until(
        lambda: (replicas(scene, "kept"), replicas(scene, "surge")) == (FLOOR, 0),
        "those that are left to be kept",
    )


def autoscaler_of_page() -> dict[str, Any]:
    """The HorizontalPodAutoscaler as it stands on the page, without its patience."""
    (found,) = of_page("HorizontalPodAutoscaler")
    found["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    return found


def test_the_page_gives_keda_the_query_of_every_autoscaler() -> None:
    by_load, _ = of_page("ScaledObject")
    assert by_load["spec"]["triggers"][0]["metadata"]["query"] == query_of_page()


def test_the_bound_moves_an_autoscaler_and_leaves_the_deployment_available() -> None:
    (factor,) = re.findall(r"floor\((\S+) \*", query_of_page())
    for n in range(1, 2000):
        bound = 1 + math.floor(Fraction(factor) * n)
        # HorizontalPodAutoscalers ignore a smaller change.
        assert bound > Fraction(11, 10) * n
        # With maxSurge 0 and maxUnavailable 25 %, rounded down, so many may be missing.
        assert bound - n <= max(1, bound // 4)


@pytest.mark.timeout(300)
async def test_an_autoscaler_asks_for_little_more_than_can_run(
    scene: Scene, tmp_path: Path
) -> None:
    program("prometheus")
    load, query = Load(), query_of_page()
    with served(load.page) as load_port:
        ports = {"control": [scene.installation.control.port], "llm": [load_port]}
        with monitoring(tmp_path, ports) as seen, autoscaler(scene, tmp_path):
            metrics = {"llm-replicas": lambda: value_of(seen, query)}
            with external_metrics(scene.plane, tmp_path, metrics):
                scene.admin.post(AUTOSCALERS, autoscaler_of_page())
                await follow_load(scene, load)
                await scene.until(lambda: value_of(seen, query) == 1, "one replica to be enough")


@pytest.mark.timeout(300)
async def test_without_a_controller_an_autoscaler_leaves_the_replicas_as_they_are(
    scene: Scene, tmp_path: Path
) -> None:
    program("prometheus")
    # Replicas that were counted are forgotten within seconds instead of minutes.
    load, query = Load(), query_of_page().replace("[5m]", "[3s]")
    with served(load.page) as load_port:
        ports = {"control": [scene.installation.control.port], "llm": [load_port]}
        with monitoring(tmp_path, ports) as seen, autoscaler(scene, tmp_path):
            metrics = {"llm-replicas": lambda: value_of(seen, query)}
            with external_metrics(scene.plane, tmp_path, metrics):
                scene.admin.post(DEPLOYMENTS, deployment(FLOOR, FLOOR))
                await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
                load.n_requests = 16 * CARDS
                scene.admin.post(AUTOSCALERS, autoscaler_of_page())
                await scene.until(lambda: wanted(scene) == CARDS, "every card to be asked for")
                await scene.until(lambda: value_of(seen, query) == CARDS, "the load to be met")
                scene.installation.control.kill()
                await scene.until(lambda: is_unknown(scene, "llm"), "the metric to be unknown")
                assert wanted(scene) == CARDS
                scene.installation.control.start()
                load.n_requests = 16 * FLOOR
                await scene.until(lambda: wanted(scene) == FLOOR, "the load to be followed")
