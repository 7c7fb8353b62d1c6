"""Cluster Autoscaler itself, from a pool without nodes; kwok plays the machines that it buys.

Skipped unless `$BALLAST_AUTOSCALER` is a folder with the program `cluster-autoscaler` and the
`provisioningrequests.yaml` that belongs to it; docs/autoscaling.md says which release ran.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cycle.test_elastic import patch, requests, waits_for
from tests.integration.cycle.test_empty_nodes import SAVES, n_restarts, see_nodes_go, used_nodes
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.nodes import GpuNodes
from tests.support.controlplane.ports import free_ports
from tests.support.controlplane.process import Process

GPUS = 8
POOL = {
    "apiVersion": "ballast.dev/v1alpha1",
    "kind": "GpuNodePool",
    "metadata": {"name": "default"},
    "spec": {"elastic": {"maxNodes": 6, "node": {"gpus": GPUS, "cpu": 96, "memoryGiB": 512}}},
}
GROUP = "bought"
#: Flags with which the autoscaler removes nodes soon.
REMOVES = [
    "--scale-down-unneeded-time=5s",
    "--scale-down-delay-after-add=5s",
    "--unremovable-node-recheck-timeout=2s",
]


@pytest.fixture(scope="module")
def built() -> Path:
    folder = os.environ.get("BALLAST_AUTOSCALER", "")
    if not folder:
        pytest.skip("no Cluster Autoscaler: set BALLAST_AUTOSCALER to a folder that has it")
    return Path(folder)


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, built: Path) -> AsyncIterator[Scene]:
    """No node. team-a may have 32 GPUs, team-b none."""
    admin = cluster.control_plane.admin
    definition = yaml.safe_load((built / "provisioningrequests.yaml").read_text())
    admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    admin.post(f"{workloads.API}/gpunodepools", POOL)
    async with Scene.open(cluster, n_nodes=0, cards=GPUS) as opened:
        patch(opened, "gpudepartment", "research", 32)
        patch(opened, "gpuproject", "team-a", 32)
        yield opened
        await audited.finish()


@pytest.fixture
def autoscaler(
    scene: Scene, built: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Process]:
    """The autoscaler, with one group of nodes that begins empty; its further flags are the
    parameter, without one it removes no node."""
    flags: list[str] = getattr(request, "param", ["--scale-down-enabled=false"])
    (template,) = GpuNodes(1, GPUS, "A100", 81920, "96", "512Gi", "template").manifests()
    template["metadata"]["labels"]["group"] = GROUP
    config = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": "group"},
        "nodes": {"skipTaint": True},
        "configmap": {"name": "templates"},
    }
    _config_map(scene, "kwok-provider-config", {"config": yaml.safe_dump(config)})
    items = {"apiVersion": "v1", "kind": "List", "items": [template]}
    _config_map(scene, "templates", {"templates": json.dumps(items)})
    kubeconfig = scene.plane.kubeconfig
    (port,) = free_ports(1)
    argv = [
        str(built / "cluster-autoscaler"),
        f"--kubeconfig={kubeconfig}",
        "--cloud-provider=kwok",
        "--enable-provisioning-requests",
        "--leader-elect=false",
        "--scan-interval=2s",
        *flags,
        f"--address=127.0.0.1:{port}",
        "--namespace=default",
        "--v=4",
    ]
    env = os.environ | {
        "KWOK_PROVIDER_MODE": "local",
        "KUBECONFIG": kubeconfig,
        "POD_NAMESPACE": "default",
    }
    log = Path(os.environ.get("BALLAST_AUTOSCALER_LOG", tmp_path / "autoscaler.log"))
    process = Process("cluster-autoscaler", argv, log, env)
    process.start()
    yield process
    process.kill()


def _config_map(scene: Scene, name: str, data: dict[str, str]) -> None:
    body: dict[str, Any] = {"metadata": {"name": name}, "data": data}
    scene.admin.post("/api/v1/namespaces/default/configmaps", body)


def nodes(scene: Scene) -> list[str]:
    listed = scene.admin.get("/api/v1/nodes")["items"]
    return [each["metadata"]["name"] for each in listed]


@pytest.mark.timeout(300)
async def test_a_gang_within_quota_gets_its_nodes_and_borrowers_get_none(
    scene: Scene, autoscaler: Process
) -> None:
    scene.submit_job("team-b", "borrows", 1, GPUS * 1000)
    await scene.until_decided(5)
    why_not = "only work within its project's and department's quota gets new nodes"
    await scene.until(lambda: why_not in waits_for(scene, "team-b"), "team-b to be told why not")
    group = workloads.pod_group("train", "team-a", 4)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", group)
    scene.submit_job("team-a", "train", 4, GPUS * 1000, group="train")
    await scene.until_bound("team-a", 4)
    await scene.until(lambda: not requests(scene), "the request to go")
    await scene.until_decided(5)
    assert len(nodes(scene)) == 4, nodes(scene)
    assert not (await scene.look("team-b")).bound
    assert autoscaler.is_alive


@pytest.mark.timeout(420)
@pytest.mark.parametrize("autoscaler", [REMOVES], indirect=True, ids=["removes"])
async def test_nodes_with_work_stay_and_an_idle_pool_shrinks_to_none(
    scene: Scene, autoscaler: Process
) -> None:
    for name, n_pods in (("ends", 3), ("stays", 1)):
        group = workloads.pod_group(name, "team-a", n_pods)
        scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", group)
        scene.submit_job("team-a", name, n_pods, GPUS * 1000, group=name)
    await scene.until_bound("team-a", 4)
    scene.cluster.kubectl("delete", "job", "ends", "-n", "team-a")
    await scene.until(lambda: len(nodes(scene)) == 1, "three nodes to go")
    await scene.until_decided(5)
    assert len(nodes(scene)) == 1, nodes(scene)
    assert len((await scene.look("team-a")).bound) == 1
    scene.cluster.kubectl("delete", "job", "stays", "-n", "team-a")
    await scene.until(lambda: not nodes(scene), "the last node to go")
    await scene.until(lambda: not _books(scene), "its row to go")
    assert autoscaler.is_alive


@pytest.mark.timeout(600)
@pytest.mark.parametrize("autoscaler", [REMOVES], indirect=True, ids=["removes"])
async def test_quarters_of_four_nodes_come_together_and_three_nodes_go(
    scene: Scene, autoscaler: Process
) -> None:
    spec = json.dumps({"spec": {"elastic": {"consolidateAfterMinutes": 1}}})
    scene.cluster.kubectl("patch", "gpunodepool", "default", "--type=merge", "-p", spec)
    group = workloads.pod_group("filler", "team-a", 4)
    scene.admin.post(f"{workloads.API}/namespaces/team-a/gpupodgroups", group)
    scene.submit_job("team-a", "filler", 4, 6000, group="filler")
    await scene.until_bound("team-a", 4)
    quarters = {"stays": 0, "one": 1, "two": 1, "three": 1}
    for name in quarters:
        # The autoscaler is not to drain nodes itself.
        kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        priority = "ballast-build" if name == "stays" else ""
        options = {"priority_class": priority, "annotations": kept | SAVES}
        scene.submit_job("team-a", name, 1, 2000, **options)
    await scene.until_bound("team-a", 8)
    bought = set(nodes(scene))
    assert set(used_nodes(scene, "team-a")) == bought
    await see_nodes_go(scene, nodes)
    assert n_restarts(scene, "team-a") == quarters
    assert not requests(scene)
    assert autoscaler.is_alive


def _books(scene: Scene) -> list[Any]:
    found: list[Any] = scene.admin.get(f"{workloads.API}/gpunodes")["items"]
    return found
