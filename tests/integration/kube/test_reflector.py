import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from msgspec import Struct

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.objects import ObjectMeta
from extender.kube.client import PAGE_BYTES, Client
from extender.kube.errors import Unauthorized
from extender.kube.reflector import Reflector, Timing
from extender.kube.resources import NODE_POOLS, PODS, PROJECTS, Resource
from tests.integration.kube.mirror import PATIENCE_S, Mirror, counted, reflecting
from tests.integration.kube.objects import loud_pod, pod, pool
from tests.support.controlplane.handles import Api
from tests.support.faultproxy import FaultProxy


class Numbered(Struct):
    """ConfigMaps of which we can read those with an `n` of 1 or 2."""

    metadata: ObjectMeta
    data: dict[str, Literal["1", "2"]]


NUMBERED = Resource(Numbered, "/api/v1", "configmaps")
#: Notices a dead connection at once, for tests that make one.
WATCHFUL = Timing(silence_s=1.0)


@pytest_asyncio.fixture
async def proxy(api: Api) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(api.url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def proxied(api: Api, proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with connections that the test can break."""
    async with await api.client(proxy.kubeconfig(api.kubeconfig, tmp_path)) as client:
        yield client


async def test_what_exists_comes_first_then_synced_then_changes(client: Client) -> None:
    await client.create(NODE_POOLS, pool("a"))
    mirror = Mirror()
    async with reflecting(client, NODE_POOLS, mirror):
        assert [type(event) for event in mirror.story] == [Upserted, Synced]
        await client.create(NODE_POOLS, pool("b"))
        await mirror.until_names("a", "b")
        await client.merge_patch(NODE_POOLS, "b", {"metadata": {"labels": {"x": "y"}}})
        await mirror.until(
            lambda: any(p.metadata.labels == {"x": "y"} for p in mirror.live.values())
        )
        await client.delete(NODE_POOLS, "a")
        await mirror.until_names("b")


async def test_a_kind_without_objects_is_synced(client: Client) -> None:
    mirror = Mirror()
    async with reflecting(client, PROJECTS, mirror):
        assert mirror.story == [Synced(PROJECTS.kind)]


async def test_only_the_namespace_asked_for_is_told(api: Api, client: Client) -> None:
    await client.create(PODS, pod("here"), api.namespace)
    await client.create(PODS, pod("there"), "default")
    mirror = Mirror()
    async with reflecting(client, PODS, mirror, namespace=api.namespace):
        assert mirror.names == ["here"]


async def test_many_pages_are_one_list(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.kube.client.PAGE_LIMIT", 3)
    await asyncio.gather(*(client.create(NODE_POOLS, pool(f"p-{i}")) for i in range(8)))
    mirror = Mirror()
    async with reflecting(client, NODE_POOLS, mirror):
        assert mirror.names == [f"p-{i}" for i in range(8)]
        assert mirror.n_synced == 1


async def test_a_watch_that_the_server_ends_goes_on_without_a_new_list(client: Client) -> None:
    mirror = Mirror()
    async with reflecting(client, NODE_POOLS, mirror, Timing(watch_s=0.8)):
        n_lists = counted("lists", resource="gpunodepools")
        n_watches = _n_watches()
        names: list[str] = []
        for i in itertools.count():
            names.append(f"p-{i}")
            await client.create(NODE_POOLS, pool(names[-1]))
            await mirror.until_names(*names)
            if _n_watches() >= n_watches + 2:
                break
            await client.get_raw("/readyz")
        assert counted("lists", resource="gpunodepools") == n_lists


async def test_nothing_is_missed_or_doubled_over_many_cuts(
    client: Client, proxied: Client, proxy: FaultProxy
) -> None:
    mirror = Mirror()
    async with reflecting(proxied, NODE_POOLS, mirror):
        exists: set[int] = set()
        for i in range(240):
            at = i * 7 % 40
            if at in exists:
                await client.delete(NODE_POOLS, f"p-{at}")
            else:
                await client.create(NODE_POOLS, pool(f"p-{at}"))
            exists ^= {at}
            if i % 12 == 11:
                name, is_there = f"p-{at}", at in exists
                # It watches again, so there is something to cut.
                await mirror.until(lambda n=name, there=is_there: (n in mirror.names) == there)  # type: ignore[misc]
                proxy.cut()
        page = await client.list_all(NODE_POOLS)
        truth = {p.metadata.uid: p.metadata.resource_version for p in page.items}
        await mirror.until(lambda: mirror.versions == truth)
    assert proxy.n_cut >= 10
    assert any(isinstance(event, Removed) for event in mirror.story)


async def test_what_vanished_while_versions_were_lost_is_removed(
    api: Api, client: Client, proxied: Client, proxy: FaultProxy
) -> None:
    for name in ("kept", "deleted", "replaced"):
        await client.create(NODE_POOLS, pool(name))
    old_uid = (await client.get(NODE_POOLS, "replaced")).metadata.uid
    mirror = Mirror()
    async with reflecting(proxied, NODE_POOLS, mirror):
        n_expired = _n_expired()
        proxy.refuse()
        await client.delete(NODE_POOLS, "deleted")
        await client.delete(NODE_POOLS, "replaced")
        new_uid = (await client.create(NODE_POOLS, pool("replaced"))).metadata.uid
        api.control_plane.compact_etcd()
        api.control_plane.restart("kube-apiserver")  # forgets the events its cache still held
        del mirror.story[:]
        proxy.restore()
        await mirror.until(lambda: new_uid in mirror.live)
        await mirror.until_names("kept", "replaced")
        assert _n_expired() > n_expired
    told = [e for e in mirror.story if isinstance(e, Removed)]
    assert {e.name for e in told} == {"deleted", "replaced"}
    order = [_uid(event) for event in mirror.story]
    assert order.index(old_uid) < order.index(new_uid)
    assert proxy.n_cut > 0


async def test_an_api_server_that_is_away_removes_nothing(
    client: Client, proxied: Client, proxy: FaultProxy
) -> None:
    await client.create(NODE_POOLS, pool("a"))
    mirror = Mirror()
    async with reflecting(proxied, NODE_POOLS, mirror):
        del mirror.story[:]
        proxy.refuse()
        n_refused = proxy.n_cut
        async with asyncio.timeout(PATIENCE_S):
            while proxy.n_cut < n_refused + 5:  # it tried five times
                await client.get_raw("/readyz")
        assert mirror.story == []
        proxy.restore()
        await client.create(NODE_POOLS, pool("b"))
        await mirror.until_names("a", "b")


async def test_a_silent_connection_is_given_up_and_nothing_is_missed(
    client: Client, proxied: Client, proxy: FaultProxy
) -> None:
    mirror = Mirror()
    failures = {"resource": "gpunodepools", "cause": "Unavailable"}
    async with reflecting(proxied, NODE_POOLS, mirror, WATCHFUL):
        n_failed = counted("reflector_failures", **failures)
        proxy.stall()
        await client.create(NODE_POOLS, pool("a"))
        async with asyncio.timeout(PATIENCE_S):
            while counted("reflector_failures", **failures) == n_failed:
                await client.get_raw("/readyz")
        proxy.restore()
        await mirror.until_names("a")


async def test_a_poison_object_is_skipped_and_the_rest_is_told(api: Api, client: Client) -> None:
    async def write(name: str, n: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await client.request("POST", NUMBERED.url(api.namespace), body=body | {"data": {"n": n}})

    await write("good", "1")
    await write("poison", "3")
    skipped = {"resource": "configmaps"}
    n_skipped = counted("skipped_objects", **skipped)
    mirror = Mirror()
    async with reflecting(client, NUMBERED, mirror, namespace=api.namespace):
        assert "good" in mirror.names
        assert "poison" not in mirror.names
        await write("late-poison", "4")
        await write("late-good", "2")
        await mirror.until(lambda: "late-good" in mirror.names)
        assert "late-poison" not in mirror.names
        assert counted("skipped_objects", **skipped) >= n_skipped + 2


async def test_an_object_that_turns_to_poison_is_not_removed_until_it_is_deleted(
    api: Api, client: Client
) -> None:
    path = NUMBERED.url(api.namespace)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"n": "1"}}
    await client.request("POST", path, body=body)
    mirror = Mirror()
    async with reflecting(client, NUMBERED, mirror, namespace=api.namespace):
        n_skipped = counted("skipped_objects", resource="configmaps")
        await client.request("PUT", f"{path}/c", body=body | {"data": {"n": "7"}})
        await client.request("POST", path, body=body | {"metadata": {"name": "d"}})
        await mirror.until(lambda: "d" in mirror.names)
        # Kubernetes' own kube-root-ca.crt, which may come late, is skipped too.
        assert counted("skipped_objects", resource="configmaps") >= n_skipped + 1
        assert "c" in mirror.names
        await client.request("DELETE", f"{path}/c")
        await mirror.until(lambda: "c" not in mirror.names)


async def test_an_object_that_the_listener_cannot_take_hides_no_other(
    api: Api, client: Client
) -> None:
    mirror = Mirror()

    def deliver(event: Event) -> None:
        if isinstance(event, Upserted) and event.obj.metadata.name == "bad":
            raise ZeroDivisionError
        mirror(event)

    untold = counted("untold_events", resource="pods")
    await client.create(PODS, pod("bad"), api.namespace)
    async with reflecting(client, PODS, deliver, namespace=api.namespace):
        await client.create(PODS, pod("good"), api.namespace)
        await mirror.until_names("good")
    assert counted("untold_events", resource="pods") == untold + 1


async def test_a_pod_that_is_nine_mib_as_json_passes_through_watch_and_list(
    api: Api, client: Client
) -> None:
    mirror = Mirror()
    async with reflecting(client, PODS, mirror, namespace=api.namespace):
        await client.create(PODS, loud_pod("loud"), api.namespace)
        await client.create(PODS, pod("next"), api.namespace)
        await mirror.until_names("loud", "next")
    later = Mirror()
    async with reflecting(client, PODS, later, namespace=api.namespace):
        assert later.names == ["loud", "next"]


async def test_a_list_of_large_pods_is_read_in_small_pages(api: Api, client: Client) -> None:
    n_pods = 8
    for i in range(n_pods):
        await client.create(PODS, loud_pod(f"loud-{i}"), api.namespace)
    sizes: list[int] = []
    async for page in client.pages(PODS, namespace=api.namespace):
        sizes.append(page.n_bytes)
    assert len(sizes) == n_pods
    assert max(sizes) < PAGE_BYTES
    assert len((await client.list_all(PODS, namespace=api.namespace)).items) == n_pods


async def test_an_object_that_is_too_large_to_decode_is_skipped_and_removed(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.kube.reflector.MAX_OBJECT_BYTES", 2**20)
    monkeypatch.setattr("extender.kube.client.MAX_OBJECT_BYTES", 2**20)
    monkeypatch.setattr("extender.kube.client.PAGE_BYTES", 2**20)
    skipped = counted("skipped_objects", resource="pods")
    mirror = Mirror()
    await client.create(PODS, pod("grows"), api.namespace)
    await client.create(PODS, loud_pod("loud"), api.namespace)
    async with reflecting(client, PODS, mirror, namespace=api.namespace):
        assert mirror.names == ["grows"]
        await client.create(PODS, loud_pod("later"), api.namespace)
        await client.create(PODS, pod("next"), api.namespace)
        await mirror.until_names("grows", "next")
        await client.delete(PODS, "grows", api.namespace)
        await mirror.until_names("next")
    assert counted("skipped_objects", resource="pods") >= skipped + 2


async def test_a_wanted_list_is_newer_than_the_wish(api: Api, client: Client) -> None:
    mirror = Mirror()
    async with reflecting(client, PODS, mirror, namespace=api.namespace) as reflector:
        for i in range(5):
            await client.create(PODS, pod(f"p-{i}"), api.namespace)
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(reflector.relist(), reflector.relist())
            assert f"p-{i}" in mirror.names
        await client.create(PODS, pod("watched"), api.namespace)
        await mirror.until(lambda: "watched" in mirror.names)


async def test_many_objects_catch_up_without_a_list(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing of the kind has changed, too: bookmarks come once a minute otherwise."""
    monkeypatch.setattr("extender.kube.reflector._FEW", 0)
    monkeypatch.setattr("extender.kube.reflector._CATCHES_UP_S", 30.0)
    mirror = Mirror()
    async with reflecting(client, PODS, mirror, namespace=api.namespace) as reflector:
        n_lists = counted("lists", resource="pods")
        for name in ("first", "second"):
            await client.create(PODS, pod(name), api.namespace)
            await client.create(NODE_POOLS, pool(name))
            async with asyncio.timeout(PATIENCE_S):
                await reflector.catch_up()
            assert name in mirror.names
        await client.create(PODS, pod("watched"), api.namespace)
        await mirror.until_names("first", "second", "watched")
        assert counted("lists", resource="pods") == n_lists


async def test_a_watch_that_does_not_catch_up_gives_way_to_a_list(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.kube.reflector._FEW", 0)
    monkeypatch.setattr("extender.kube.reflector._CATCHES_UP_S", 0.0)
    mirror = Mirror()
    await client.create(PODS, pod("first"), api.namespace)
    async with reflecting(client, PODS, mirror, namespace=api.namespace) as reflector:
        n_lists = counted("lists", resource="pods")
        await client.create(NODE_POOLS, pool("elsewhere"))
        async with asyncio.timeout(PATIENCE_S):
            await reflector.catch_up()
        assert counted("lists", resource="pods") == n_lists + 1


async def test_credentials_that_stay_refused_end_the_reflector(api: Api, tmp_path: Path) -> None:
    text = Path(
        api.control_plane.kubeconfig_for_service_account(api.namespace, "default")
    ).read_text()
    start = text.index('"token": "') + len('"token": "')
    path = tmp_path / "kubeconfig"
    path.write_text(text[:start] + "x" + text[start:])
    async with await api.client(str(path)) as client:
        reflector = Reflector(client, PODS, Mirror(), timing=Timing(unauthorized_s=0.5))
        with pytest.raises(Unauthorized):
            async with asyncio.timeout(PATIENCE_S):
                await reflector.run()


def _n_watches() -> float:
    return counted("requests", method="WATCH", resource="gpunodepools", code="200")


def _n_expired() -> float:
    return counted("reflector_failures", resource="gpunodepools", cause="Expired") + counted(
        "reflector_failures", resource="gpunodepools", cause="Gone"
    )


def _uid(event: Event) -> str:
    match event:
        case Upserted(obj):
            return str(obj.metadata.uid)
        case Removed(_, uid):
            return uid
    return ""
