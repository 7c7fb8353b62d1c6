"""What an agent may do with the rights it is installed with, on a real API server.

Its login is a token that is bound to a pod of one node, as kubelet asks for it.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row
from extender.api.objects import ObjectMeta
from extender.api.reasons import Reason
from extender.kube.client import Client
from extender.kube.errors import RequestRefused
from extender.kube.recorder import EventRecorder
from extender.kube.resources import GPU_NODES
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Breach
from gpu_shim.agent.cards import Cards
from gpu_shim.agent.enforce import GRACE_S, Enforcer, EvictionSettings, Sources
from gpu_shim.agent.health import Health
from gpu_shim.agent.holders import Holders, Style, holder_name, holder_pod
from gpu_shim.agent.login import node_uid
from gpu_shim.agent.podresources import KubeletError, PodResources
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library
from tests.conftest import fresh_namespace
from tests.integration.gpu_shim.test_podresources import Kubelet
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.controlplane.ports import free_port
from tests.support.fakecuda import UUID
from tests.support.fakecuda import Card as FakeCard
from tests.support.installation import MANIFESTS
from tests.support.sight import until

pytestmark = pytest.mark.controlplane

NAMESPACE = "ballast-node"
STYLE = Style("node-a", NAMESPACE, "registry.example/pause:1")
IN_FORCE_S = 90.0
#: No kubelet reports for these nodes; pods stay on them all the same, and with them logins.
STAYING = [{"operator": "Exists"}]
Body = dict[str, Any]


@dataclass(slots=True)
class Rights:
    """An API server with the agent's manifests, and the login of the agent of node-a."""

    api: Api
    agent: str

    def try_(self, *arguments: str, body: Body | None = None, by: str = "") -> str:
        """The words with which the API server refuses; empty when it does not."""
        try:
            self.api.kubectl(*arguments, stdin=json.dumps(body or {}), kubeconfig=by or self.agent)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""

    def create(self, body: Body) -> str:
        """Why the agent may not create this; nothing is stored."""
        return self.try_("create", "--dry-run=server", "-f", "-", body=body)

    def pod(self, name: str, node: str) -> str:
        """Make a tenant's pod on a node; its uid."""
        containers = [{"name": "c", "image": "none.example/x"}]
        spec = {"nodeName": node, "containers": containers, "tolerations": STAYING}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        where = ("-n", self.api.namespace)
        self.api.kubectl("create", *where, "-f", "-", stdin=json.dumps(body))
        return self.api.kubectl("get", "pod", name, *where, "-o", "jsonpath={.metadata.uid}")


def login(api: Api, *bound: str) -> str:
    """A kubeconfig with a token of the agent's account, bound as said."""
    token = api.kubectl("create", "token", "ballast-agent", "-n", NAMESPACE, *bound).strip()
    document = yaml.safe_load(Path(api.kubeconfig).read_text())
    document["users"][0]["user"] = {"token": token}
    path = api.control_plane.work / f"agent-{len(bound)}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[Rights]:
    api = Api(control_plane, fresh_namespace(control_plane))
    folder = str(MANIFESTS / "gpu-shim")
    api.kubectl("apply", "--server-side", "-k", folder)
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{each}"}} for each in "ab"
    ]
    api.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, nodes)))
    agent = holder_pod(STYLE, 0) | {"apiVersion": "v1", "kind": "Pod"}
    agent["spec"]["tolerations"] = STAYING
    # No holder by its labels, or the program deletes it, and the login ends when the API server's
    # cache of tokens forgets it.
    agent["metadata"] = {"name": "agent", "namespace": NAMESPACE}
    agent["spec"]["serviceAccountName"] = "ballast-agent"
    wait_for(
        lambda: "default" in api.kubectl("get", "serviceaccounts", "-n", NAMESPACE),
        IN_FORCE_S,
        "the namespace's account",
    )
    api.kubectl("create", "-f", "-", stdin=json.dumps(agent))
    made = Rights(api, login(api, "--bound-object-kind=Pod", "--bound-object-name=agent"))
    other = gpu_node("node-b")
    wait_for(lambda: "own node only" in made.create(other), IN_FORCE_S, "the policies")
    try:
        yield made
    finally:
        api.kubectl("delete", "--ignore-not-found", "-k", folder, "--wait=false")


def gpu_node(name: str, **spec: Any) -> Body:
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": name},
        "spec": {"rows": [], **spec},
    }


def test_an_agent_makes_the_gpu_node_of_its_node_and_no_row_in_it(rights: Rights) -> None:
    assert rights.create(gpu_node("node-a")) == ""
    assert "own node only" in rights.create(gpu_node("node-b"))
    row = {"uid": "u", "namespace": "n", "name": "p", "state": "bound"}
    row["cards"] = [{"index": 0, "milli": 1000, "memoryMiB": 1}]  # type: ignore[assignment]
    assert "without rows" in rights.create(gpu_node("node-a", rows=[row]))


async def test_an_agent_reports_its_own_cards_only_and_never_writes_rows(rights: Rights) -> None:
    status = {"status": {"devices": [{"index": 0, "memoryMiB": 1}]}}
    async with await rights.api.client() as admin, await Client.connect(rights.agent) as agent:
        for name in ("node-a", "node-b"):
            await admin.create(GPU_NODES, gpu_node(name))
        await agent.merge_patch(GPU_NODES, "node-a", status, subresource="status")
        with pytest.raises(RequestRefused, match="own node only"):
            await agent.merge_patch(GPU_NODES, "node-b", status, subresource="status")
        with pytest.raises(RequestRefused, match="cannot patch resource"):
            await agent.merge_patch(GPU_NODES, "node-a", {"spec": {"rows": []}})
        for name in ("node-a", "node-b"):
            await admin.delete(GPU_NODES, name)


def test_an_agent_deletes_pods_of_its_own_node_only(rights: Rights) -> None:
    where = ("--dry-run=server", "-n", rights.api.namespace)
    for name, node in (("here", "node-a"), ("there", "node-b")):
        rights.pod(name, node)
    assert rights.try_("delete", "pod", "here", *where) == ""
    assert "own node only" in rights.try_("delete", "pod", "there", *where)


def test_a_token_that_names_no_node_may_do_nothing(rights: Rights) -> None:
    bare = login(rights.api)
    body = gpu_node("node-a")
    assert "own node only" in rights.try_("create", "-f", "-", body=body, by=bare)


def holder(**spec: Any) -> Body:
    body = {"apiVersion": "v1", "kind": "Pod", **holder_pod(STYLE, 3)}
    body["spec"] |= spec
    return body


def with_container(**fields: Any) -> Body:
    body = holder()
    body["spec"]["containers"][0] |= fields
    return body


REFUSED = {
    "another node": holder(nodeName="node-b"),
    "no node": {**holder(), "spec": {**holder()["spec"], "nodeName": ""}},
    "another node's end": {
        **holder(),
        "metadata": {
            **holder_pod(Style("node-b", NAMESPACE, "i", "u"), 3)["metadata"],
            "name": holder_name("node-a", 3),
        },
    },
    "another name": {**holder(), "metadata": {"name": "x", "namespace": NAMESPACE}},
    "the host's processes": holder(hostPID=True),
    "the host's network": holder(hostNetwork=True),
    "a path of the host": holder(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "an account": holder(automountServiceAccountToken=True),
    "the user root": holder(securityContext={"runAsUser": 0}),
    "an init container": holder(initContainers=[{"name": "i", "image": "i"}]),
    "privileges": with_container(securityContext={"privileged": True}),
    "a capability": with_container(
        securityContext={
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
        }
    ),
    "a port": with_container(ports=[{"containerPort": 80}]),
}


def test_the_holder_pods_that_the_agent_makes_are_allowed(rights: Rights) -> None:
    assert rights.create(holder()) == ""


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_holder_pod_is_refused_with(rights: Rights, body: Body) -> None:
    assert "node agent makes" in (why := rights.create(body)) or "holder pod" in why


def test_a_token_that_kubelet_asked_for_names_its_node(rights: Rights) -> None:
    uid = rights.api.kubectl("get", "node", "node-a", "-o", "jsonpath={.metadata.uid}")
    (user,) = yaml.safe_load(Path(rights.agent).read_text())["users"]
    assert node_uid(user["user"]["token"], "node-a") == uid != ""
    assert node_uid(user["user"]["token"], "node-b") == ""
    body = {"apiVersion": "v1", "kind": "Pod"}
    body |= holder_pod(Style("node-a", NAMESPACE, "none.example/pause", uid), 3)
    assert rights.create(body) == ""


@pytest.mark.parametrize("is_owned", [True, False])
def test_drain_passes_a_holder_that_its_node_owns(rights: Rights, is_owned: bool) -> None:
    node = f"drained-{is_owned}".lower()
    api = rights.api
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    api.kubectl("create", "-f", "-", stdin=json.dumps(body))
    uid = api.kubectl("get", "node", node, "-o", "jsonpath={.metadata.uid}")
    style = Style(node, NAMESPACE, "none.example/pause", uid if is_owned else "")
    held = {"apiVersion": "v1", "kind": "Pod", **holder_pod(style, 0)}
    api.kubectl("create", "-f", "-", stdin=json.dumps(held))
    said = rights.try_(
        "drain", node, "--ignore-daemonsets", f"--timeout={IN_FORCE_S:.0f}s", by=api.kubeconfig
    )
    left = api.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name")
    name = held["metadata"]["name"]
    if is_owned:
        assert said == ""
        assert name not in left
    else:
        assert "declare no controller" in said
        assert name in left


async def test_the_program_asks_the_driver_and_reports_cards_and_what_is_wrong_with_them(
    rights: Rights, native: Path, driver: Path, place: Path
) -> None:
    card = FakeCard(place / "card")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpu_shim", "--node=node-a", f"--libraries={native}"),
        *(f"--nvml={driver}/libnvidia-ml.so.1", f"--state={place}"),
        *(f"--kubeconfig={rights.agent}", f"--listen=127.0.0.1:{free_port()}"),
        env=os.environ | {"FAKECUDA_STATE": str(card.path)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        node = await told(rights, '"type": "CardsHealthy"')
        device = {"index": 0, "uuid": UUID, "memoryMiB": 16384, "model": "Fake-GPU"}
        assert (node["metadata"]["name"], node["status"]["devices"]) == ("node-a", [device])
        states = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert states == dict.fromkeys(("CardsHealthy", "DriverKnown", "PodsWithinBounds"), "True")
        card.ail(xid=79, recovery=2)
        node = await told(rights, '"status": "False"')
        assert node["status"]["devices"] == [device | {"health": "Unhealthy"}]
        (ill, *_) = node["status"]["conditions"]
        assert ill["reason"] == "CardUnhealthy"
        assert ill["message"] == f"{UUID}: Xid 79: fell off the bus: reboot the node"
    finally:
        process.terminate()
    assert await process.wait() == 0


async def told(rights: Rights, what: str) -> Body:
    """The only GpuNode, as soon as it holds this."""
    text = ""

    async def is_told() -> bool:
        nonlocal text
        text = await asyncio.to_thread(rights.api.kubectl, "get", "gpunodes", "-o", "json")
        return what in text

    await until(is_told, IN_FORCE_S, lambda: f"{what} in {text}")
    (node,) = json.loads(text)["items"]
    found: Body = node
    return found


@dataclass(slots=True)
class Holding:
    """An agent whose cards are a device plugin's, with one pod on half of the first card."""

    rights: Rights
    kubelet: Kubelet
    agent: Agent
    holders: Holders
    name: str = holder_name("node-a", 0)

    async def pods(self) -> str:
        """Names of the holder pods that there are."""
        get = ("get", "pods", "-n", NAMESPACE, "-o", "name")
        return await asyncio.to_thread(self.rights.api.kubectl, *get)


@pytest.fixture
async def holding(rights: Rights, native: Path, place: Path) -> AsyncIterator[Holding]:
    kubelet = Kubelet(place / "kubelet.sock")
    await kubelet.start()
    devices = [Device(index=at, memory_mib=16384, uuid=f"GPU-{at}") for at in range(2)]
    arbiter = Arbiter(Library(native / "libballast-pages.so"))
    agent = Agent("node-a", devices, arbiter, native, place)
    cards = Cards(agent, devices, Health(place / "health", "b"), is_by_plugin=True)
    cards.begin(None)
    share = [CardShare(0, 500, 8192)]
    row = Row(uid="u", namespace="team", name="p", cards=share, state="reserved")
    agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=[row])))
    async with await Client.connect(rights.agent, user_agent="ballast-agent") as client:
        holders = Holders(client, PodResources(kubelet.socket), cards, STYLE)
        yield Holding(rights, kubelet, agent, holders)
        agent.apply(None)
        await holders.keep()
    await kubelet.stop()


async def test_a_shared_card_is_held_and_its_index_means_what_kubelet_gave(
    holding: Holding,
) -> None:
    agent, name = holding.agent, holding.name
    await holding.holders.keep()
    assert agent.rejected == {"u": "card 0 is not on this node, or not ours yet"}
    assert name in await holding.pods()
    holding.kubelet.pods = [(NAMESPACE, name, "nvidia.com/gpu", ("GPU-1",))]
    await holding.holders.keep()
    assert agent.tenants["u"].cards == (ContainerCard("GPU-1", 8192),)
    assert [device.uuid for device in agent.devices] == ["GPU-1", "GPU-0"]
    agent.apply(GpuNode(metadata=ObjectMeta(name="n")))
    holding.kubelet.pods = []
    await holding.holders.keep()
    assert name not in await holding.pods()


async def test_while_kubelet_is_away_what_is_known_stays_and_newly_shared_cards_wait(
    holding: Holding,
) -> None:
    agent, first = holding.agent, holding.agent.ledger
    holding.kubelet.pods = [(NAMESPACE, holding.name, "nvidia.com/gpu", ("GPU-1",))]
    await holding.holders.keep()
    await holding.kubelet.stop()
    row = Row(uid="v", namespace="team", name="q", cards=[CardShare(1, 500, 64)], state="reserved")
    assert first is not None
    agent.apply(
        GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=[*first.spec.rows, row]))
    )
    with pytest.raises(KubeletError):
        await holding.holders.keep()
    assert agent.tenants["u"].cards == (ContainerCard("GPU-1", 8192),)
    assert agent.rejected == {"v": "card 1 is not on this node, or not ours yet"}
    agent.apply(first)
    await holding.kubelet.start()
    is_back = False
    while not is_back:
        with contextlib.suppress(KubeletError):
            await holding.holders.keep()
            is_back = True
        await asyncio.sleep(0.05)


async def test_a_holder_that_kubelet_refuses_is_told_of_and_not_made_again_at_once(
    holding: Holding,
) -> None:
    await holding.holders.keep()
    where = ("-n", NAMESPACE, "--subresource=status", "--type=merge")
    failed = ("-p", '{"status":{"phase":"Failed"}}')
    await asyncio.to_thread(
        holding.rights.api.kubectl, "patch", "pod", holding.name, *where, *failed
    )
    for _ in range(2):
        await holding.holders.keep()
    assert holding.name not in await holding.pods()
    assert holding.holders.problems() == [
        f"kubelet refused {holding.name} a GPU: does NVIDIA's device plugin run?"
    ]


async def test_a_pod_beyond_its_bounds_is_told_of_and_evicted(
    rights: Rights, native: Path, place: Path
) -> None:
    uid = await asyncio.to_thread(rights.pod, "greedy", "node-a")
    library = Library(native / "libballast-pages.so")
    agent = Agent("node-a", [], Arbiter(library), native, place)
    claim = Claim(uid, Fraction(0), Fraction(1))
    agent.tenants[uid] = SharingPod(uid, rights.api.namespace, "greedy", claim, ())
    async with await Client.connect(rights.agent, user_agent="ballast-agent") as client:
        events = EventRecorder(client, "agent")
        writing = asyncio.create_task(events.run())
        eviction = EvictionSettings(is_on=True, after_s=0)
        enforcer = Enforcer(client, agent, Sources(), eviction, events)
        found = Breach(uid, Reason.GPU_MEMORY_OVER_CAP, "has 2 MiB, may have 1")
        await enforcer.act([Breach(uid, Reason.GPU_UNPROTECTED, "started bare"), found])
        await enforcer.act([found])
        where = ("-n", rights.api.namespace)

        async def reasons() -> list[str]:
            get = ("get", "events.events.k8s.io", *where, "-o", "json")
            listed = json.loads(await asyncio.to_thread(rights.api.kubectl, *get))["items"]
            ours = [each for each in listed if each.get("reportingInstance") == "agent"]
            return sorted(each["reason"] for each in ours)

        wanted = [Reason.GPU_MEMORY_OVER_CAP, Reason.GPU_UNPROTECTED]

        async def are_told() -> bool:
            return await reasons() == wanted

        await until(are_told, IN_FORCE_S, lambda: f"{wanted}")
        writing.cancel()
    assert await reasons() == wanted
    assert enforcer.n_evicted == 1
    pods = await asyncio.to_thread(rights.api.kubectl, "get", "pods", *where, "-o", "json")
    (greedy,) = [each for each in json.loads(pods)["items"] if each["metadata"]["name"] == "greedy"]
    assert greedy["metadata"]["deletionGracePeriodSeconds"] == GRACE_S
