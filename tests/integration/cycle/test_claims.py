"""Whole cards by ResourceClaims, on the real API server, kube-scheduler and claim controller.

The slices are written as a DRA driver writes them. Two nodes have two cards each that a driver
publishes, and a third has four that a device plugin gives.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from tests.integration.manifests.test_versions import other_release
from tests.integration.view.test_questions import Asking, with_view
from tests.support import device_cards
from tests.support.auditor import Auditor
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.builder import OTHER_RELEASES
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.nodes import GpuNodes
from tests.support.installation import Program, install
from tests.support.session.used_rights import remember_uses
from tests.support.webhook_config import webhooks_in_force

NODES = ("dra-0000", "dra-0001")


class Claiming(Asking):
    """The scene with the webhooks besides."""

    webhooks: Program


@asynccontextmanager
async def with_driver(
    cluster: Cluster, folder: Path, *, is_shared: bool = False
) -> AsyncIterator[Claiming]:
    """team-a and team-b have a quota of two; the webhooks run.

    Claims may share the cards that the driver publishes, or get whole ones.
    """
    async with Claiming.open(cluster, n_nodes=1, cards=4) as opened:
        assert isinstance(opened, Claiming)
        admin, webhooks = opened.admin, opened.installation.webhooks(folder)
        opened.webhooks = webhooks
        admin.post(f"{device_cards.PATH}/deviceclasses", device_cards.device_class())
        await asyncio.to_thread(cluster.add_nodes, GpuNodes(2, gpus=0, prefix="dra"))
        for node in NODES:
            published = device_cards.resource_slice(node, 2, is_shared=is_shared)
            admin.post(f"{device_cards.PATH}/resourceslices", published)
        try:
            await asyncio.to_thread(webhooks.start)
            await opened.until(lambda: is_counted(opened), "the published cards to be counted")
            for project in ("team-a", "team-b"):
                for n_cards in (1, 2):
                    make(opened, project, device_cards.template(f"of-{n_cards}", n_cards))
            with webhooks_in_force(
                admin, webhooks.port, (folder / "ca.crt").read_bytes(), "team-a"
            ):
                yield opened
        finally:
            webhooks.end()


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Claiming]:
    """Ends at rest."""
    async with with_driver(cluster, tmp_path) as opened:
        yield opened
        await audited.finish()


@asynccontextmanager
async def on_release(
    plane: ControlPlane, request: pytest.FixtureRequest, folder: Path, *, is_shared: bool = False
) -> AsyncIterator[Claiming]:
    """The same on a control plane of another release."""
    with plane:
        install(plane)
        plane.start_kwok()
        cluster = Cluster(plane, "default", None)
        async with with_driver(cluster, folder, is_shared=is_shared) as opened:
            yield opened
        remember_uses(request.config, plane.logs)


def make(scene: Claiming, namespace: str, body: dict[str, Any]) -> Any:
    """Create the pod, claim or template."""
    folder = "/api/v1" if body["kind"] == "Pod" else device_cards.PATH
    return scene.admin.post(f"{folder}/namespaces/{namespace}/{body['kind'].lower()}s", body)


def claiming(name: str, n_cards: int) -> dict[str, Any]:
    return device_cards.pod(name, of_template=f"of-{n_cards}")


def is_counted(scene: Claiming) -> bool:
    said = {
        node["metadata"]["name"]: node["status"]["allocatable"].get(names.GPU_MILLI)
        for node in scene.admin.get("/api/v1/nodes")["items"]
    }
    return [said[node] for node in NODES] == ["2k", "2k"]


def rows(scene: Claiming) -> dict[str, tuple[str, int]]:
    """By pod, its node and the number of its cards."""
    return {
        row["name"]: (node["metadata"]["name"], len(row["cards"]))
        for node in scene.get("gpunodes")["items"]
        for row in node["spec"].get("rows", [])
    }


def allocations(scene: Claiming) -> dict[str, list[tuple[str, str]]]:
    """By pod, the node and name of every device that is allocated to it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for claim in scene.admin.get(f"{device_cards.PATH}/resourceclaims")["items"]:
        status = claim.get("status", {})
        for result in status.get("allocation", {}).get("devices", {}).get("results", []):
            user = status.get("reservedFor", [{"name": f"claim {claim['metadata']['name']}"}])[0]
            found.setdefault(user["name"], []).append((result["pool"], result["device"]))
    return found


def agree(scene: Claiming) -> bool:
    """Whether every row of a node of the driver has as many devices there, and all others none."""
    held = {name: row for name, row in rows(scene).items() if row[0] in NODES}
    given = {name: Counter(pool for pool, _ in each) for name, each in allocations(scene).items()}
    return given == {name: Counter({node: n}) for name, (node, n) in held.items()}


async def placed(scene: Claiming, namespace: str, name: str) -> str:
    """The reason of the pod's condition once it waits."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def reasons() -> list[str]:
        conditions = scene.admin.get(path).get("status", {}).get("conditions", [])
        return [c["reason"] for c in conditions if c["type"] == names.CONDITION_PLACED]

    await scene.until(lambda: bool(reasons()), f"why {name} waits")
    return reasons()[0]


async def until_told(scene: Claiming, reason: str, n_pods: int) -> None:
    """Until there is an event with the reason on so many pods of team-a."""

    def pods() -> set[str]:
        return {name for each, name in scene.events("team-a") if each == reason}

    await scene.until(lambda: len(pods()) == n_pods, f"{reason} on {n_pods} pods")


async def test_pod_with_a_claim_is_placed_by_ballast_where_the_driver_publishes_cards(
    scene: Claiming,
) -> None:
    made = make(scene, "team-a", claiming("two", 2))
    assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]
    await scene.until_bound("team-a", 1)
    node, n_cards = rows(scene)["two"]
    assert (node in NODES, n_cards) == (True, 2)
    await scene.until(lambda: agree(scene), "row and allocation to agree")
    make(scene, "team-b", device_cards.claim("mine", 2))
    make(scene, "team-b", device_cards.pod("direct", of_claim="mine"))
    await scene.until_bound("team-b", 1)
    await scene.until(lambda: agree(scene), "row and allocation to agree")
    # The node of the device plugin is free, and does not do.
    make(scene, "team-b", claiming("more", 1))
    assert await placed(scene, "team-b", "more") in ("InsufficientGpu", "OverFairShare")
    async with with_view(scene):
        told = await scene.answer("why", "more", "-n", "team-b")
    assert told["reason"] == await placed(scene, "team-b", "more")
    # And a pod of the device plugin's resource does not get the driver's cards.
    make(scene, "team-b", device_cards.pod("by-plugin", n_resource=1))
    await scene.until_bound("team-b", 2)
    assert rows(scene)["by-plugin"][0] not in NODES


async def test_reclaim_takes_borrowed_cards_of_claims_back(scene: Claiming) -> None:
    for ix in range(4):
        make(scene, "team-a", claiming(f"borrows-{ix}", 1))
    await scene.until_bound("team-a", 4)
    await scene.until(lambda: agree(scene), "row and allocation to agree")
    make(scene, "team-b", claiming("owner", 2))
    await scene.until_bound("team-b", 1)
    await scene.until(lambda: agree(scene), "row and allocation to agree")
    assert len((await scene.look("team-a")).bound) == 2
    await until_told(scene, "Reclaimed", 2)


async def test_cards_that_a_claim_of_no_project_holds_are_planned_around(scene: Claiming) -> None:
    scene.plane.make_namespace("elsewhere")
    made = make(scene, "elsewhere", device_cards.claim("theirs", 2))
    results = [
        {"driver": device_cards.DRIVER, "pool": NODES[0], "device": f"gpu-{ix}", "request": "gpus"}
        for ix in range(2)
    ]
    status = {"allocation": {"devices": {"results": results}}}
    path = f"{device_cards.PATH}/namespaces/elsewhere/resourceclaims/theirs/status"
    await scene.client.request("PUT", path, body=made | {"status": status})
    await scene.until(
        lambda: scene.get(f"gpunodes/{NODES[0]}").get("status", {}).get("foreign") is not None,
        "the hold to be shown",
    )
    make(scene, "team-a", claiming("two", 2))
    await scene.until_bound("team-a", 1)
    assert rows(scene)["two"] == (NODES[1], 2)


async def test_nothing_is_planned_on_cards_while_their_driver_publishes_none(
    scene: Claiming,
) -> None:
    path = f"{device_cards.PATH}/resourceslices"
    make(scene, "team-a", claiming("before", 1))
    await scene.until_bound("team-a", 1)
    for node in NODES:
        scene.admin.delete(f"{path}/{node}-{device_cards.DRIVER}")

    def said() -> list[int]:
        gpu_nodes = (scene.get(f"gpunodes/{node}")["status"] for node in NODES)
        return [status.get("healthyCards", 0) for status in gpu_nodes]

    await scene.until(lambda: said() == [0, 0], "the cards to be unhealthy")
    make(scene, "team-a", claiming("waits", 1))
    await placed(scene, "team-a", "waits")
    assert list(rows(scene)) == ["before"]
    for node in NODES:
        scene.admin.post(path, device_cards.resource_slice(node, 2))
    await scene.until(lambda: said() == [2, 2], "the cards to be healthy again")
    await scene.until_bound("team-a", 2)
    await scene.until(lambda: agree(scene), "row and allocation to agree")


async def test_pod_whose_claim_has_grown_since_it_was_admitted_is_evicted(scene: Claiming) -> None:
    path = f"{device_cards.PATH}/namespaces/team-a/resourceclaims"
    make(scene, "team-a", device_cards.claim("grows", 1))
    pod = device_cards.pod("thief", of_claim="grows")
    pod["metadata"]["annotations"] = {names.ANNOTATION_HOLD: names.HOLD}
    make(scene, "team-a", pod)
    scene.admin.delete(f"{path}/grows")
    make(scene, "team-a", device_cards.claim("grows", 2))
    scene.cluster.kubectl("annotate", "pod", "thief", "-n", "team-a", f"{names.ANNOTATION_HOLD}-")

    def is_gone() -> bool:
        pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
        return not pods and not allocations(scene)

    await scene.until(is_gone, "the pod to be evicted")
    await scene.until_told("team-a", "Unledgered", "thief")


async def test_pod_whose_claim_asked_for_no_card_when_it_was_admitted_does_not_keep_any(
    scene: Claiming,
) -> None:
    path = f"{device_cards.PATH}/namespaces/team-a/resourceclaims"
    make(scene, "team-a", claiming("beside", 1))
    await scene.until_bound("team-a", 1)
    nothing = device_cards.claim("grows", 1) | {"spec": {"devices": {}}}
    make(scene, "team-a", nothing)
    pod = device_cards.pod("thief", of_claim="grows")
    pod["spec"]["schedulingGates"] = [{"name": "example.com/own"}]
    pod["spec"]["schedulerName"] = names.SCHEDULER_NAME
    pod["metadata"]["labels"] = {"app": "thief"}
    made = make(scene, "team-a", pod)
    assert made["spec"]["schedulingGates"] == [{"name": "example.com/own"}]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "thief"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "thief"}}},
    }
    scene.admin.post("/apis/policy/v1/namespaces/team-a/poddisruptionbudgets", budget)
    scene.admin.delete(f"{path}/grows")
    make(scene, "team-a", device_cards.claim("grows", 2))
    patch = '{"spec": {"schedulingGates": null}}'
    scene.cluster.kubectl("patch", "pod", "thief", "-n", "team-a", "--type=merge", "-p", patch)

    def is_gone() -> bool:
        pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
        return [each["metadata"]["name"] for each in pods] == ["beside"] and agree(scene)

    await scene.until(is_gone, "the pod to be deleted")
    await scene.until_told("team-a", "Unledgered", "thief")


async def test_resource_that_a_device_class_stands_for_gets_published_cards(
    scene: Claiming,
) -> None:
    """`nvidia.com/gpu` is served by the device plugin on one node, by the driver on two."""
    path = f"{device_cards.PATH}/deviceclasses"
    scene.admin.delete(f"{path}/{device_cards.DRIVER}")
    scene.admin.post(path, device_cards.device_class(mapped=names.NVIDIA_GPU))
    make(scene, "team-b", claiming("by-claim", 2))
    await scene.until_bound("team-b", 1)
    make(scene, "team-b", device_cards.pod("first", n_resource=2))
    for name in ("second", "third"):
        make(scene, "team-a", device_cards.pod(name, n_resource=2))
    await scene.until_bound("team-a", 2)
    await scene.until_bound("team-b", 2)
    await scene.until(lambda: agree(scene), "row and allocation to agree")
    assert sum(node in NODES for node, _ in rows(scene).values()) == 2


async def test_claims_and_the_resource_of_a_class_on_the_newest_release(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with on_release(other_release(max(OTHER_RELEASES)), request, tmp_path) as opened:
        await test_resource_that_a_device_class_stands_for_gets_published_cards(opened)


@pytest.mark.parametrize("release", ["1.34", "1.35"])
async def test_claims_and_reclaim_on_releases_before(
    request: pytest.FixtureRequest, tmp_path: Path, release: str
) -> None:
    async with on_release(other_release(release), request, tmp_path) as opened:
        await test_reclaim_takes_borrowed_cards_of_claims_back(opened)


async def test_claim_that_is_not_understood_is_refused_with_what_to_do(scene: Claiming) -> None:
    make(scene, "team-a", claiming("understood", 1))
    await scene.until_bound("team-a", 1)

    def refusal(pod: dict[str, Any]) -> str:
        with pytest.raises(ApiRefusedError) as caught:
            make(scene, "team-a", pod)
        return str(caught.value)

    assert "create it before its pods" in refusal(device_cards.pod("a", of_template="absent"))
    body = device_cards.template("all", 1)
    exact = body["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    exact |= {"allocationMode": "All"}
    del exact["count"]
    make(scene, "team-a", body)
    assert "ask for `exactly` so many devices" in refusal(device_cards.pod("b", of_template="all"))
    # Without the webhook nothing could tell what a claim asks for.
    scene.webhooks.kill()
    assert "failed calling webhook" in refusal(claiming("dead", 1))
