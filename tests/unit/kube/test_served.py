"""Kinds that a cluster may lack are watched once they are served."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from unittest.mock import create_autospec

import pytest
from structlog.testing import capture_logs

from extender.api.claims import DeviceClass
from extender.api.events import Event, Synced, Upserted
from extender.api.objects import ObjectMeta
from extender.cycle.controller import Controller
from extender.cycle.replica import ControlOptions
from extender.kube.client import Client
from extender.kube.errors import (
    KubeError,
    NewlyServed,
    NotFound,
    RequestRefused,
    Unauthorized,
    Unavailable,
)
from extender.kube.reflector import BACKOFF_CAP_S, Reflector
from extender.kube.resources import DEVICE_CLASSES, DEVICES
from extender.kube.served import LOOK_S, served_devices, watch_for_devices
from extender.kube.wire import Page
from extender.view.program import View, ViewOptions

pytestmark = pytest.mark.looptime


class Api:
    """Answers with these errors, one after the other, and then well."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)

    async def list_page(self, _resource: object, **_: object) -> None:
        if self.errors:
            raise self.errors.pop(0)


async def test_kinds_of_dynamic_resource_allocation_are_watched_where_they_are_served() -> None:
    assert await served_devices(Api()) == DEVICES  # type: ignore[arg-type]


async def test_cluster_without_them_has_none() -> None:
    assert await served_devices(Api(NotFound("no such path"))) == ()  # type: ignore[arg-type]


async def test_api_server_that_does_not_answer_is_asked_again() -> None:
    api = Api(Unavailable("down"), Unavailable("down"))
    assert await served_devices(api) == DEVICES  # type: ignore[arg-type]
    assert api.errors == []


@pytest.mark.parametrize("kind", [RequestRefused, Unauthorized])
async def test_refusal_ends_no_program_and_is_tried_again(kind: type[KubeError]) -> None:
    api = Api(kind("not granted"), kind("not granted"))
    assert await served_devices(api) == DEVICES  # type: ignore[arg-type]
    assert api.errors == []


async def test_cluster_that_serves_them_later_is_noticed_at_the_next_look() -> None:
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(NewlyServed):
        await watch_for_devices(Api(NotFound("no such path")))  # type: ignore[arg-type]
    assert asyncio.get_running_loop().time() - started_s == pytest.approx(2 * LOOK_S)


class Withdrawn:
    """Lists one object, then ceases to serve the kind for ten minutes."""

    def __init__(self) -> None:
        self.n_lists = 0
        self._back_at = asyncio.get_running_loop().time() + 600.0

    async def list_page(self, *_: object, **__: object) -> Page[DeviceClass]:
        self.n_lists += 1
        if self.n_lists > 1 and asyncio.get_running_loop().time() < self._back_at:
            raise NotFound("no such path")
        metadata = ObjectMeta(name="gpu", uid="1", resource_version="1")
        return Page([DeviceClass(metadata=metadata)], "1")

    async def pages(self, *_: object, **__: object) -> AsyncGenerator[Page[DeviceClass], None]:
        yield await self.list_page()

    async def lines(self, *_: object) -> AsyncGenerator[bytes, None]:
        if asyncio.get_running_loop().time() < self._back_at:
            raise NotFound("no such path")
        await asyncio.sleep(3600)
        yield b""


async def test_a_kind_that_is_withdrawn_is_logged_once_and_not_forgotten() -> None:
    api, told = Withdrawn(), list[Event]()
    with capture_logs() as logs:
        reflector = Reflector(api, DEVICE_CLASSES, told.append)  # type: ignore[arg-type]
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(590.0)
        assert [each["reason"] for each in logs] == ["NotFound"]
        # An API server that has just started may not serve all kinds yet.
        assert api.n_lists > 590.0 / BACKOFF_CAP_S
        await asyncio.sleep(10.0 + BACKOFF_CAP_S)
        await reflector.relist()
        task.cancel()
    assert {type(each) for each in told} == {Upserted, Synced}


async def run_view(client: Client) -> None:
    view = View(client, ViewOptions("", "", ""), await served_devices(client))
    async with asyncio.TaskGroup() as tasks:
        for watch in view.watches():
            tasks.create_task(watch)


async def run_controller(client: Client) -> None:
    await Controller(client, client, ControlOptions("me")).run()


@pytest.mark.parametrize("run", [run_controller, run_view])
async def test_programs_with_a_model_start_anew_once_they_are_served(
    run: Callable[[Client], Awaitable[None]],
) -> None:
    client = create_autospec(Client, instance=True)
    client.list_page.side_effect = Api(NotFound("no such path"), NotFound("still not")).list_page
    client.pages.side_effect = Unavailable("down")
    with pytest.raises(ExceptionGroup) as raised:
        await run(client)
    assert raised.group_contains(NewlyServed)
