"""LeaderWorkerSet's own controller and webhooks, beside Ballast's: groups as replicas with a floor.

Skipped unless `make lws` has built it.
"""

import asyncio
import base64
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cycle.two_projects import Scene
from tests.integration.webhooks.conftest import CONFIGURATIONS
from tests.support import lws
from tests.support.auditor import Auditor
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.handles import Cluster, apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.process import Process
from tests.support.webhook_config import webhook_configurations

SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/team-a/leaderworkersets"
#: Pods of a group, each with a GPU, and groups that the whole cluster has room for.
SIZE = 2
GROUPS = 4
FLOOR = 2
_TEMPLATES = "/spec/leaderWorkerTemplate"
_INDEX = "leaderworkerset.sigs.k8s.io/group-index"


@pytest.fixture(scope="module")
def built() -> Path:
    program = lws.lws_path()
    if not os.access(program, os.X_OK):
        pytest.skip("no LeaderWorkerSet controller: make lws builds it")
    return program


@pytest.fixture
async def scene(
    cluster: Cluster, audited: Auditor, built: Path, tmp_path: Path
) -> AsyncIterator[Scene]:
    """Two nodes of four cards, half of them team-a's quota, and the webhooks for pods."""
    apply_kinds(cluster.control_plane, lws.definitions())
    async with Scene.open(cluster, n_nodes=2, cards=SIZE * GROUPS // 2) as opened:
        webhooks = opened.installation.webhooks(tmp_path)
        await asyncio.to_thread(webhooks.start)
        url = f"https://{LOOPBACK}:{webhooks.port}"
        try:
            for document in webhook_configurations(url, (tmp_path / "ca.crt").read_bytes()):
                opened.admin.post(CONFIGURATIONS, document)
            yield opened
            await audited.finish()
        finally:
            opened.cluster.kubectl("delete", "mutatingwebhookconfiguration", "ballast-webhooks")
            webhooks.kill()


@pytest.fixture
def controller(scene: Scene, built: Path, tmp_path: Path) -> Iterator[Process]:
    """LeaderWorkerSet's program with its webhooks, on loopback."""
    authority = Authority("lws-test-ca")
    pair = authority.serving(["lws"], [LOOPBACK])
    certs = tmp_path / "lws"
    certs.mkdir()
    (certs / "tls.crt").write_bytes(pair.certificate)
    (certs / "tls.key").write_bytes(pair.key)
    webhook, health = free_ports(2)
    config = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": LOOPBACK, "port": webhook, "certDir": str(certs)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
    }
    file = tmp_path / "lws.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = [str(built), f"--config={file}", f"--kubeconfig={scene.plane.kubeconfig}"]
    log = Path(os.environ.get("BALLAST_LWS_LOG", tmp_path / "lws.log"))
    process = Process("lws", argv, log, dict(os.environ))
    process.start()
    made = configurations(f"https://{LOOPBACK}:{webhook}", authority.certificate)
    try:
        for document in made:
            scene.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))
        yield process
    finally:
        process.kill()
        for document in made:
            scene.cluster.kubectl("delete", document["kind"], document["metadata"]["name"])


def configurations(url: str, ca: bytes) -> list[dict[str, Any]]:
    """The webhook configurations of the module, as its kustomization narrows and names them."""
    made = []
    for document in yaml.safe_load_all(lws.webhook_manifest().read_text("utf-8")):
        document["metadata"]["name"] = f"lws-{document['metadata']['name']}"
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            bundle = base64.b64encode(ca).decode("ascii")
            webhook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
            if webhook["rules"][0]["resources"] == ["pods"]:
                ours = {"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}
                webhook["objectSelector"] = {"matchExpressions": [ours]}
        made.append(document)
    return made


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
    scene: Scene, controller: Process
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
    assert controller.is_alive


@pytest.mark.timeout(300)
async def test_groups_whose_workers_come_later_are_replaced_within_a_full_quota(
    scene: Scene, controller: Process
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
    assert controller.is_alive


def is_made(scene: Scene, body: dict[str, Any]) -> bool:
    """Whether the LeaderWorkerSet is made now; its webhook may not answer yet."""
    try:
        scene.admin.post(SETS, body)
    except ApiRefusedError:
        return False
    return True
