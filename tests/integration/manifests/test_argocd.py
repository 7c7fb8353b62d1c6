"""Argo CD applies a team's objects, its queues and Ballast itself, and compares them again and
again. Skipped unless `make argocd` has built it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.manifests.repository import (
    N_PODS,
    Document,
    ballast,
    is_comparison,
    n_lines,
    objects,
    queues,
    remove_flow_schemas,
    requests,
)
from tests.support import argocd as program
from tests.support.argocd.running import APPLICATIONS, NAMESPACE, ArgoCd
from tests.support.overlays import MANIFESTS, of_kind, rendered

pytestmark = [
    pytest.mark.skipif(not program.is_here(), reason="no Argo CD: make argocd builds it"),
    pytest.mark.timeout(400),
]
SERVER_SIDE: Final = "ServerSideApply=true"


@pytest.fixture
async def argo(scene: Scene, tmp_path: Path) -> AsyncIterator[ArgoCd]:
    async with started(ArgoCd(scene.plane, tmp_path)) as made:
        yield made
    remove_flow_schemas(scene)


def team() -> list[Document]:
    """What a team keeps in its repository. The API server adds tolerations to a pod that states
    some, and Argo CD compares this list as a whole, so its pod states none."""
    documents = objects()
    del documents[-1]["spec"]["tolerations"]
    return documents


def example() -> list[Document]:
    """The departments and projects of the shipped example; the team's project is in one of them."""
    documents = yaml.safe_load_all(
        (MANIFESTS.parent / "examples" / "queues.yaml").read_text("utf-8")
    )
    return of_kind(list(documents), "GpuDepartment", "GpuProject")


def status(scene: Scene, name: str) -> Document:
    found: Document = scene.admin.get(f"{APPLICATIONS}/{name}").get("status", {})
    return found


def differing(scene: Scene, name: str) -> list[str]:
    """The objects of an Application that are not as its repository says."""
    return [
        f"{each['kind']} {each['name']}"
        for each in status(scene, name).get("resources", ())
        if each.get("status") != "Synced"
    ]


def is_synced(scene: Scene, name: str, revision: str) -> bool:
    found = status(scene, name)
    sync = found.get("sync", {})
    done = found.get("operationState", {}).get("phase") == "Succeeded"
    return done and (sync.get("status"), sync.get("revision")) == ("Synced", revision)


def compared_at(scene: Scene, name: str) -> str:
    at: str = status(scene, name).get("reconciledAt", "")
    return at


async def until_synced(scene: Scene, name: str, revision: str) -> None:
    try:
        await scene.until(lambda: is_synced(scene, name, revision), f"{name} to be synced")
    except AssertionError as error:
        error.add_note(f"{differing(scene, name)}: {status(scene, name)}")
        raise


async def until_compared(scene: Scene, names: list[str], n_times: int = 3) -> None:
    """Wait until each Application was compared so many times more."""
    for _ in range(n_times):
        before = {name: compared_at(scene, name) for name in names}

        def is_later(before: dict[str, str] = before) -> bool:
            return all(compared_at(scene, name) > at for name, at in before.items())

        await scene.until(is_later, "Argo CD to compare")


def writes(scene: Scene, since: int) -> list[str]:
    """What Argo CD wrote after so many lines, its own objects excepted."""
    return [
        f"{each['verb']} {each['objectRef']['resource']} {each['objectRef'].get('name')}"
        for each in requests(scene, since, "argocd")
        if not is_comparison(each) and each["objectRef"].get("namespace") != NAMESPACE
    ]


@pytest.mark.parametrize("options", [(), (SERVER_SIDE,)], ids=["client-side", "server-side"])
async def test_what_is_compared_again_does_not_differ_and_an_upgrade_stops_nothing(
    scene: Scene, argo: ArgoCd, options: tuple[str, ...]
) -> None:
    installed = ballast(scene)
    parts = {
        "crds": rendered("crds"),
        "ballast": installed,
        "example": example(),
        "queues": of_kind(queues(), "GpuProject"),
        "team": team(),
    }
    for name, documents in parts.items():
        revision = argo.publish(name, list(documents))
        argo.follow(name, *options)
        await until_synced(scene, name, revision)
    await scene.until_bound("team-a", N_PODS)
    bound = (await scene.look("team-a")).bound
    since = n_lines(scene)
    await until_compared(scene, list(parts))
    assert {name: differing(scene, name) for name in parts} == {name: [] for name in parts}
    assert writes(scene, since) == []
    newer = json.loads(json.dumps(installed).replace('"0.1.0"', '"0.2.0"'))
    revision = argo.publish("ballast", newer)
    argo.refresh("ballast")
    await until_synced(scene, "ballast", revision)
    assert "patch deployments ballast-control" in writes(scene, since)
    assert (await scene.look("team-a")).bound == bound
