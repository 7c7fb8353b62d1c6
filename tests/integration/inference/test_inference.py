"""A Deployment with a floor, a real HorizontalPodAutoscaler, and the query that docs/inference.md
shows, evaluated by Prometheus."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.metrics_api import Load, external_metrics, served
from tests.integration.monitoring.prometheus import Monitoring, monitoring, program
from tests.integration.webhooks.conftest import CONFIGURATIONS
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.process import Process
from tests.support.webhook_config import webhook_configurations

PAGE = Path(__file__).parents[3] / "docs" / "inference.md"
DEPLOYMENTS = "/apis/apps/v1/namespaces/team-a/deployments"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/team-a/horizontalpodautoscalers"
#: Cards of the cluster; each project has half of them as quota.
CARDS = 4
FLOOR = CARDS // 2


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of two cards, and the webhooks for pods. Ends at rest."""
    async with Scene.open(cluster, n_nodes=2, cards=2) as opened:
        webhooks = opened.installation.webhooks(tmp_path)
        await asyncio.to_thread(webhooks.start)
        url = f"https://{LOOPBACK}:{webhooks.port}"
        try:
            for document in webhook_configurations(url, (tmp_path / "ca.crt").read_bytes()):
                opened.admin.post(CONFIGURATIONS, document)
            await opened.until(lambda: is_changed(opened), "a pod that was changed")
            yield opened
            await audited.finish()
        finally:
            opened.cluster.kubectl("delete", "mutatingwebhookconfiguration", "ballast-webhooks")
            webhooks.kill()


def is_changed(scene: Scene) -> bool:
    pod = deployment(1, None)["spec"]["template"] | {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {"name": "probe"}
    made = scene.admin.post("/api/v1/namespaces/team-a/pods?dryRun=All", pod)
    return "schedulingGates" in made["spec"]


def deployment(n: int, floor: int | None) -> dict[str, Any]:
    """Inference with a GPU for each replica, as its author writes it."""
    container = {
        "name": "server",
        "image": "example.invalid/none",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    labels = {"app": "llm"}
    meta: dict[str, Any] = {"labels": labels | {"ballast.dev/workload-kind": "inference"}}
    if floor is not None:
        meta["annotations"] = {"ballast.dev/floor": str(floor)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {
            "replicas": n,
            "selector": {"matchLabels": labels},
            "template": {"metadata": meta, "spec": {"containers": [container]}},
        },
    }


def replicas(scene: Scene, *states: str) -> int:
    """How many replicas the metric has in these states."""
    text = scene.metrics()
    of = r'^ballast_replicas\{owner="team-a/deployment-llm"'
    found = (re.search(rf'{of},state="{each}"\}} (\S+)$', text, re.M) for each in states)
    return sum(int(float(each[1])) for each in found if each)


def running(scene: Scene) -> dict[str, str]:
    """When each pod of the Deployment that has a node was made, by its name."""
    pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
    return {
        pod["metadata"]["name"]: pod["metadata"]["creationTimestamp"]
        for pod in pods
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    }


def scale(scene: Scene, n: int) -> None:
    patch = json.dumps({"spec": {"replicas": n}})
    words = ("patch", "deployment", "llm", "-n", "team-a", "--type=merge", "-p", patch)
    scene.cluster.kubectl(*words)


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


def query_of_page() -> str:
    """The query as it stands on the page, for the namespace of this test."""
    (found,) = re.findall(r"^```promql\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return str(found).replace("vision", "team-a")


def autoscaler_of_page() -> dict[str, Any]:
    """The HorizontalPodAutoscaler as it stands on the page, without its patience."""
    text = PAGE.read_text("utf-8").replace("namespace: vision", "namespace: team-a")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    (found,) = [yaml.safe_load(each) for each in blocks if "HorizontalPodAutoscaler" in each]
    found["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    made: dict[str, Any] = found
    return made


@contextmanager
def autoscaler(scene: Scene, folder: Path) -> Iterator[None]:
    """The controller of HorizontalPodAutoscalers, which looks every second."""
    argv = [
        scene.plane.program("kube-controller-manager"),
        f"--kubeconfig={scene.plane.kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={free_port()}",
        "--controllers=horizontal-pod-autoscaler-controller",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--leader-elect=false",
    ]
    process = Process("autoscaler", argv, folder / "autoscaler.log")
    process.start()
    try:
        yield
    finally:
        process.kill()


def wanted(scene: Scene) -> int:
    return int(scene.admin.get(f"{DEPLOYMENTS}/llm")["spec"]["replicas"])


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
                await follow_load(scene, load, seen)


async def follow_load(scene: Scene, load: Load, seen: Monitoring) -> None:
    """The load rises beyond the cluster, the owner of half of it returns, and the load falls."""
    scene.admin.post(DEPLOYMENTS, deployment(FLOOR, FLOOR))
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
    load.n_requests = 16 * 20
    scene.admin.post(AUTOSCALERS, autoscaler_of_page())
    await scene.until(lambda: replicas(scene, "kept", "surge") == CARDS, "every card to be used")
    # A fifth more than run, and one: not the 20 that the load alone would have.
    await scene.until(lambda: wanted(scene) == 6, "the autoscaler to come to rest")
    scene.submit_job("team-b", "owner", FLOOR, 1000)
    await scene.until_bound("team-b", FLOOR)
    await scene.until(lambda: wanted(scene) == 4, "the autoscaler to ask for less")
    assert replicas(scene, "kept") == FLOOR
    load.n_requests = 16
    await scene.until(lambda: wanted(scene) == FLOOR, "the floor to be left")
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "it to be kept")
    assert value_of(seen, query_of_page()) == 1


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
                await scene.until(lambda: is_unknown(scene), "the metric to be unknown")
                assert wanted(scene) == CARDS
                scene.installation.control.start()
                load.n_requests = 16 * FLOOR
                await scene.until(lambda: wanted(scene) == FLOOR, "the load to be followed")


def is_unknown(scene: Scene) -> bool:
    """Whether the autoscaler says that its metric has no value."""
    conditions = scene.admin.get(f"{AUTOSCALERS}/llm")["status"]["conditions"]
    return ("ScalingActive", "False", "FailedGetExternalMetric") in [
        (each["type"], each["status"], each["reason"]) for each in conditions
    ]


def value_of(seen: Monitoring, query: str) -> float | None:
    """The value of the query; None where it has none."""
    found = seen.query(query)
    return float(found[0]["value"][1]) if found else None
