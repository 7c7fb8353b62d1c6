"""Volcano's own scheduler beside Ballast on the same nodes.

Skipped unless BALLAST_VOLCANO names a folder with the program `vc-scheduler`, built from its
sources (`go build ./cmd/scheduler`; they are in no registry), and their folder `config`.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster, apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.process import Process

FOLDER = os.environ.get("BALLAST_VOLCANO", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="no Volcano: BALLAST_VOLCANO names its folder")
#: As in its Helm chart.
CONFIG = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates},
    {name: proportion}, {name: nodeorder}, {name: binpack}]
"""
NODES, CARDS = 3, 4
OTHERS = "volcano-jobs"
GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{OTHERS}/podgroups"
PODS = f"/api/v1/namespaces/{OTHERS}/pods"


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Three nodes of four cards; each project has half of them as quota. Volcano runs beside it."""
    plane = cluster.control_plane
    kinds = (Path(FOLDER) / "config" / "crd" / "volcano" / "bases").glob("*.yaml")
    apply_kinds(plane, sorted(kinds))
    plane.make_namespace(OTHERS)
    config = tmp_path / "volcano.yaml"
    config.write_text(CONFIG)
    argv = [
        str(Path(FOLDER) / "vc-scheduler"),
        f"--kubeconfig={plane.kubeconfig}",
        f"--scheduler-conf={config}",
        "--leader-elect=false",
        f"--listen-address={LOOPBACK}:{free_port()}",
        "--cache-dumper=false",
    ]
    volcano = Process("vc-scheduler", argv, plane.logs / "vc-scheduler.log")
    async with Scene.open(cluster, n_nodes=NODES, cards=CARDS) as opened:
        volcano.start()
        try:
            await opened.until(lambda: opens_queues(cluster), "Volcano's queues")
            yield opened
            assert volcano.is_alive
            await audited.finish()
        finally:
            volcano.kill()


def opens_queues(cluster: Cluster) -> bool:
    """Open the queues that the scheduler creates, as Volcano's controller does."""
    words = ("patch", "queue.scheduling.volcano.sh", "root", "default", "--subresource=status")
    try:
        cluster.kubectl(*words, "--type=merge", "-p", '{"status": {"state": "Open"}}')
    except CalledProcessError:
        return False
    return True


def submit_group(scene: Scene, name: str, n_pods: int, gpus: int) -> None:
    """A PodGroup of Volcano and its pods, in a namespace of no project."""
    group = {"minMember": n_pods, "queue": "default"}
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    scene.admin.post(GROUPS, head | {"metadata": {"name": name}, "spec": group})
    resources = {"cpu": "1", names.NVIDIA_GPU: str(gpus)}
    container = {
        "name": "main",
        "image": "example",
        "resources": {"requests": resources, "limits": resources},
    }
    for ix in range(n_pods):
        notes = {"scheduling.k8s.io/group-name": name}
        meta = {"name": f"{name}-{ix}", "annotations": notes}
        spec = {"schedulerName": "volcano", "containers": [container]}
        scene.admin.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def nodes_of(scene: Scene, path: str) -> list[str]:
    """The nodes of the pods that have one."""
    found = (pod["spec"].get("nodeName") for pod in scene.admin.get(path)["items"])
    return sorted(filter(None, found))


@pytest.mark.timeout(300)
async def test_each_counts_the_cards_that_the_other_gave_away(scene: Scene) -> None:
    submit_group(scene, "first", 2, CARDS)
    await scene.until(lambda: len(nodes_of(scene, PODS)) == 2, "Volcano's gang to be bound")
    await scene.until(lambda: scene.foreign_gpus() == 2 * CARDS, "its cards to be counted")
    theirs = set(nodes_of(scene, PODS))
    scene.submit_job("team-a", "train", 6, 1000)
    await scene.until_bound("team-a", CARDS)
    ours = "/api/v1/namespaces/team-a/pods"
    assert theirs.isdisjoint(nodes_of(scene, ours))
    # A gang for which no card is left waits, and holds nothing.
    submit_group(scene, "second", 2, CARDS)
    await scene.until_decided(5)
    assert len(nodes_of(scene, PODS)) == 2
    scene.cluster.kubectl("delete", "podgroup.scheduling.volcano.sh", "second", "-n", OTHERS)
    scene.cluster.kubectl("delete", "pod", "second-0", "second-1", "-n", OTHERS, "--force")
    scene.cluster.kubectl("delete", "pod", "first-0", "-n", OTHERS)
    await scene.until_bound("team-a", 6)
    await scene.until(lambda: scene.foreign_gpus() == CARDS, "what Volcano's pod freed")
    # No project's quota includes their cards, so its owner gets back what is within reach.
    scene.submit_job("team-b", "owner", 6, 1000)
    await scene.until_bound("team-b", 2)
    await scene.until_decided(5)
    assert len(nodes_of(scene, PODS)) == 1
