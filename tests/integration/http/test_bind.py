"""bind and filter on a real API server: a pod is bound once, by UID, under all conditions."""

import asyncio
import json
from collections import Counter

import pytest

from extender.api.events import Synced
from extender.http.bodies import MAX_BODY_BYTES
from extender.http.book import WATCHED
from extender.http.serve import Extender, ServeOptions
from extender.kube.resources import GPU_NODES, PODS, PROJECTS
from tests.integration.http.rig import World, until

CARDS = "ballast.dev/cards"


async def test_a_direct_pod_gets_a_row_and_a_binding_that_names_its_cards(world: World) -> None:
    await world.add_node("n1", cards=2)
    pod = await world.add_pod("a")
    async with world.extender() as extender:
        assert (await world.filter(extender, pod, "n1"))["NodeNames"] == ["n1"]
        assert await world.bind(extender, pod, "n1") == ""
    bound = await world.pod("a")
    (row,) = await world.rows("n1")
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotation(CARDS) == "0:500:8000"
    assert (row.uid, row.project, row.state, row.epoch) == (
        pod.metadata.uid,
        "team-a",
        "reserved",
        0,
    )
    assert [(card.index, card.milli, card.memory_mib) for card in row.cards] == [(0, 500, 8000)]


async def test_a_planned_pod_is_bound_without_a_write_to_the_ledger(world: World) -> None:
    pod = await world.add_planned("a", "n1")
    before = await world.node("n1")
    async with world.extender() as extender:
        assert (await world.filter(extender, pod, "n1"))["NodeNames"] == ["n1"]
        assert await world.bind(extender, pod, "n1") == ""
    assert (await world.pod("a")).metadata.annotation(CARDS) == "0:500:8000"
    assert (await world.node("n1")).metadata.resource_version == before.metadata.resource_version


@pytest.mark.binds_nothing
async def test_a_planned_pod_is_bound_nowhere_else(world: World) -> None:
    pod = await world.add_planned("a", "n1")
    await world.add_node("n2")
    async with world.extender() as extender:
        await world.filter(extender, pod, "n1", "n2")
        assert (await world.bind(extender, pod, "n2")).startswith("PlannedElsewhere: ")
    assert (await world.pod("a")).spec.node_name == ""


@pytest.mark.parametrize("is_planned", [True, False])
async def test_a_bind_is_the_same_however_often_and_by_whom_it_is_asked(
    world: World, is_planned: bool
) -> None:
    if is_planned:
        pod = await world.add_planned("a", "n1")
    else:
        await world.add_node("n1")
        pod = await world.add_pod("a")
    async with world.extender() as one, world.extender() as other:
        errors = await asyncio.gather(
            *(world.bind(by, pod, "n1") for by in (one, other) for _ in range(5))
        )
        assert set(errors) == {""}
        bound = await world.pod("a")
        assert await world.bind(other, pod, "n1") == ""
    assert (await world.pod("a")).metadata.resource_version == bound.metadata.resource_version
    assert len(await world.rows("n1")) == 1


async def test_a_bound_pod_is_not_bound_to_another_node(world: World) -> None:
    await world.add_node("n1")
    await world.add_node("n2")
    pod = await world.add_pod("a")
    async with world.extender() as one, world.extender() as other:
        assert await world.bind(one, pod, "n1") == ""
        for by in (one, other):
            assert (await world.bind(by, pod, "n2")).startswith("BoundElsewhere: ")
    assert (await world.pod("a")).spec.node_name == "n1"
    assert await world.rows("n2") == []


@pytest.mark.parametrize("is_planned", [True, False])
async def test_a_pod_that_was_touched_after_filter_is_bound_by_its_live_version(
    world: World, is_planned: bool
) -> None:
    if is_planned:
        pod = await world.add_planned("a", "n1")
    else:
        await world.add_node("n1")
        pod = await world.add_pod("a")
    async with world.extender() as extender:
        await world.filter(extender, pod, "n1")
        touched = {"metadata": {"labels": {"touched": "yes"}}}
        await world.client.merge_patch(PODS, "a", touched, world.namespace)
        assert await world.bind(extender, pod, "n1") == ""
    assert (await world.pod("a")).spec.node_name == "n1"


@pytest.mark.binds_nothing
async def test_a_plan_that_was_revoked_after_filter_is_not_bound(world: World) -> None:
    pod = await world.add_planned("a", "n1")
    async with world.extender() as extender:
        await world.filter(extender, pod, "n1")
        notes = {"ballast.dev/plan": None, "ballast.dev/revoked": "n1 7 0"}
        await world.client.merge_patch(
            PODS, "a", {"metadata": {"annotations": notes}}, world.namespace
        )
        assert (await world.bind(extender, pod, "n1")).startswith("NotPlanned: ")
    assert (await world.pod("a")).spec.node_name == ""


@pytest.mark.binds_nothing
async def test_a_direct_row_that_is_being_freed_is_not_used(world: World) -> None:
    pod = await world.add_pod("a", revoked="n1 0 77")
    await world.add_node("n1", rows=[world.row(pod, 0, reserved_at=77)])
    async with world.extender() as extender:
        assert (await world.bind(extender, pod, "n1")).startswith("NotPlanned: ")


async def test_a_direct_row_of_an_attempt_that_ended_early_is_used_again(world: World) -> None:
    pod = await world.add_pod("a")
    await world.add_node("n1", rows=[world.row(pod, 0, reserved_at=77)])
    await world.add_node("n2")
    async with world.extender() as extender:
        assert (await world.filter(extender, pod, "n1", "n2"))["NodeNames"] == ["n1"]
        assert (await world.bind(extender, pod, "n2")).startswith("PlannedElsewhere: ")
        assert await world.bind(extender, pod, "n1") == ""
    assert [row.reserved_at for row in await world.rows("n1", "n2")] == [77]


@pytest.mark.binds_nothing
async def test_a_pod_that_is_gone_is_not_bound(world: World) -> None:
    pod = await world.add_planned("a", "n1")
    async with world.extender() as extender:
        await world.filter(extender, pod, "n1")
        await world.client.delete(PODS, "a", world.namespace)
        assert (await world.bind(extender, pod, "n1")).startswith("PodGone: ")


@pytest.mark.binds_nothing
async def test_another_pod_of_the_same_name_is_not_bound_in_its_place(world: World) -> None:
    pod = await world.add_planned("a", "n1")
    async with world.extender() as extender:
        await world.filter(extender, pod, "n1")
        await world.client.delete(PODS, "a", world.namespace)
        await world.add_pod("a", plan="7 n1")
        assert (await world.bind(extender, pod, "n1")).startswith("PodReplaced: ")
    assert (await world.pod("a")).spec.node_name == ""


@pytest.mark.binds_nothing
async def test_a_gated_pod_is_not_bound(world: World) -> None:
    await world.add_node("n1")
    body = {
        "metadata": {"name": "a", "annotations": {"gpu-fraction": "0.5"}},
        "spec": {
            "schedulingGates": [{"name": "ballast.dev/admission"}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    pod = await world.client.create(PODS, body, world.namespace)
    async with world.extender() as extender:
        assert (await world.bind(extender, pod, "n1")).startswith("NotPlanned: ")
    assert await world.rows("n1") == []


async def test_a_bind_whose_caller_has_gone_is_a_bind_all_the_same(world: World) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("a")
    async with world.extender() as extender:
        body = json.dumps(world.bind_args(pod, "n1")).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", extender.extender.ports[0])
        head = "POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.transport.abort()

        async def is_bound() -> bool:
            return bool((await world.pod("a")).spec.node_name)

        await until(is_bound, "the pod bound")
        assert await world.bind(extender, pod, "n1") == ""
    async with world.extender() as restarted:
        assert await world.bind(restarted, pod, "n1") == ""
        assert (await world.filter(restarted, pod, "n1"))["NodeNames"] == ["n1"]
    assert len(await world.rows("n1")) == 1


async def test_stopping_finishes_the_binds_under_way(world: World) -> None:
    await world.add_node("n1")
    pods = [await world.add_pod(f"a{i}") for i in range(8)]
    async with world.extender() as extender:
        binds = [asyncio.create_task(world.bind(extender, pod, "n1")) for pod in pods]

        async def has_a_row() -> bool:
            return bool(await world.rows("n1"))

        await until(has_a_row, "the first row")
        extender.stop()
        assert await asyncio.gather(*binds) == [""] * 8


async def test_halves_fill_eight_cards_in_pairs_and_not_one_more(world: World) -> None:
    await world.add_node("n1")
    pods = [await world.add_pod(f"a{i}") for i in range(17)]
    async with world.extender() as extender:
        errors = await asyncio.gather(*(world.bind(extender, pod, "n1") for pod in pods))
    assert Counter(error.split(":")[0] for error in errors) == {"": 16, "CardsBusy": 1}
    rows = await world.rows("n1")
    assert Counter(card.index for row in rows for card in row.cards) == dict.fromkeys(range(8), 2)


async def test_two_replicas_that_race_never_book_a_card_twice(world: World) -> None:
    await world.add_node("n1", cards=4)
    pods = [await world.add_pod(f"a{i}", "0.4") for i in range(16)]
    async with world.extender() as one, world.extender() as other:
        errors = await asyncio.gather(
            *(world.bind((one, other)[i % 2], pod, "n1") for i, pod in enumerate(pods))
        )
    assert errors.count("") == 8
    rows = await world.rows("n1")
    assert Counter(card.index for row in rows for card in row.cards) == dict.fromkeys(range(4), 2)
    bound = {pod.metadata.name for pod, error in zip(pods, errors, strict=True) if not error}
    assert {row.name for row in rows} == bound


async def test_binds_at_once_do_not_pass_a_projects_share(world: World) -> None:
    quota = {"spec": {"nodePools": [{"name": "default", "gpu": {"quota": "1.5"}}]}}
    await world.client.merge_patch(PROJECTS, "team-a", quota)
    for name in ("n1", "n2", "n3", "n4"):
        await world.add_node(name, cards=1)
    pods = [await world.add_pod(f"a{i}") for i in range(4)]
    async with world.extender() as extender:
        errors = await asyncio.gather(
            *(world.bind(extender, pod, f"n{i + 1}") for i, pod in enumerate(pods))
        )
    assert Counter(error.split(":")[0] for error in errors) == {"": 3, "OverFairShare": 1}
    assert len(await world.rows("n1", "n2", "n3", "n4")) == 3


@pytest.mark.binds_nothing
async def test_a_row_that_the_cache_has_not_heard_of_is_read_live(world: World) -> None:
    async with await world.connect() as client:
        silent = Extender(client, ServeOptions(listen="127.0.0.1:0"))
        for kind in WATCHED:
            silent.book.apply(Synced(kind))
        pod = await world.add_planned("a", "n1")
        sent = json.dumps(await world.filter_args(pod, "n1", "n2")).encode()
        answer = json.loads((await silent.verbs.filter(sent)).body)
        assert answer["NodeNames"] == ["n1"]


@pytest.mark.binds_nothing
async def test_what_is_refused_as_a_request_changes_nothing(world: World) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("a")
    args = world.bind_args(pod, "n1")
    before = (await world.pod("a"), await world.node("n1"))
    async with world.extender() as extender:
        for body, headers in (
            (json.dumps(args).encode() + b" " * MAX_BODY_BYTES, {}),
            (json.dumps(args).encode(), {"Content_Encoding": "gzip"}),
            (json.dumps(args).encode()[:-1], {}),
            (json.dumps(args | {"PodUID": 1}).encode(), {}),
            (json.dumps(args | {"PodName": "a/../b"}).encode(), {}),
        ):
            status, _ = await extender.post("bind", body, **headers)
            assert status in (400, 413, 415)
    assert (await world.pod("a"), await world.node("n1")) == before


@pytest.mark.binds_nothing
async def test_a_node_whose_card_fell_ill_after_filter_is_not_bound_to(world: World) -> None:
    pod = await world.add_planned("a", "n1")
    async with world.extender() as extender:
        await world.filter(extender, pod, "n1")
        devices = [{"index": 0, "memoryMiB": 16_000, "health": "Unhealthy"}]
        ill = {"status": {"devices": devices}}
        await world.client.merge_patch(GPU_NODES, "n1", ill, subresource="status")

        async def is_known() -> bool:
            node = extender.extender.book.node("n1")
            return node is not None and node.status.devices[0].health == "Unhealthy"

        await until(is_known, "the card's illness")
        assert (await world.bind(extender, pod, "n1")).startswith("CardUnhealthy: ")
