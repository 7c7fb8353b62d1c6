"""JupyterHub with KubeSpawner, beside everything of ours. Skipped unless `make jupyterhub` has
installed it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    CARDS,
    HALF,
    NAMESPACE,
    container,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_running,
)
from tests.support import jupyterhub as program
from tests.support.jupyterhub.running import JupyterHub

pytestmark = [
    pytest.mark.skipif(
        not program.PROGRAMS.has(), reason="no JupyterHub: make jupyterhub installs it"
    ),
    pytest.mark.timeout(300),
]
PAGE = Path(__file__).parents[3] / "docs" / "platforms.md"
MakeHub = Callable[..., AbstractAsyncContextManager[JupyterHub]]
FRACTION = {"extra_annotations": {"gpu-fraction": "0.5"}}
#: What the Helm chart zero-to-jupyterhub sets as installed.
CHART_SCHEDULER = {"scheduler_name": "hub-user-scheduler"}
CHART_INIT = {
    "init_containers": [
        {
            "name": "block-cloud-metadata",
            "image": "example.invalid/network-tools",
            "command": ["iptables", "--append", "OUTPUT"],
            "securityContext": {
                "privileged": True,
                "runAsUser": 0,
                "capabilities": {"add": ["NET_ADMIN"]},
            },
        }
    ]
}
CHART_PLACES = {
    "node_affinity_preferred": [
        {
            "weight": 100,
            "preference": {
                "matchExpressions": [
                    {"key": "hub.jupyter.org/node-purpose", "operator": "In", "values": ["user"]}
                ]
            },
        }
    ],
    "tolerations": [
        {
            "key": "hub.jupyter.org/dedicated",
            "operator": "Equal",
            "value": "user",
            "effect": "NoSchedule",
        }
    ],
}
KEPT = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}


def gpus(n: int | str) -> dict[str, Any]:
    return {"extra_resource_limits": {names.NVIDIA_GPU: n}}


def profiles(**overrides: dict[str, Any]) -> dict[str, Any]:
    """A list of profiles, by their slugs."""
    listed = [
        {"display_name": slug, "slug": slug, "kubespawner_override": override}
        for slug, override in overrides.items()
    ]
    return {"profile_list": listed}


@pytest.fixture
def make_hub(scene: Scene, tmp_path: Path) -> MakeHub:
    """A hub with this configuration of KubeSpawner."""

    @asynccontextmanager
    async def make(**spawner: Any) -> AsyncIterator[JupyterHub]:
        async with started(JupyterHub(scene.plane, NAMESPACE, tmp_path, **spawner)) as hub:
            yield hub

    return make


def of_page() -> dict[str, Any]:
    """The configuration of KubeSpawner that the chart makes of the values on the page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    (values,) = (found for each in blocks if "singleuser" in (found := yaml.safe_load(each)))
    keys = {
        "profileList": "profile_list",
        "extraLabels": "extra_labels",
        "startTimeout": "start_timeout",
    }
    return {trait: values["singleuser"][key] for key, trait in keys.items()}


def of_user(user: str) -> dict[str, str]:
    return {"hub.jupyter.org/username": user}


async def until_ready(scene: Scene, hub: JupyterHub, user: str, server: str = "") -> None:
    def ready() -> bool:
        return bool(hub.servers(user).get(server, {}).get("ready"))

    await scene.until(ready, f"the server {user}/{server} to be ready")


async def until_stopped(scene: Scene, hub: JupyterHub, user: str) -> None:
    await scene.until(lambda: not hub.servers(user), f"the server of {user} to be stopped")


async def messages(hub: JupyterHub, user: str) -> str:
    """What the page of a starting server shows until it runs or has failed."""
    shown = await asyncio.to_thread(hub.progress, user)
    return "\n".join(each["message"] for each in shown)


async def test_notebooks_are_interactive_work_of_their_user(
    scene: Scene, make_hub: MakeHub
) -> None:
    async with make_hub(**of_page()) as hub:
        await owner_returns(scene)
        scene.submit_job(NAMESPACE, "train", HALF, 1000)
        await until_running(scene, HALF)
        hub.spawn("ada", profile="half")
        hub.spawn("ada", "second", profile="half")
        hub.spawn("grace", profile="two")
        await until_ready(scene, hub, "ada")
        await until_ready(scene, hub, "ada", "second")
        await until_ready(scene, hub, "grace")
        for user, n_pods in (("ada", 2), ("grace", 1)):
            found = pods(scene, of_user(user) | {names.LABEL_USER: user})
            assert len(found) == n_pods
            assert {each["spec"]["priorityClassName"] for each in found} == {"ballast-interactive"}
        status, _ = hub.ask("DELETE", "users/grace/server")
        assert status in (202, 204)
        await until_stopped(scene, hub, "grace")


async def test_a_notebook_that_did_not_start_in_time_says_why_each_time(
    scene: Scene, make_hub: MakeHub
) -> None:
    async with make_hub(start_timeout=12, **FRACTION) as hub:
        await owner_returns(scene)
        scene.submit_job(NAMESPACE, "train", HALF, 1000, labels=KEPT)
        await until_running(scene, HALF)
        for _ in range(2):
            hub.spawn("ada")
            shown = await messages(hub, "ada")
            assert "above its fair share of 4 GPUs" in shown
            assert "It starts when work of the project ends" in shown
            assert "Spawn failed" in shown
            assert not pods(scene, of_user("ada"))


async def test_a_reclaimed_notebook_is_stopped_and_starts_again_when_its_user_asks(
    scene: Scene, make_hub: MakeHub
) -> None:
    async with make_hub(
        **profiles(all=gpus(CARDS // 2), kept=gpus(HALF) | {"extra_labels": KEPT})
    ) as hub:
        hub.spawn("grace", profile="kept")
        hub.spawn("ada", profile="all")
        await until_ready(scene, hub, "ada")
        await until_ready(scene, hub, "grace")
        await owner_returns(scene)
        await until_stopped(scene, hub, "ada")
        assert hub.servers("grace")[""]["ready"]
        hub.spawn("ada", profile="all")
        await scene.until(lambda: len(pods(scene, of_user("ada"))) == 1, "the pod to wait")
        await scene.until_decided(3)
        owner_leaves(scene)
        await until_ready(scene, hub, "ada")


@pytest.mark.parametrize(
    ("chart", "why", "cure"),
    [
        (CHART_SCHEDULER, "may not allocate GPUs in namespace team-a", {"scheduler_name": None}),
        (CHART_INIT, "privileged", {"init_containers": []}),
    ],
)
async def test_what_the_chart_sets_is_refused_and_a_profile_leaves_it_out(
    scene: Scene, make_hub: MakeHub, chart: dict[str, Any], why: str, cure: dict[str, Any]
) -> None:
    listed = profiles(wrong=FRACTION, right=FRACTION | cure, cpu={})
    async with make_hub(**chart, **listed) as hub:
        hub.ask("POST", "users/ada")
        status, _ = hub.ask("POST", "users/ada/server", {"profile": "wrong"})
        assert status == 500
        assert why in hub.read_log()
        hub.spawn("ada", profile="right")
        await until_ready(scene, hub, "ada")
        hub.spawn("grace", profile="cpu")
        await scene.until(lambda: len(pods(scene, of_user("grace"))) == 1, "the pod")
        assert names.LABEL_PROJECT not in pods(scene, of_user("grace"))[0]["metadata"]["labels"]


async def test_a_restart_of_the_hub_ends_a_server_that_waits(
    scene: Scene, make_hub: MakeHub
) -> None:
    async with make_hub(http_timeout=3, **gpus(1)) as hub:
        await owner_returns(scene)
        scene.submit_job(NAMESPACE, "train", HALF, 1000, labels=KEPT)
        await until_running(scene, HALF)
        hub.spawn("ada")
        await scene.until(lambda: len(pods(scene, of_user("ada"))) == 1, "the pod to wait")
        await asyncio.to_thread(hub.restart)
        await until_stopped(scene, hub, "ada")
        await scene.until(lambda: not pods(scene, of_user("ada")), "the pod to be deleted")


async def test_the_culler_frees_the_cards_of_an_idle_notebook(
    scene: Scene, make_hub: MakeHub, tmp_path: Path
) -> None:
    async with make_hub(**profiles(whole=gpus(HALF), small=FRACTION)) as hub:
        await owner_returns(scene)
        hub.spawn("ada", profile="whole")
        await until_ready(scene, hub, "ada")
        hub.spawn("grace", profile="small")
        await scene.until(lambda: len(pods(scene, of_user("grace"))) == 1, "the pod to wait")
        culler = hub.culler(tmp_path, "--timeout=1", "--cull-every=1")
        culler.start()
        try:
            await until_ready(scene, hub, "grace")
        finally:
            culler.kill()
        assert not hub.servers("ada")


async def test_placeholders_give_way_to_users_and_come_back(
    scene: Scene, make_hub: MakeHub
) -> None:
    mine = {"component": "user-placeholder"}
    priority = {"metadata": {"name": "hub-user-placeholder-priority"}, "value": -10}
    scene.admin.ensure("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    template = {
        "metadata": {"labels": mine},
        "spec": {
            "priorityClassName": "hub-user-placeholder-priority",
            "terminationGracePeriodSeconds": 0,
            "containers": [container(1)],
        },
    }
    body = {
        "metadata": {"name": "user-placeholder"},
        "spec": {
            "podManagementPolicy": "Parallel",
            "replicas": HALF,
            "selector": {"matchLabels": mine},
            "serviceName": "user-placeholder",
            "template": template,
        },
    }
    async with make_hub(**profiles(two=gpus(2)), **CHART_PLACES) as hub:
        await owner_returns(scene)
        scene.admin.post(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets", body)
        await until_running(scene, HALF, mine)
        for n, user in enumerate(("ada", "grace"), start=1):
            hub.spawn(user, profile="two")
            await until_ready(scene, hub, user)
            await until_running(scene, HALF - 2 * n, mine)
        hub.ask("DELETE", "users/grace/server")
        await until_running(scene, 2, mine)


async def test_a_home_gets_its_volume_on_the_node_with_the_card(
    scene: Scene, make_hub: MakeHub
) -> None:
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    late = {"provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"}
    scene.admin.ensure(classes, {"metadata": {"name": "late"}, **late})
    storage = {
        "storage_pvc_ensure": True,
        "storage_class": "late",
        "storage_capacity": "1Gi",
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}}],
        "volume_mounts": [{"name": "home", "mountPath": "/home"}],
    }
    async with make_hub(**FRACTION, **storage) as hub:
        hub.spawn("ada")
        await provision(scene, "claim-ada")
        await until_ready(scene, hub, "ada")
        (first,) = running(scene).values()
        hub.ask("DELETE", "users/ada/server")
        await until_stopped(scene, hub, "ada")
        hub.spawn("ada")
        await until_ready(scene, hub, "ada")
        assert list(running(scene).values()) == [first]


async def provision(scene: Scene, name: str) -> None:
    """What a provisioner and the binder do once kube-scheduler has chosen the claim's node."""
    path = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{name}"

    def node() -> str:
        notes = scene.admin.get(path)["metadata"].get("annotations") or {}
        return str(notes.get("volume.kubernetes.io/selected-node", ""))

    await scene.until(lambda: bool(node()), "kube-scheduler to choose a node")
    meta = scene.admin.get(path)["metadata"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node()]}
    sizes = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    spec = sizes | {
        "storageClassName": "late",
        "csi": {"driver": "example.com", "volumeHandle": "disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": NAMESPACE,
            "name": name,
            "uid": meta["uid"],
        },
    }
    scene.admin.post("/api/v1/persistentvolumes", {"metadata": {"name": "disk"}, "spec": spec})
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    words = ("patch", "pvc", name, "-n", NAMESPACE, "--type=merge", "-p")
    bound = {"metadata": done, "spec": {"volumeName": "disk"}}
    scene.cluster.kubectl(*words, json.dumps(bound))
    status = {"status": sizes | {"phase": "Bound"}}
    scene.cluster.kubectl(*words, json.dumps(status), "--subresource=status")
