"""Tools that apply the same manifests again and again, such as Argo CD and Flux: they find nothing
to change, and what Ballast writes stays, or is written again."""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.manifests.repository import HALF, N_PODS, Document, made, objects, template
from tests.support import workloads
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.installation import Installation, Program, install
from tests.support.overlays import MANIFESTS
from tests.support.webhook_config import KINDS, REGISTRATION, SHIPPED, webhook_configurations

pytestmark = pytest.mark.controlplane

#: How kubectl applies, and compares.
WAYS: Final = {
    "client": (),
    "server": ("--server-side",),
    "forced": ("--server-side", "--force-conflicts"),
}
SEEN_S: Final = 90.0


def differences(cluster: Cluster, way: str, text: str) -> str:
    """What `kubectl diff` prints: what an apply would change."""
    try:
        return cluster.kubectl("diff", *WAYS[way], "-f-", stdin=text)
    except subprocess.CalledProcessError as error:
        return f"{error.stdout}{error.stderr}"


def is_equal(cluster: Cluster, way: str, text: str) -> bool:
    """Whether an apply would change nothing. kubectl reads an object twice, and a status that is
    written in between is a difference, too."""
    return differences(cluster, way, text) == ""


def differs(live: Any, stated: Any) -> bool:
    """Whether a field that the manifest states has another value in the cluster, as Argo CD
    compares kinds that it does not know: maps by key, and lists by position."""
    match live, stated:
        case dict(), dict():
            return any(differs(live.get(key), value) for key, value in stated.items())
        case list(), list():
            return len(live) != len(stated) or any(map(differs, live, stated))
        case _:
            return bool(live != stated)


def path_of(each: Document) -> tuple[str, ...]:
    """The words by which kubectl gets the object."""
    meta = each["metadata"]
    where = ("-n", meta["namespace"]) if "namespace" in meta else ()
    return each["kind"], meta["name"], *where


def stored(cluster: Cluster, each: Document) -> Document:
    words = ("get", *path_of(each), "-o", "json", "--show-managed-fields")
    found: Document = json.loads(cluster.kubectl(*words))
    return found


@pytest.mark.parametrize(("first", "later"), [("client", "client"), ("server", "forced")])
async def test_workloads_and_queues_that_are_applied_again_do_not_change(
    scene: Scene, first: str, later: str
) -> None:
    text = yaml.safe_dump_all(objects())
    scene.cluster.kubectl("apply", *WAYS[first], "-f-", stdin=text)
    await scene.until_bound("team-a", N_PODS)
    before = (await scene.look("team-a")).bound
    for way in dict.fromkeys((first, later)):
        await scene.until(partial(is_equal, scene.cluster, way, text), "no difference")
        scene.cluster.kubectl("apply", *WAYS[way], "-f-", stdin=text)
        await scene.until(partial(is_equal, scene.cluster, way, text), "no difference")
    await scene.until_decided(3)
    assert (await scene.look("team-a")).bound == before
    for each in objects():
        if each["kind"].startswith("Gpu"):
            assert not differs(stored(scene.cluster, each)["spec"], each["spec"])


async def test_of_an_object_that_others_apply_ballast_writes_the_status_and_what_the_page_lists(
    scene: Scene,
) -> None:
    text = yaml.safe_dump_all(objects())
    scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=text)
    await scene.until_bound("team-a", N_PODS)
    written = {
        (each["kind"], *fields(entry["fieldsV1"]))
        for each in objects()
        for entry in stored(scene.cluster, each)["metadata"]["managedFields"]
        if entry["manager"].startswith("ballast") and entry.get("subresource") != "status"
    }
    assert written == {
        ("Namespace", f"metadata.labels.{names.LABEL_MANAGED}"),
        ("Pod", f"metadata.annotations.{names.ANNOTATION_PLAN}"),
    }
    namespace, *_ = objects()
    scene.cluster.kubectl("replace", "-f-", stdin=json.dumps(namespace))
    await scene.until(
        lambda: names.LABEL_MANAGED in stored(scene.cluster, namespace)["metadata"]["labels"],
        "the label that a replacement removed",
    )


async def test_group_that_is_applied_after_its_pods_is_a_conflict_unless_it_is_forced(
    scene: Scene,
) -> None:
    pods = template(HALF, {}, app="llm")
    pods["metadata"]["labels"][names.LABEL_POD_GROUP] = "late"
    serving = {"replicas": 2, "selector": {"matchLabels": {"app": "llm"}}, "template": pods}
    scene.cluster.kubectl("apply", "-f-", stdin=json.dumps(made("Deployment", "llm", serving)))
    groups = f"{workloads.API}/namespaces/team-a/gpupodgroups"
    await scene.until(lambda: scene.admin.has(f"{groups}/late"), "Ballast's own group")
    text = json.dumps(made("GpuPodGroup", "late", {"minMember": 2}))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=text)
    assert "conflict with" in refused.value.stderr
    scene.cluster.kubectl("apply", *WAYS["forced"], "-f-", stdin=text)
    scene.cluster.kubectl("delete", "deployment", "llm", "-n", "team-a")
    await scene.until(lambda: not scene.admin.get(groups)["items"], "it to go with the owner")


def fields(owned: Document, at: str = "") -> Iterator[str]:
    """The paths of the fields in an entry of `managedFields`."""
    for key, below in owned.items():
        if key == ".":
            continue
        path = f"{at}.{key.removeprefix('f:')}".removeprefix(".")
        yield from fields(below, path) if below else [path]


@pytest.fixture
def webhooks(cluster: Cluster, tmp_path: Path) -> Iterator[Program]:
    """The webhooks' program, which keeps its certificate itself, and looks every second."""
    install(cluster.control_plane)
    options = ("--secret=ballast-webhooks-tls", "--cert-check-every=1")
    program = Installation(cluster.control_plane).webhooks(tmp_path, *options)
    try:
        yield program
    finally:
        program.kill()
        for each in configurations(program.port):
            cluster.kubectl("delete", *path_of(each), "--ignore-not-found")


def configurations(port: int) -> list[Document]:
    """The shipped webhook configurations, which name no CA."""
    found = [
        *webhook_configurations(port, b"", SHIPPED),
        *webhook_configurations(port, b"", KINDS),
    ]
    for each in found:
        for webhook in each["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
    return found


def authorities(cluster: Cluster, port: int) -> set[str]:
    """The CAs that the API server trusts, by webhook; an empty string if there is none."""
    admin = cluster.control_plane.admin
    return {
        webhook["clientConfig"].get("caBundle", "")
        for each in configurations(port)
        for webhook in admin.get(
            f"{REGISTRATION}/{each['kind'].lower()}s/{each['metadata']['name']}"
        )["webhooks"]
    }


def has_ca(cluster: Cluster, port: int) -> bool:
    found = authorities(cluster, port)
    return len(found) == 1 and "" not in found


@pytest.mark.parametrize("way", WAYS)
def test_ca_of_the_webhooks_survives_an_apply_and_returns_after_a_replacement(
    cluster: Cluster, webhooks: Program, way: str
) -> None:
    text = yaml.safe_dump_all(configurations(webhooks.port))
    cluster.kubectl("apply", *WAYS[way], "-f-", stdin=text)
    webhooks.start()
    wait_for(lambda: has_ca(cluster, webhooks.port), SEEN_S, "the CA in every configuration")
    written = authorities(cluster, webhooks.port)
    wait_for(lambda: is_equal(cluster, way, text), SEEN_S, "no difference")
    cluster.kubectl("apply", *WAYS[way], "-f-", stdin=text)
    assert authorities(cluster, webhooks.port) == written
    cluster.kubectl("replace", "-f-", stdin=text)
    wait_for(lambda: authorities(cluster, webhooks.port) == written, SEEN_S, "the CA again")


@pytest.mark.parametrize("overlay", ["default", "view"])
def test_overlay_that_is_installed_shows_no_difference(cluster: Cluster, overlay: str) -> None:
    cluster.kubectl("apply", "--server-side", f"-k{MANIFESTS / 'overlays' / 'crds'}")
    text = cluster.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay))
    cluster.kubectl("apply", "--server-side", "-f-", stdin=text)
    try:
        wait_for(lambda: is_equal(cluster, "server", text), SEEN_S, "no difference")
    finally:
        cluster.kubectl("delete", "--wait=false", "-f-", stdin=text)
