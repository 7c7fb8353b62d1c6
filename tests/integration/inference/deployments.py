"""The Deployment `llm` of team-a, a model server with a GPU for each replica, and its scaling."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.metrics_api import Load, served
from tests.integration.monitoring.prometheus import Monitoring, monitoring, program
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.process import Process
from tests.support.installation import MANIFESTS
from tests.support.webhook_config import webhooks_in_force

PAGE = Path(__file__).parents[3] / "docs" / "inference.md"
DEPLOYMENTS = "/apis/apps/v1/namespaces/team-a/deployments"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/team-a/horizontalpodautoscalers"
#: Cards of the cluster; each project has half of them as quota.
CARDS = 4
FLOOR = CARDS // 2


@asynccontextmanager
async def opened_with_webhooks(cluster: Cluster, cards: int, folder: Path) -> AsyncIterator[Scene]:
    """A scene of two nodes with so many cards each, and the webhooks for pods."""
    async with Scene.open(cluster, n_nodes=2, cards=cards) as opened:
        webhooks = opened.installation.webhooks(folder)
        await asyncio.to_thread(webhooks.start)
        ca = (folder / "ca.crt").read_bytes()
        try:
            with webhooks_in_force(opened.admin, webhooks.port, ca, "team-a"):
                yield opened
        finally:
            webhooks.kill()


@asynccontextmanager
async def opened_with_policies(cluster: Cluster, cards: int, folder: Path) -> AsyncIterator[Scene]:
    """The same with the admission policies."""
    policies = str(MANIFESTS / "policies")
    async with opened_with_webhooks(cluster, cards, folder) as opened:
        cluster.kubectl("apply", "--server-side", "-k", policies)
        try:
            yield opened
        finally:
            cluster.kubectl("delete", "-k", policies)


class Controllers(Protocol):
    """Programs of others beside a control plane."""

    def install(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


Some = TypeVar("Some", bound=Controllers)


@asynccontextmanager
async def started(controllers: Some) -> AsyncIterator[Some]:
    """Their kinds are installed and they run; they end with the test."""
    await asyncio.to_thread(controllers.install)
    try:
        await asyncio.to_thread(controllers.start)
        yield controllers
    finally:
        await asyncio.to_thread(controllers.stop)


def deployment(n: int, floor: int | None) -> dict[str, Any]:
    """The Deployment as it stands on the page, with so many replicas and this floor."""
    (made,) = of_page("Deployment")
    made["spec"]["replicas"] = n
    meta = made["spec"]["template"]["metadata"]
    meta["annotations"] = {} if floor is None else {names.ANNOTATION_FLOOR: str(floor)}
    return made


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


def is_available(scene: Scene, name: str = "llm") -> bool:
    """Whether the Deployment says, of all its replicas, that enough are ready."""
    found = scene.admin.get(f"{DEPLOYMENTS}/{name}")
    status = found["status"]
    told = [(each["type"], each["status"]) for each in status["conditions"]]
    return ("Available", "True") in told and status["replicas"] == found["spec"]["replicas"]


def wanted(scene: Scene, name: str = "llm") -> int:
    return int(scene.admin.get(f"{DEPLOYMENTS}/{name}")["spec"]["replicas"])


def query_of_page() -> str:
    """The query as it stands on the page, for the namespace of this test."""
    (found,) = re.findall(r"^```promql\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return str(found).replace("vision", "team-a")


def of_page(kind: str) -> list[dict[str, Any]]:
    """The objects of this kind as they stand on the page, in the namespace of this test."""
    text = PAGE.read_text("utf-8").replace("vision", "team-a")
    blocks = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S))
    return [each for each in blocks if each.get("kind") == kind]


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


@contextmanager
def measured(scene: Scene, folder: Path, load: Load) -> Iterator[tuple[Monitoring, int]]:
    """Prometheus, and the port of the gateway, while HorizontalPodAutoscalers are followed."""
    program("prometheus")
    with served(load.page) as load_port:
        ports = {"control": [scene.installation.control.port], "llm": [load_port]}
        with monitoring(folder, ports) as seen, autoscaler(scene, folder):
            yield seen, load_port


def value_of(seen: Monitoring, query: str) -> float | None:
    """The value of the query; None where it has none."""
    found = seen.query(query)
    return float(found[0]["value"][1]) if found else None


def is_unknown(scene: Scene, name: str) -> bool:
    """Whether the autoscaler says that its metric has no value."""
    conditions = scene.admin.get(f"{AUTOSCALERS}/{name}")["status"]["conditions"]
    return ("ScalingActive", "False", "FailedGetExternalMetric") in [
        (each["type"], each["status"], each["reason"]) for each in conditions
    ]


async def follow_load(scene: Scene, load: Load) -> None:
    """Under an autoscaler the load rises beyond the cluster, the owner of half of it returns, and
    the load falls."""
    scene.admin.post(DEPLOYMENTS, deployment(FLOOR, FLOOR))
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
    load.n_requests = 16 * 20
    await scene.until(lambda: replicas(scene, "kept", "surge") == CARDS, "every card to be used")
    # One more than run: not the 20 that the load alone would have.
    await scene.until(lambda: wanted(scene) == CARDS + 1, "the autoscaler to come to rest")
    await scene.until(lambda: replicas(scene, "waiting") == 1, "one replica to wait")
    await scene.until(lambda: is_available(scene), "the Deployment to be available")
    scene.submit_job("team-b", "owner", FLOOR, 1000)
    await scene.until_bound("team-b", FLOOR)
    await scene.until(lambda: wanted(scene) == FLOOR + 1, "the autoscaler to ask for less")
    assert replicas(scene, "kept") == FLOOR
    await scene.until(lambda: is_available(scene), "the Deployment to be available")
    load.n_requests = 16
    await scene.until(lambda: wanted(scene) == FLOOR, "the floor to be left")
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "it to be kept")
