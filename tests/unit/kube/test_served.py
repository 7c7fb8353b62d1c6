"""Kinds that a cluster may lack are watched once they are served."""

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import create_autospec

import pytest

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
from extender.kube.resources import DEVICES
from extender.kube.served import LOOK_S, served_devices, watch_for_devices
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


async def run_view(client: Client) -> None:
    view = View(client, ViewOptions("", ""), await served_devices(client))
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
