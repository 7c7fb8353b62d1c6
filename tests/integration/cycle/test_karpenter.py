"""Karpenter itself, from a pool without nodes; kwok plays the machines that it buys.

Skipped unless `make karpenter` has built it.
"""

import http.client
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api import names
from tests.integration.cycle.test_elastic import waits_for
from tests.integration.cycle.test_empty_nodes import SAVES, n_restarts, see_nodes_go, used_nodes
from tests.integration.cycle.two_projects import Scene
from tests.support import karpenter, workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process

GPUS = 8
READY_S = 60.0
INSTANCE = "gpu-8x"
SELECTOR = {"example.com/group": "bought"}
POOL = {
    "apiVersion": "ballast.dev/v1alpha1",
    "kind": "GpuNodePool",
    "metadata": {"name": "bought"},
    "spec": {
        "nodeSelector": SELECTOR,
        "elastic": {
            "maxNodes": 6,
            "trigger": "UnschedulablePods",
            "node": {"gpus": GPUS, "cpu": 95, "memoryGiB": 511},
        },
    },
}
INSTANCES = [
    {
        "name": INSTANCE,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "96", "memory": "512Gi", names.NVIDIA_GPU: str(GPUS)},
        "offerings": [
            {
                "Price": 10.0,
                "Available": True,
                "Requirements": [
                    {"key": key, "operator": "In", "values": [value]}
                    for key, value in (
                        ("karpenter.sh/capacity-type", "on-demand"),
                        ("topology.kubernetes.io/zone", "a"),
                    )
                ],
            }
        ],
    }
]
ONLY = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [INSTANCE]}
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "bought"},
    "spec": {
        # Two nodes at first, to see what becomes of them before the others come.
        "limits": {names.NVIDIA_GPU: str(2 * GPUS)},
        "disruption": {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "5s",
            "budgets": [{"nodes": "100%"}],
        },
        "template": {
            "metadata": {
                "labels": {
                    **SELECTOR,
                    # What GPU feature discovery writes.
                    "nvidia.com/gpu.count": str(GPUS),
                    "nvidia.com/gpu.memory": "81920",
                    "nvidia.com/gpu.product": "A100",
                }
            },
            "spec": {
                "expireAfter": "Never",
                "requirements": [ONLY],
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh",
                    "kind": "KWOKNodeClass",
                    "name": "default",
                },
            },
        },
    },
}
OVERLAY = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "ballast"},
    "spec": {"requirements": [ONLY], "capacity": {names.GPU_MILLI: str(1000 * GPUS)}},
}
NODE_CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}


@pytest.fixture(scope="module")
def built() -> Path:
    if not karpenter.PROGRAMS.has():
        pytest.skip("no Karpenter: make karpenter builds it")
    return karpenter.PROGRAMS.path("karpenter")


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, built: Path) -> AsyncIterator[Scene]:
    """No node. team-a may have 32 GPUs of the pool, team-b none."""
    admin = cluster.control_plane.admin
    for path in karpenter.definitions():
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
    admin.post(f"{workloads.API}/gpunodepools", POOL)
    async with Scene.open(cluster, n_nodes=0, cards=GPUS) as opened:
        set_quota(opened, "gpudepartment", "research", 32)
        set_quota(opened, "gpuproject", "team-a", 32)
        set_quota(opened, "gpuproject", "team-b", 0)
        yield opened
        await audited.finish()


class Karpenter:
    """The program, which has one NodePool, and what it says of itself."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self._port = port

    def n_bought(self) -> int:
        """How many nodes it has asked the cloud for so far."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port)
        try:
            connection.request("GET", "/metrics")
            told = connection.getresponse().read().decode()
        finally:
            connection.close()
        counts = re.findall(r"^karpenter_nodeclaims_created_total\{.*\} (\S+)$", told, re.M)
        return sum(int(float(each)) for each in counts)


@pytest.fixture
def autoscaler(scene: Scene, built: Path, tmp_path: Path) -> Iterator[Karpenter]:
    instances = tmp_path / "instances.json"
    instances.write_text(json.dumps(INSTANCES))
    for document in (NODE_CLASS, OVERLAY, NODE_POOL):
        scene.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))
    metrics, health = free_ports(2)
    env = os.environ | {
        "KUBECONFIG": str(scene.plane.kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "FEATURE_GATES": "NodeOverlay=true",
        "INSTANCE_TYPES_FILE_PATH": str(instances),
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "LOG_LEVEL": "debug",
    }
    log = Path(os.environ.get("BALLAST_AUTOSCALER_LOG", tmp_path / "karpenter.log"))
    process = Process("karpenter", [str(built)], log, env)
    process.start()
    process.wait_until(lambda: is_healthy(metrics, "/metrics", is_tls=False), READY_S)
    yield Karpenter(process, metrics)
    process.kill()


def set_quota(scene: Scene, kind: str, name: str, quota: int) -> None:
    pools = [{"name": "bought", "gpu": {"quota": quota}}]
    spec: dict[str, Any] = {"nodePools": pools}
    if kind == "gpuproject":
        spec["defaultNodePools"] = ["bought"]
    body = json.dumps({"spec": spec})
    scene.cluster.kubectl("patch", kind, name, "--type=merge", "-p", body)


def submit(
    scene: Scene, project: str, name: str, n_pods: int, gpus: int = GPUS, priority: str = ""
) -> None:
    """A gang of pods with so many whole GPUs each, as admission leaves them."""
    group = workloads.pod_group(name, project, n_pods)
    scene.admin.post(f"{workloads.API}/namespaces/{project}/gpupodgroups", group)
    body = workloads.job(
        name, project, n_pods, gpus * 1000, group=name, priority_class=priority, annotations=SAVES
    )
    (container,) = body["spec"]["template"]["spec"]["containers"]
    for asked in container["resources"].values():
        asked[names.NVIDIA_GPU] = str(gpus)
    scene.admin.post(f"/apis/batch/v1/namespaces/{project}/jobs", body)


def let_buy(scene: Scene, n_nodes: int) -> None:
    """Set the NodePool's limit."""
    limits = json.dumps({"spec": {"limits": {names.NVIDIA_GPU: str(n_nodes * GPUS)}}})
    scene.cluster.kubectl("patch", "nodepool", "bought", "--type=merge", "-p", limits)


def nodes(scene: Scene) -> list[str]:
    listed = scene.admin.get("/api/v1/nodes")["items"]
    return [each["metadata"]["name"] for each in listed]


@pytest.mark.timeout(400)
async def test_a_gang_within_quota_gets_its_nodes_once_and_idle_nodes_go(
    scene: Scene, autoscaler: Karpenter
) -> None:
    submit(scene, "team-b", "borrows", 1)
    why_not = "only work within its project's and department's quota gets new nodes"
    await scene.until(lambda: why_not in waits_for(scene, "team-b"), "team-b to be told why not")
    submit(scene, "team-a", "train", 4)
    cards = str(1000 * GPUS)
    await scene.until(lambda: scene.nodes_say_milli() == [cards] * 2, "the first two nodes")
    await scene.until_decided(8)
    assert not (await scene.look("team-b")).bound
    let_buy(scene, 6)
    await scene.until_bound("team-a", 4)
    await scene.until_decided(8)
    assert (len(nodes(scene)), autoscaler.n_bought()) == (4, 4)
    assert not (await scene.look("team-b")).bound
    for project, name in (("team-b", "borrows"), ("team-a", "train")):
        scene.cluster.kubectl("delete", "job", name, "-n", project)
    await scene.until(lambda: not nodes(scene), "all nodes to go")
    assert autoscaler.n_bought() == 4
    assert autoscaler.process.is_alive


@pytest.mark.timeout(400)
async def test_work_that_loses_its_quota_buys_no_more_and_two_halves_share_a_node(
    scene: Scene, autoscaler: Karpenter
) -> None:
    submit(scene, "team-a", "train", 4)
    await scene.until(lambda: autoscaler.n_bought() == 2, "the nodes that Karpenter may buy")
    set_quota(scene, "gpuproject", "team-a", GPUS)
    await scene.until(lambda: not nodes(scene), "the idle nodes to go")
    let_buy(scene, 6)
    await scene.until_decided(8)
    assert (nodes(scene), autoscaler.n_bought()) == ([], 2)
    for name in ("one", "two"):
        submit(scene, "team-a", name, 1, GPUS // 2)
    await scene.until_bound("team-a", 2)
    await scene.until_decided(8)
    assert (len(nodes(scene)), autoscaler.n_bought()) == (1, 3)
    assert autoscaler.process.is_alive


@pytest.mark.timeout(600)
async def test_quarters_of_four_nodes_come_together_and_three_nodes_go(
    scene: Scene, autoscaler: Karpenter
) -> None:
    spec = json.dumps({"spec": {"elastic": {"consolidateAfterMinutes": 1}}})
    scene.cluster.kubectl("patch", "gpunodepool", "bought", "--type=merge", "-p", spec)
    let_buy(scene, 6)
    submit(scene, "team-a", "filler", 4, 6)
    await scene.until_bound("team-a", 4)
    quarters = {"stays": 0, "one": 1, "two": 1, "three": 1}
    for name in quarters:
        submit(scene, "team-a", name, 1, 2, "ballast-build" if name == "stays" else "")
    await scene.until_bound("team-a", 8)
    assert (len(used_nodes(scene, "team-a")), autoscaler.n_bought()) == (4, 4)
    await see_nodes_go(scene, nodes)
    assert n_restarts(scene, "team-a") == quarters
    assert autoscaler.n_bought() == 4
    assert autoscaler.process.is_alive


@pytest.mark.timeout(400)
async def test_nothing_is_bought_until_karpenter_knows_the_capacity_in_milli(
    scene: Scene, autoscaler: Karpenter
) -> None:
    scene.cluster.kubectl("delete", "nodeoverlay", "ballast")
    submit(scene, "team-a", "train", 1)
    await scene.until(lambda: is_told(scene, "team-a"), "Karpenter to say why not")
    assert (nodes(scene), autoscaler.n_bought()) == ([], 0)
    scene.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(OVERLAY))
    await scene.until_bound("team-a", 1)
    assert autoscaler.n_bought() == 1


def is_told(scene: Scene, namespace: str) -> bool:
    """Whether Karpenter has said of a pod that no instance type has what it asks for."""
    events = scene.admin.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    told = [each["message"] for each in events if each["source"].get("component") == "karpenter"]
    return any("no instance type" in each for each in told)
