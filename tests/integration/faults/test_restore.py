"""etcd is restored from an older copy while all other programs keep running."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster
from tests.support.installation import SCHEDULER, install
from tests.support.sight import until

CARDS = 2
#: How many revisions the copy is older than what was seen.
AGE = 3000
#: The goal is 60 s from the API server's return; the rest is for a busy machine.
BACK_S = 90.0


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane of the test's own: after a restore others would find their baseline gone."""
    plane = ControlPlane()
    plane.start()
    try:
        install(plane)
        yield plane
    finally:
        plane.stop()


@pytest.fixture
async def scene(plane: ControlPlane) -> AsyncIterator[Scene]:
    """One node of two cards."""
    plane.start_kwok()
    async with Scene.open(Cluster(plane, "default", SCHEDULER), 1, CARDS) as opened:
        yield opened


def cards_of(scene: Scene) -> dict[str, str]:
    """Name of each live pod that is bound -> the index of its card."""
    found = {}
    for pod in scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]:
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in meta:
            found[meta["name"]] = meta["annotations"][names.ANNOTATION_CARDS].partition(":")[0]
    return found


def rows_of(scene: Scene) -> dict[str, str]:
    """Name of each pod with a row -> the index of its card."""
    rows: list[Any] = scene.get("gpunodes")["items"][0]["spec"]["rows"]
    return {row["name"]: str(row["cards"][0]["index"]) for row in rows}


def has_booked(scene: Scene, *pods: str) -> bool:
    """Whether exactly these pods are bound, each with its row; no card may be booked twice."""
    bound, rows = cards_of(scene), rows_of(scene)
    assert len(set(bound.values())) == len(bound), f"one card for two pods: {bound}"
    return bound.keys() == set(pods) and bound == rows


async def until_booked(scene: Scene, *pods: str) -> None:
    """Until exactly these pods are bound, each with its row."""

    async def are_booked() -> bool:
        return await asyncio.to_thread(has_booked, scene, *pods)

    await until(are_booked, BACK_S, lambda: f"{pods} booked; bound {cards_of(scene)}")


def restart_others(scene: Scene) -> None:
    """Start kube-scheduler and kwok anew, as guides to a restore say.

    Their watches go on at a version that is in the future now, and hear nothing until it has come.
    """
    for name in ("kube-scheduler", "kwok"):
        scene.plane.kill(name)
    scene.plane.start_kwok()
    scene.installation.start_scheduler()


@pytest.mark.controlplane
@pytest.mark.parametrize("is_bumped", [False, True], ids=["older-revision", "bumped-revision"])
async def test_a_restored_store_books_no_card_twice_and_every_program_comes_back(
    scene: Scene, is_bumped: bool
) -> None:
    scene.submit_pod("team-a", "a", 1000)
    await until_booked(scene, "a")
    copy = await asyncio.to_thread(scene.plane.copy_etcd)
    scene.admin.delete("/api/v1/namespaces/team-a/pods/a")
    # The card of `a` is used by others meanwhile.
    scene.submit_pod("team-a", "late", 1000)
    await until_booked(scene, "late")
    if not is_bumped:
        # So that what the API server writes at its start does not make up for it.
        store = scene.plane.store
        await asyncio.to_thread(store.bump, store.revision() + AGE)
    before = (scene.installation.control.pid, scene.installation.serve.pid)
    await asyncio.to_thread(scene.plane.restore_etcd, copy, is_bumped=is_bumped)
    if not is_bumped:
        await asyncio.to_thread(restart_others, scene)
    scene.submit_pod("team-a", "b", 1000)
    scene.submit_pod("team-a", "c", 1000)

    async def is_full() -> bool:
        booked = await asyncio.to_thread(cards_of, scene)
        assert len(set(booked.values())) == len(booked), f"one card for two pods: {booked}"
        return "a" in booked and len(booked) == CARDS and booked == rows_of(scene)

    await until(is_full, BACK_S, lambda: f"`a` and one more; bound {cards_of(scene)}")
    scene.admin.delete("/api/v1/namespaces/team-a/pods/a")
    await until_booked(scene, "b", "c")
    assert before == (scene.installation.control.pid, scene.installation.serve.pid)
