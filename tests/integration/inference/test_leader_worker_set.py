"""LeaderWorkerSet's own controller and webhooks, beside Ballast's: groups as replicas with a floor.

Skipped unless `make lws` has built it.
"""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks
from tests.support import lws
from tests.support.auditor import Auditor
from tests.support.controllers import SigsController
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Cluster

pytestmark = pytest.mark.skipif(
    not lws.PROGRAMS.has(), reason="no LeaderWorkerSet controller: make lws builds it"
)
SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/team-a/leaderworkersets"
#: Pods of a group, each with a GPU, and groups that the whole cluster has room for.
SIZE = 2
GROUPS = 4
FLOOR = 2
_TEMPLATES = "/spec/leaderWorkerTemplate"
_INDEX = "leaderworkerset.sigs.k8s.io/group-index"


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, half of them team-a's quota, and the webhooks for pods."""
    async with opened_with_webhooks(cluster, SIZE * GROUPS // 2, tmp_path) as opened:
        yield opened
        await audited.finish()


def worker_set(n_groups: int) -> dict[str, Any]:
    """Inference over several pods, as its author writes it, with a floor."""
    container = {
        "name": "server",
        "image": "example.invalid/none",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {
        "metadata": {
            "labels": {"ballast.dev/workload-kind": "inference"},
            "annotations": {"ballast.dev/floor": str(FLOOR)},
        },
        "spec": {"containers": [container]},
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {
            "replicas": n_groups,
            "leaderWorkerTemplate": {"size": SIZE, "workerTemplate": template},
        },
    }


def by_its_leader() -> dict[str, Any]:
    """The same, where the leader's template alone states the floor, and workers are made once
    their leader is ready."""
    made = worker_set(FLOOR)
    spec = made["spec"]
    spec["startupPolicy"] = "LeaderReady"
    group = spec["leaderWorkerTemplate"]
    group["leaderTemplate"] = group["workerTemplate"]
    worker = json.loads(json.dumps(group["workerTemplate"]))
    del worker["metadata"]["annotations"]
    group["workerTemplate"] = worker
    return made


def groups(scene: Scene) -> dict[str, set[str]]:
    """UIDs of the pods with a node, by the index of their group."""
    found: dict[str, set[str]] = {}
    for pod in scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]:
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") and not meta.get("deletionTimestamp"):
            found.setdefault(meta["labels"][_INDEX], set()).add(meta["uid"])
    return found


def replicas(scene: Scene, state: str) -> int:
    """How many replicas the metric has in this state."""
    of = r'^ballast_replicas\{owner="team-a/leaderworkerset-llm"'
    found = re.search(rf'{of},state="{state}"\}} (\S+)$', scene.metrics(), re.M)
    return int(float(found[1])) if found else 0


def scale(scene: Scene, n: int) -> None:
    patch = json.dumps({"spec": {"replicas": n}})
    words = ("patch", "leaderworkerset", "llm", "-n", "team-a", "--type=merge", "-p", patch)
    scene.cluster.kubectl(*words)


@pytest.mark.timeout(300)
async def test_groups_are_gangs_of_which_the_floor_stays_and_others_go_whole(
    scene: Scene, worker_sets: SigsController
) -> None:
    await scene.until(lambda: is_made(scene, worker_set(FLOOR)), "the webhooks to answer")
    await scene.until_bound("team-a", SIZE * FLOOR)
    floor = groups(scene)
    scale(scene, GROUPS)
    await scene.until_bound("team-a", SIZE * GROUPS)
    await scene.until(
        lambda: (replicas(scene, "kept"), replicas(scene, "surge")) == (FLOOR, GROUPS - FLOOR),
        "the floor to be counted",
    )
    scene.submit_job("team-b", "one", 1, 1000)
    await scene.until_bound("team-b", 1)
    # A GPU is needed, and a group of two leaves whole.
    await scene.until_bound("team-a", SIZE * (GROUPS - 1))
    assert all(len(pods) == SIZE for pods in groups(scene).values())
    scene.submit_job("team-b", "rest", GROUPS * SIZE // 2 - 1, 1000)
    await scene.until_bound("team-b", GROUPS * SIZE // 2)
    await scene.until_bound("team-a", SIZE * FLOOR)
    assert groups(scene) == floor
    await scene.until(lambda: replicas(scene, "waiting") == GROUPS - FLOOR, "the rest to wait")
    assert worker_sets.is_alive


@pytest.mark.timeout(300)
async def test_groups_whose_workers_come_later_are_replaced_within_a_full_quota(
    scene: Scene, worker_sets: SigsController
) -> None:
    await scene.until(lambda: is_made(scene, by_its_leader()), "the webhooks to answer")
    await scene.until_bound("team-a", SIZE * FLOOR)
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be counted")
    scene.submit_job("team-b", "rest", GROUPS * SIZE // 2, 1000)
    await scene.until_bound("team-b", GROUPS * SIZE // 2)
    before = set[str]().union(*groups(scene).values())
    image = [
        {
            "op": "replace",
            "path": f"{_TEMPLATES}/{each}/spec/containers/0/image",
            "value": "example.invalid/next",
        }
        for each in ("leaderTemplate", "workerTemplate")
    ]
    words = ("patch", "leaderworkerset", "llm", "-n", "team-a", "--type=json", "-p")
    scene.cluster.kubectl(*words, json.dumps(image))

    def are_others() -> bool:
        found = groups(scene)
        is_whole = sorted(map(len, found.values())) == [SIZE] * FLOOR
        return is_whole and before.isdisjoint(set[str]().union(*found.values()))

    await scene.until(are_others, "every pod to be another")
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
    assert len((await scene.look("team-b")).bound) == GROUPS * SIZE // 2
    assert worker_sets.is_alive


def is_made(scene: Scene, body: dict[str, Any]) -> bool:
    """Whether the LeaderWorkerSet is made now; its webhook may not answer yet."""
    try:
        scene.admin.post(SETS, body)
    except ApiRefusedError:
        return False
    return True
