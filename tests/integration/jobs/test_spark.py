"""A driver of Spark beside everything of ours. Skipped unless `make spark` has installed it."""

from pathlib import Path

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    CARDS,
    HALF,
    NAMESPACE,
    container,
    delete,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_nothing_is_left,
    until_running,
)
from tests.support import spark as program
from tests.support.spark.running import Spark

pytestmark = [
    pytest.mark.skipif(not program.can_run(), reason="no Spark: make spark installs it (Java 17)"),
    pytest.mark.timeout(300),
]
EXECUTORS = {"spark-role": "executor"}
OPTIONS = {
    "spark.kubernetes.namespace": NAMESPACE,
    "spark.kubernetes.driver.pod.name": "driver",
    "spark.kubernetes.allocation.driver.readinessTimeout": "1s",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": str(CARDS),
    "spark.executor.resource.gpu.amount": "1",
    "spark.executor.resource.gpu.vendor": "nvidia.com",
    "spark.executor.resource.gpu.discoveryScript": "/opt/spark/gpus.sh",
    "spark.task.resource.gpu.amount": "1",
}


async def begin(scene: Scene) -> None:
    """The driver's pod, which owns the executors, while half of the cards are free."""
    spec = {"containers": [container(0)], "schedulerName": names.SCHEDULER_NAME}
    driver = {"metadata": {"name": "driver", "labels": {"spark-role": "driver"}}, "spec": spec}
    scene.admin.post(f"/api/v1/namespaces/{NAMESPACE}/pods", driver)
    await owner_returns(scene)


async def test_executors_start_and_are_evicted_one_by_one(scene: Scene, tmp_path: Path) -> None:
    await begin(scene)
    async with started(Spark(scene.plane, tmp_path, OPTIONS)) as spark:
        await until_running(scene, HALF, EXECUTORS)
        assert not scene.get(f"namespaces/{NAMESPACE}/gpupodgroups")["items"]
        owner_leaves(scene)
        before = await until_running(scene, CARDS, EXECUTORS)
        await owner_returns(scene)
        after = await until_running(scene, HALF, EXECUTORS)
        assert after.items() <= before.items()
        await scene.until(lambda: len(pods(scene, EXECUTORS)) == CARDS, "others to be created")
        owner_leaves(scene)
        assert after.items() <= (await until_running(scene, CARDS, EXECUTORS)).items()
        told = {each["reason"] for each in scene.full_events(NAMESPACE)}
        assert "Reclaimed" in told
        assert "GangSizeUnknown" not in told
        assert spark.is_alive
    delete(scene, "pod", "driver")
    await until_nothing_is_left(scene)


async def test_executors_that_need_one_another_start_together(scene: Scene, tmp_path: Path) -> None:
    await begin(scene)
    minimum = {f"spark.kubernetes.executor.annotation.{names.ANNOTATION_MIN_MEMBER}": str(HALF + 1)}
    async with started(Spark(scene.plane, tmp_path, OPTIONS | minimum)):
        await scene.until(lambda: len(pods(scene, EXECUTORS)) > HALF, "enough executors")
        await scene.until_decided(3)
        assert not running(scene, EXECUTORS)
        owner_leaves(scene)
        await until_running(scene, CARDS, EXECUTORS)
    delete(scene, "pod", "driver")
    await until_nothing_is_left(scene)
