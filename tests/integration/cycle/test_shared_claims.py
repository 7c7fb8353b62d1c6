"""Shares of cards by ResourceClaims (consumable capacity), on the real API server, kube-scheduler
and claim controller. Two nodes have two cards of 80 GiB each that claims may share.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.api import names
from extender.api.units import parse_memory
from tests.integration.cycle.test_claims import (
    NODES,
    Claiming,
    make,
    on_release,
    placed,
    rows,
    until_told,
    with_driver,
)
from tests.integration.manifests.test_versions import other_release
from tests.integration.view.test_questions import with_view
from tests.support import device_cards
from tests.support.auditor import Auditor
from tests.support.controlplane.builder import OTHER_PROGRAMS
from tests.support.controlplane.handles import Cluster

GIB = 1024
GATE = "DRAConsumableCapacity"
#: Of node and device: pod and MiB.
Held = dict[str, list[tuple[str, int]]]


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Claiming]:
    """Ends at rest."""
    async with with_driver(cluster, tmp_path, is_shared=True) as opened:
        make_templates(opened)
        await list_the_other_way_round(opened)
        yield opened
        await audited.finish()


async def list_the_other_way_round(scene: Claiming) -> None:
    """kube-scheduler takes cards as they are listed, and plans as they were listed first: so a
    pod's card is another than the plan's."""
    before = by_index(scene)
    for node in NODES:
        path = f"{device_cards.PATH}/resourceslices"
        scene.admin.delete(f"{path}/{node}-{device_cards.DRIVER}")
        listed = device_cards.resource_slice(node, 2, is_shared=True, is_reversed=True)
        scene.admin.post(path, listed)
    await scene.until(lambda: by_index(scene) == before, "the cards to be counted again")


def by_index(scene: Claiming) -> dict[str, list[Any]]:
    """The cards of each node."""
    found = {each["metadata"]["name"]: each for each in scene.get("gpunodes")["items"]}
    return {node: found[node]["status"].get("devices", []) for node in NODES}


def make_templates(scene: Claiming) -> None:
    for project in ("team-a", "team-b"):
        for gib in (10, 20, 30, 40, 50, 80):
            make(scene, project, device_cards.share_template(f"gib-{gib}", f"{gib}Gi"))


def sharing(name: str, gib: int) -> dict[str, Any]:
    return device_cards.pod(name, of_template=f"gib-{gib}")


def by_rows(scene: Claiming) -> Held:
    found: Held = {}
    for node in scene.get("gpunodes")["items"]:
        for row in node["spec"].get("rows", []):
            if node["metadata"]["name"] not in NODES:
                continue
            (card,) = row["cards"]
            device = node["status"]["devices"][card["index"]]["device"]
            assert row.get("device", device) == device
            found.setdefault(device, []).append((row["name"], card["memoryMiB"]))
    return found


def by_claims(scene: Claiming) -> Held:
    found: Held = {}
    for claim in scene.admin.get(f"{device_cards.PATH}/resourceclaims")["items"]:
        status = claim.get("status", {})
        for given in status.get("allocation", {}).get("devices", {}).get("results", []):
            device = "/".join(given[key] for key in ("driver", "pool", "device"))
            mib = parse_memory(given["consumedCapacity"]["memory"])
            users = status.get("reservedFor") or [{"name": f"claim {claim['metadata']['name']}"}]
            found.setdefault(device, []).append((users[0]["name"], mib))
    return found


def agree(scene: Claiming) -> bool:
    """Whether the ledger says of every card what kube-scheduler allocated of it."""
    said, given = by_rows(scene), by_claims(scene)
    assert all(sum(mib for _, mib in held) <= 80 * GIB for held in said.values())
    return _sorted(said) == _sorted(given)


async def until_agreed(scene: Claiming, n_pods: int) -> None:
    """Until they agree on exactly so many pods: of one that is deleted, row and claim may stay
    together for a moment."""
    await scene.until(
        lambda: sum(map(len, by_rows(scene).values())) == n_pods and agree(scene),
        f"rows and allocations of {n_pods} pods to agree",
    )


def _sorted(held: Held) -> Held:
    return {device: sorted(pods) for device, pods in held.items() if pods}


async def test_pod_with_a_claim_for_memory_gets_a_share_and_counts_for_its_project(
    scene: Claiming,
) -> None:
    made = make(scene, "team-a", sharing("ten", 10))
    assert made["metadata"]["annotations"][names.ANNOTATION_MEMORY] == "10240"
    assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]
    await scene.until_bound("team-a", 1)
    await scene.until(lambda: agree(scene), "row and allocation to agree")
    node = rows(scene)["ten"][0]
    # The card that is listed first, whose index is 1.
    assert list(by_rows(scene)) == [f"{device_cards.DRIVER}/{node}/gpu-1"]
    used = [node["spec"].get("used") for node in scene.get("gpunodes")["items"]]
    assert "0.125" in used
    # Whole cards by claims are on no node here, and shares by the node agent neither.
    make(scene, "team-b", device_cards.pod("whole", of_template="of-1"))
    assert await placed(scene, "team-b", "whole") == "NoMatchingNode"
    async with with_view(scene):
        told = await scene.answer("why", "whole", "-n", "team-b")
    assert "give no whole cards by ResourceClaims" in str(told)


async def test_pods_that_are_released_together_end_on_the_cards_that_their_rows_say(
    scene: Claiming,
) -> None:
    """Sizes that fill cards in some orders only: what kube-scheduler refuses is planned again."""
    sizes = (50, 30, 50, 30, 40, 40, 10, 20)
    for ix, gib in enumerate(sizes):
        make(scene, ("team-a", "team-b")[ix % 2], sharing(f"p{ix}-{gib}", gib))
    await scene.until_bound("team-a", 4)
    await scene.until_bound("team-b", 4)
    await scene.until(lambda: agree(scene), "rows and allocations to agree")
    assert Counter(mib for held in by_rows(scene).values() for _, mib in held) == Counter(
        gib * GIB for gib in sizes
    )


async def test_cards_that_each_fill_one_may_be_allocated_the_other_way_round(
    scene: Claiming,
) -> None:
    for ix in range(4):
        make(scene, ("team-a", "team-b")[ix % 2], sharing(f"full-{ix}", 80))
    await scene.until_bound("team-a", 2)
    await scene.until_bound("team-b", 2)
    await scene.until(lambda: agree(scene), "rows and allocations to agree")
    assert len(by_rows(scene)) == 4


async def test_books_agree_when_pods_come_and_go(scene: Claiming) -> None:
    """More than there is room for, of sizes drawn from a seed; every pod that is left starts. Which
    pods a project loses to the other one's quota depends on when they came, so no more are left
    than there are cards."""
    drawn = Random(5)
    for turn in range(4):
        for ix in range(8):
            project, gib = drawn.choice(("team-a", "team-b")), drawn.choice((10, 20, 30, 40, 50))
            make(scene, project, sharing(f"t{turn}-{ix}", gib))
        await scene.until(lambda: sum(map(len, by_claims(scene).values())) > 3, "shares in use")
        there = [pod["metadata"] for pod in pods(scene) if not is_ending(pod)]
        drawn.shuffle(there)
        for meta in there[4:]:
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            scene.admin.delete(f"{path}?gracePeriodSeconds=0")
    await scene.until(lambda: all(map(is_running, pods(scene))), "every pod that is left to run")
    n_left = len(pods(scene))
    await until_agreed(scene, n_left)
    assert n_left > 1


def pods(scene: Claiming) -> list[Any]:
    """Those of both projects."""
    return [
        pod
        for project in ("team-a", "team-b")
        for pod in scene.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
    ]


def is_ending(pod: Any) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_running(pod: Any) -> bool:
    return "nodeName" in pod["spec"] and not is_ending(pod)


async def test_reclaim_takes_borrowed_shares_back(scene: Claiming) -> None:
    for ix in range(8):
        make(scene, "team-a", sharing(f"borrows-{ix}", 40))
    await scene.until_bound("team-a", 8)
    await scene.until(lambda: agree(scene), "rows and allocations to agree")
    for ix in range(2):
        make(scene, "team-b", sharing(f"owner-{ix}", 80))
    await scene.until_bound("team-b", 2)
    await scene.until(lambda: agree(scene), "rows and allocations to agree")
    await until_told(scene, "Reclaimed", 4)


def fill(scene: Claiming, node: str) -> None:
    """Fill the card that kube-scheduler takes first, by the ledger, though not by any claim."""
    pod = device_cards.pod(f"on-{node}")
    pod["spec"]["nodeName"] = node
    made = make(scene, "team-b", pod)
    keys = {"uid": made["metadata"]["uid"], "namespace": "team-b", "name": f"on-{node}"}
    card = {"index": 1, "milli": 1000, "memoryMiB": 80 * GIB}
    patch = json.dumps({"spec": {"rows": [keys | {"cards": [card], "state": "bound"}]}})
    scene.cluster.kubectl("patch", "gpunode.ballast.dev", node, "--type=merge", "-p", patch)


@pytest.mark.parametrize("full", [NODES, NODES[:1]])
async def test_share_whose_card_has_no_room_in_the_ledger_is_bound_later_or_elsewhere(
    cluster: Cluster, tmp_path: Path, full: tuple[str, ...]
) -> None:
    async with with_driver(cluster, tmp_path, is_shared=True) as scene:
        make_templates(scene)
        await list_the_other_way_round(scene)
        for node in full:
            fill(scene, node)
        make(scene, "team-a", sharing("waits", 10))
        serve, refused = scene.installation.serve, '"reason":"CardsBusy"'
        await scene.until(lambda: refused in serve.read_log(), "the binding to be refused")
        for node in full if full == NODES else ():
            scene.admin.delete(f"/api/v1/namespaces/team-b/pods/on-{node}?gracePeriodSeconds=0")
        await scene.until_bound("team-a", 1)
        assert full == NODES or rows(scene)["waits"][0] == NODES[1]


@pytest.mark.parametrize(("release", "gate"), [("1.35", GATE), ("1.37", "")])
async def test_shares_by_claims_on_other_releases(
    request: pytest.FixtureRequest, tmp_path: Path, release: str, gate: str
) -> None:
    """Before 1.36 it is an alpha feature; kube-scheduler 1.34 gives each card to one claim."""
    flags = dict.fromkeys(OTHER_PROGRAMS, (f"--feature-gates={gate}=true",)) if gate else None
    plane = other_release(release, flags)
    async with on_release(plane, request, tmp_path, is_shared=True) as opened:
        make_templates(opened)
        await test_reclaim_takes_borrowed_shares_back(opened)


async def test_share_of_no_project_is_planned_around(scene: Claiming) -> None:
    scene.plane.make_namespace("elsewhere")
    for node in NODES:
        made = make(
            scene,
            "elsewhere",
            device_cards.claim(f"on-{node}", 1, capacity={"requests": {"memory": "10Gi"}}),
        )
        given = {
            "driver": device_cards.DRIVER,
            "pool": node,
            "device": "gpu-0",
            "request": "gpus",
            "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
            "consumedCapacity": {"memory": "10Gi"},
        }
        status = {"allocation": {"devices": {"results": [given]}}}
        path = f"{device_cards.PATH}/namespaces/elsewhere/resourceclaims/on-{node}/status"
        await scene.client.request("PUT", path, body=made | {"status": status})

    def shown() -> list[Any]:
        held = [scene.get(f"gpunodes/{node}")["status"].get("foreign", []) for node in NODES]
        return [hold["cards"] for listed in held for hold in listed]

    await scene.until(lambda: len(shown()) == 2, "the holds to be shown")
    assert shown()[0] == [{"index": 0, "milli": 125, "memoryMiB": 10240}]
    for ix, gib in enumerate((80, 80, 50)):
        project = ("team-a", "team-b")[ix % 2]
        make(scene, project, sharing(f"p-{ix}", gib))
        await scene.until_bound(project, 1 + ix // 2)
    held = {device: sum(mib for _, mib in pods) for device, pods in by_rows(scene).items()}
    assert sorted(held.values()) == [50 * GIB, 80 * GIB, 80 * GIB]
    assert all(mib == 50 * GIB for device, mib in held.items() if device.endswith("gpu-0"))


async def test_pod_whose_claim_for_memory_has_grown_is_evicted(scene: Claiming) -> None:
    make(scene, "team-b", sharing("beside", 10))
    await scene.until_bound("team-b", 1)
    path = f"{device_cards.PATH}/namespaces/team-a/resourceclaims"
    small, large = ({"requests": {"memory": f"{gib}Gi"}} for gib in (10, 60))
    make(scene, "team-a", device_cards.claim("grows", 1, capacity=small))
    pod = device_cards.pod("thief", of_claim="grows")
    pod["metadata"]["annotations"] = {names.ANNOTATION_HOLD: names.HOLD}
    make(scene, "team-a", pod)
    scene.admin.delete(f"{path}/grows")
    make(scene, "team-a", device_cards.claim("grows", 1, capacity=large))
    scene.cluster.kubectl("annotate", "pod", "thief", "-n", "team-a", f"{names.ANNOTATION_HOLD}-")

    def is_gone() -> bool:
        pods = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
        return not pods and agree(scene)

    await scene.until(is_gone, "the pod to be deleted")
    await scene.until_told("team-a", "Unledgered", "thief")


async def test_amount_that_kube_scheduler_would_round_up_is_told(scene: Claiming) -> None:
    make(scene, "team-b", sharing("beside", 10))
    await scene.until_bound("team-b", 1)
    make(scene, "team-a", device_cards.share_template("odd", "10000Mi"))
    make(scene, "team-a", device_cards.pod("odd", of_template="odd"))
    assert await placed(scene, "team-a", "odd") == "NoMatchingNode"
    async with with_view(scene):
        told = await scene.answer("why", "odd", "-n", "team-a")
    assert "ask for 10240Mi" in str(told)
