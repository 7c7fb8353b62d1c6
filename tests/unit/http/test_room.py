"""filter waits while too many binds are in flight, and never for long."""

import asyncio

import pytest

from extender.http.room import Room

pytestmark = pytest.mark.looptime
LONG_S = 60.0


async def test_there_is_room_until_the_limit_is_reached() -> None:
    room = Room(at_once=2)
    with room.taken():
        async with asyncio.timeout(1):
            await room.wait(LONG_S)


async def test_a_wait_ends_when_one_of_those_under_way_is_over() -> None:
    room = Room(at_once=1)
    with room.taken():
        waiting = asyncio.create_task(room.wait(LONG_S))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    async with asyncio.timeout(1):
        await waiting


async def test_a_wait_ends_though_none_is_over() -> None:
    room = Room(at_once=1)
    with room.taken():
        async with asyncio.timeout(1):
            await room.wait(0.01)
