"""Nodes are emptied on a real control plane: pods are moved together, and none is lost."""

from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from extender.api import names
from extender.api.reasons import Reason
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster

N_NODES, CARDS = 3, 8
#: Of pods whose moves lose next to nothing, however long a busy machine takes to move them.
SAVES = {names.ANNOTATION_CHECKPOINT: "30"}
POOL = {
    "apiVersion": "ballast.dev/v1alpha1",
    "kind": "GpuNodePool",
    "metadata": {"name": "default"},
    "spec": {
        "elastic": {
            "maxNodes": N_NODES,
            "node": {"gpus": CARDS, "cpu": 96, "memoryGiB": 512},
            "consolidateAfterMinutes": 1,
        }
    },
}


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """Three nodes of eight cards, each project may have half of them; the pool empties nodes."""
    cluster.control_plane.admin.post(f"{workloads.API}/gpunodepools", POOL)
    async with Scene.open(cluster, n_nodes=N_NODES, cards=CARDS) as opened:
        yield opened
        await audited.finish()


async def spread_quarters(scene: Scene) -> None:
    """A pod of two GPUs on each node: two Jobs of team-a, and one that is not preemptible."""
    group = workloads.pod_group("filler", "team-b", N_NODES)
    scene.admin.post(f"{workloads.API}/namespaces/team-b/gpupodgroups", group)
    scene.submit_job("team-b", "filler", N_NODES, 6000, group="filler")
    await scene.until_bound("team-b", N_NODES)
    scene.submit_job("team-a", "notebook", 1, 2000, priority_class="ballast-build")
    for name in ("one", "two"):
        scene.submit_job("team-a", name, 1, 2000, annotations=SAVES)
    await scene.until_bound("team-a", N_NODES)
    await scene.until(lambda: len(used_nodes(scene, "team-a")) == N_NODES, "a pod on each node")
    scene.cluster.kubectl("delete", "job", "filler", "-n", "team-b")


def used_nodes(scene: Scene, namespace: str) -> Counter[str]:
    """How many running pods of the namespace each node has."""
    pods = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return Counter(
        pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running"
    )


def node_of(scene: Scene, namespace: str, job: str) -> str:
    """The node on which the Job's one pod runs."""
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=job-name={job}"
    (pod,) = scene.admin.get(path)["items"]
    node: str = pod["spec"]["nodeName"]
    return node


async def see_nodes_go(scene: Scene, nodes: Callable[[Scene], list[str]]) -> None:
    """Job `filler` goes; what it leaves on four nodes comes together on the node of `stays`, and an
    autoscaler removes the others."""
    scene.cluster.kubectl("delete", "job", "filler", "-n", "team-a")
    stays = node_of(scene, "team-a", "stays")
    await scene.until(lambda: used_nodes(scene, "team-a")[stays] == 1, "the filler to go")
    await scene.until(lambda: used_nodes(scene, "team-a")[stays] > 1, "the first to move")
    await scene.until(lambda: used_nodes(scene, "team-a")[stays] == 4, "all to be on one node")
    await scene.until(lambda: len(nodes(scene)) == 1, "the other nodes to go")
    await until_looked_again(scene)
    assert nodes(scene) == [stays]
    assert used_nodes(scene, "team-a") == {stays: 4}


async def until_looked_again(scene: Scene) -> None:
    """Until the controller has looked again for a node to empty, which not every cycle does, and
    what that cycle decided has begun."""
    await scene.until_run("empty-nodes", 1)
    await scene.until_decided(2)


def n_restarts(scene: Scene, namespace: str) -> dict[str, int]:
    """How many pods of each Job were stopped."""
    jobs = scene.admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    return {job["metadata"]["name"]: job["status"].get("failed", 0) for job in jobs}


def emptied(scene: Scene, namespace: str) -> set[tuple[str, str]]:
    """(kind, name) of all that the namespace's events call emptied, or moved for that."""
    return {
        (event["regarding"]["kind"], event["regarding"]["name"])
        for event in scene.full_events(namespace)
        if event["reason"] == Reason.NODE_EMPTIED
    }


@pytest.mark.timeout(300)
async def test_work_comes_together_on_the_node_that_stays(scene: Scene) -> None:
    await spread_quarters(scene)
    before = set(used_nodes(scene, "team-a"))
    stays = node_of(scene, "team-a", "notebook")
    await scene.until(lambda: used_nodes(scene, "team-a")[stays] >= 2, "the first to move")
    everything = {stays: N_NODES}
    await scene.until(lambda: used_nodes(scene, "team-a") == everything, "all to be on one node")
    await until_looked_again(scene)
    assert used_nodes(scene, "team-a") == everything
    stopped = {"notebook": 0, "one": 1, "two": 1}
    await scene.until(lambda: n_restarts(scene, "team-a") == stopped, "two pods to be counted")
    jobs = {("Job", "one"), ("Job", "two")}
    await scene.until(lambda: len(emptied(scene, "team-a") - jobs) == 2, "an event on each pod")
    nodes = {("Node", name) for name in before - {stays}}
    await scene.until(lambda: emptied(scene, "default") == nodes, "an event on each node")
    told = emptied(scene, "team-a")
    assert jobs < told
    assert sum(kind == "Pod" for kind, _ in told) == 2
    assert n_restarts(scene, "team-a") == stopped
