"""YuniKorn's scheduler and its admission controller beside Ballast on the same nodes.

Skipped unless BALLAST_YUNIKORN names a folder with its programs (`tests/support/yunikorn.py`).
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_policies, started
from tests.support.auditor import Auditor
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Cluster
from tests.support.yunikorn import FOLDER, AdmissionController, Scheduler

pytestmark = pytest.mark.skipif(not FOLDER, reason="no YuniKorn: BALLAST_YUNIKORN names its folder")
CARDS = 4
OTHERS = "yunikorn-jobs"
PODS = f"/api/v1/namespaces/{OTHERS}/pods"


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, half of them each project's quota, with the policies."""
    async with opened_with_policies(cluster, CARDS, tmp_path) as opened:
        opened.plane.make_namespace(OTHERS)
        yield opened
        await audited.finish()


def submit(scene: Scene, namespace: str, name: str, gpus: int, scheduler: str = "") -> str:
    """Create a pod with so many GPUs; why it was refused, or nothing."""
    resources = {"cpu": "1"} | ({names.NVIDIA_GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "image": "example", "resources": {"limits": resources}}
    spec = {"containers": [container]} | ({"schedulerName": scheduler} if scheduler else {})
    body = {"metadata": {"name": name, "labels": {"applicationId": name}}, "spec": spec}
    try:
        scene.admin.post(f"/api/v1/namespaces/{namespace}/pods", body)
    except ApiRefusedError as error:
        return str(error)
    return ""


def nodes_of(scene: Scene, namespace: str) -> dict[str, str]:
    """The nodes of the pods that have one, by their names."""
    found = scene.admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in found
        if pod["spec"].get("nodeName")
    }


def scheduler_of(scene: Scene, namespace: str, name: str) -> str:
    return str(
        scene.admin.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"]["schedulerName"]
    )


@pytest.mark.timeout(400)
async def test_each_counts_the_cards_that_the_other_gave_away(scene: Scene) -> None:
    async with started(Scheduler(scene.plane)) as yunikorn:
        assert not submit(scene, OTHERS, "first", CARDS, "yunikorn")
        await scene.until(lambda: len(nodes_of(scene, OTHERS)) == 1, "YuniKorn's pod to be bound")
        await scene.until(lambda: scene.foreign_gpus() == CARDS, "its cards to be counted")
        assert not submit(scene, "team-a", "train", CARDS)
        await scene.until_bound("team-a", 1)
        theirs = nodes_of(scene, OTHERS)["first"]
        assert theirs not in nodes_of(scene, "team-a").values()
        # No card is left for it.
        assert not submit(scene, OTHERS, "second", 1, "yunikorn")
        await scene.until_decided(5)
        assert list(nodes_of(scene, OTHERS)) == ["first"]
        scene.cluster.kubectl("delete", "pod", "train", "-n", "team-a")
        await scene.until(lambda: len(nodes_of(scene, OTHERS)) == 2, "the second to be bound")
        assert yunikorn.is_alive


@pytest.mark.timeout(400)
async def test_its_admission_controller_takes_pods_of_projects_unless_they_are_excluded(
    scene: Scene,
) -> None:
    async with started(AdmissionController(scene.plane)) as yunikorn:
        assert not submit(scene, OTHERS, "first", 1)
        assert scheduler_of(scene, OTHERS, "first") == "yunikorn"
        assert "exclude the namespace" in submit(scene, "team-a", "first", 1)
        note = "yunikorn.apache.org/namespace.enableYuniKorn=false"
        scene.cluster.kubectl("annotate", "namespace", "team-a", note)
        await scene.until(lambda: not submit(scene, "team-a", "first", 1), "it to be excluded")
        await scene.until_bound("team-a", 1)
        assert yunikorn.is_alive


@pytest.mark.timeout(400)
async def test_namespaces_can_be_excluded_by_its_settings(scene: Scene) -> None:
    excluded = "^kube-system$,^ballast-,^team-a$"
    async with started(AdmissionController(scene.plane, bypassNamespaces=excluded)) as yunikorn:
        assert not submit(scene, "team-a", "first", 1)
        await scene.until_bound("team-a", 1)
        assert "exclude the namespace" in submit(scene, "team-b", "first", 1)
        assert yunikorn.is_alive
