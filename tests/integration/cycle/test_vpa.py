"""The Vertical Pod Autoscaler's admission controller and updater beside Ballast. A test writes what
its recommender would. Skipped unless `make vpa` has built them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import DEPLOYMENTS, opened_with_webhooks, started
from tests.support import vpa as programs
from tests.support.controlplane.handles import Cluster
from tests.support.vpa.running import Vpa

pytestmark = pytest.mark.skipif(
    not programs.PROGRAMS.has(), reason="no Vertical Pod Autoscaler: make vpa builds it"
)
CARDS: Final = 4
#: Half a card each: as many as the cluster has room for, and one more.
N_RUN, N_PODS = 4 * CARDS, 4 * CARDS + 1
PODS: Final = "/api/v1/namespaces/team-a/pods"
CPU: Final = "500m"


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, and replicas of team-a that use all of them; one waits. The audit
    would take the updater's evictions for Ballast's."""
    async with (
        opened_with_webhooks(cluster, CARDS, tmp_path) as opened,
        started(Vpa(opened.plane, tmp_path)) as vpa,
    ):
        opened.admin.post(DEPLOYMENTS, replicas())
        await opened.until_bound("team-a", N_RUN)
        await opened.until(lambda: len(pods(opened)) == N_PODS, "the replica that waits")
        yield opened
        assert vpa.is_alive


def replicas() -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "64Mi"}
    main = {"name": "main", "image": "example.invalid/none", "resources": {"requests": requests}}
    meta = {"labels": {"app": "llm"}, "annotations": {"gpu-fraction": "0.5"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {
            "replicas": N_PODS,
            "selector": {"matchLabels": {"app": "llm"}},
            "template": {"metadata": meta, "spec": {"containers": [main]}},
        },
    }


def recommend(scene: Scene, mode: str) -> None:
    """An autoscaler of this mode that recommends more than the template states."""
    of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    wanted = {"cpu": CPU, "memory": "256Mi"}
    bounds = ("target", "lowerBound", "upperBound", "uncappedTarget")
    main = {"containerName": "main", **dict.fromkeys(bounds, wanted)}
    body = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {"targetRef": of, "updatePolicy": {"updateMode": mode}},
        "status": {"recommendation": {"containerRecommendations": [main]}},
    }
    for more in ((), ("--subresource=status",)):
        scene.cluster.kubectl("apply", "--server-side", *more, "-f-", stdin=json.dumps(body))


def pods(scene: Scene) -> list[Any]:
    return list(scene.admin.get(PODS)["items"])


def uids(scene: Scene) -> set[str]:
    return {each["metadata"]["uid"] for each in pods(scene)}


def resources(pod: Any) -> dict[str, Any]:
    return dict(pod["spec"]["containers"][0]["resources"])


def n_with_more(scene: Scene) -> int:
    """Pods with the CPU that is recommended, which all have their share of a card."""
    found = list(map(resources, pods(scene)))
    assert all(each["limits"] == {names.GPU_MILLI: "500"} for each in found)
    return sum(each["requests"]["cpu"] == CPU for each in found)


def say_resizable(scene: Scene) -> None:
    """What a kubelet reports of running containers, without which no pod may be resized."""
    for pod in pods(scene):
        if told := pod["status"].get("containerStatuses"):
            told[0]["resources"] = resources(pod)
            patch = json.dumps({"status": {"containerStatuses": told}})
            words = ("-n", "team-a", "--subresource=status", "--type=merge", "-p", patch)
            scene.cluster.kubectl("patch", "pod", pod["metadata"]["name"], *words)


async def test_pods_that_are_recreated_have_cards_again_and_waiting_ones_are_recreated_too(
    scene: Scene,
) -> None:
    before = uids(scene)
    recommend(scene, "Recreate")
    await scene.until(lambda: n_with_more(scene) == N_PODS, "the recommendation in every pod")
    await scene.until_bound("team-a", N_RUN)
    after = uids(scene)
    assert not before & after
    await scene.until_decided(3)
    assert uids(scene) == after


async def test_pods_that_are_resized_keep_their_cards_and_waiting_ones_stay(scene: Scene) -> None:
    await scene.until(
        lambda: sum("containerStatuses" in each["status"] for each in pods(scene)) == N_RUN,
        "the containers to run",
    )
    say_resizable(scene)
    before, rows = uids(scene), (await scene.look("team-a")).rows.keys()
    recommend(scene, "InPlaceOrRecreate")
    await scene.until(lambda: n_with_more(scene) == N_RUN, "the recommendation in pods that run")
    await scene.until_decided(3)
    assert uids(scene) == before
    assert (await scene.look("team-a")).rows.keys() == rows
