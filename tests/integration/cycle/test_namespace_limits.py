"""ResourceQuotas and LimitRanges in the namespace of a project: what they count, and what the
author of a workload is told."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks
from tests.support.controlplane.handles import Cluster
from tests.support.thorough import every

CORE: Final = "/api/v1/namespaces/team-a"
JOBS: Final = "/apis/batch/v1/namespaces/team-a/jobs"
GANG: Final = 4
GPU: Final = f"requests.{names.NVIDIA_GPU}"


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards; team-a may have a gang's."""
    async with opened_with_webhooks(cluster, GANG, tmp_path) as opened:
        yield opened


def submit(scene: Scene, name: str, n_pods: int, pod: dict[str, Any]) -> None:
    """An Indexed Job; its pods run together."""
    spec = {"completions": n_pods, "parallelism": n_pods, "completionMode": "Indexed"}
    scene.admin.post(JOBS, {"metadata": {"name": name}, "spec": spec | {"template": pod}})


def whole(gpus: int = 1, **more: str) -> dict[str, Any]:
    """A pod template with so many GPUs."""
    limits = {names.NVIDIA_GPU: str(gpus)} | more
    container = {"name": "main", "image": "example.invalid/none", "resources": {"limits": limits}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def half() -> dict[str, Any]:
    """A pod template with half a GPU."""
    template = whole()
    del template["spec"]["containers"][0]["resources"]
    return template | {"metadata": {"annotations": {"gpu-fraction": "0.5"}}}


async def limit(scene: Scene, **hard: str) -> None:
    """A ResourceQuota that is in force."""
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": hard}}
    scene.admin.post(f"{CORE}/resourcequotas", quota)
    path = f"{CORE}/resourcequotas/compute"
    await scene.until(
        lambda: scene.admin.get(path).get("status", {}).get("used", {}).keys() == hard.keys(),
        "the quota to be counted",
    )


def failures(scene: Scene, job: str) -> str:
    """What Kubernetes' events say about pods of the Job that could not be created."""
    events = scene.admin.get(f"{CORE}/events")["items"]
    return "\n".join(
        each["message"]
        for each in events
        if each["reason"] == "FailedCreate" and each["involvedObject"]["name"] == job
    )


@pytest.mark.parametrize("counted", every(3, [GPU, "count/pods", "pods"]))
async def test_gang_above_a_resource_quota_waits_and_is_told_where_to_look(
    scene: Scene, counted: str
) -> None:
    await limit(scene, **{counted: str(GANG - 1)})
    submit(scene, "gang", GANG, whole())

    def told() -> str:
        return "".join(
            each["note"]
            for each in scene.full_events("team-a")
            if (each["reason"], each["regarding"]["name"]) == ("GangIncomplete", "gang")
        )

    await scene.until(lambda: bool(told()), "the Job to be told why it waits")
    assert f"has {GANG - 1} of the {GANG} pods" in told()
    assert "ResourceQuota" in told()
    await scene.until(
        lambda: "exceeded quota: compute" in failures(scene, "gang"), "Kubernetes' own event"
    )
    sight = await scene.look("team-a")
    assert not sight.bound
    scene.cluster.kubectl("delete", "resourcequota", "compute", "-n", "team-a")
    await scene.until_bound("team-a", GANG)


async def test_fractions_are_no_gpus_of_a_resource_quota(scene: Scene) -> None:
    await limit(scene, **{GPU: "1"})
    submit(scene, "half", 2, half())
    await scene.until_bound("team-a", 2)


async def test_limit_range_of_gpus_is_a_default_that_refuses_fractions(scene: Scene) -> None:
    most = {"type": "Container", "max": {names.NVIDIA_GPU: "2"}}
    body = {"metadata": {"name": "most"}, "spec": {"limits": [most]}}
    scene.admin.post(f"{CORE}/limitranges", body)
    submit(scene, "whole", 1, whole(2))
    await scene.until_bound("team-a", 1)
    submit(scene, "half", 1, half())
    await scene.until(lambda: "a LimitRange" in failures(scene, "half"), "the refusal")


async def test_limit_range_of_cpu_gives_gpu_pods_their_requests(scene: Scene) -> None:
    usual = {"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "2"}}
    body = {"metadata": {"name": "usual"}, "spec": {"limits": [usual]}}
    scene.admin.post(f"{CORE}/limitranges", body)

    def is_in_force() -> bool:
        probe = half()
        probe["metadata"]["name"] = "probe"
        made = scene.admin.post(f"{CORE}/pods?dryRun=All", probe)
        return "cpu" in made["spec"]["containers"][0]["resources"].get("limits", {})

    await scene.until(is_in_force, "the LimitRange in force")
    submit(scene, "half", 2, half())
    await scene.until_bound("team-a", 2)
    for pod in scene.admin.get(f"{CORE}/pods")["items"]:
        resources = pod["spec"]["containers"][0]["resources"]
        assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("2", "4")
        assert resources["requests"][names.GPU_MILLI] == "500"
