"""Connections of one listener: slow ones are closed, new ones are always accepted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from extender.connection_limits import ConnectionLimits
from extender.http.server import Address, Listener

WITHIN_S = 60.0
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
LONG = ConnectionLimits(connections=4, a_peer=4)
SHORT = ConnectionLimits(4, 4, handshake_s=0.05, headers_s=0.05, request_s=0.05, unread_s=0.05)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(limits: ConnectionLimits) -> AsyncIterator[Listener]:
    app = web.Application()
    asked, closing = asyncio.Event(), asyncio.Event()

    async def later(_request: web.Request) -> web.Response:
        await asked.wait()
        return web.Response(text="later")

    async def ask_now(_request: web.Request) -> web.Response:
        asked.set()
        return web.Response(text="now")

    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def hang(_request: web.Request) -> web.Response:
        await closing.wait()
        return web.Response()

    async def flood(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(64 * 2**20))

    app.router.add_get("/", hello)
    app.router.add_get("/later", later)
    app.router.add_get("/now", ask_now)
    app.router.add_get("/hang", hang)
    app.router.add_get("/flood", flood)
    async with Listener(app, Address("127.0.0.1", 0), limits=limits) as listener:
        try:
            yield listener
        finally:
            # A listener that is left waits for answers, and would wait for this one in vain.
            closing.set()


async def dial(listener: Listener) -> Stream:
    return await asyncio.open_connection("127.0.0.1", listener.port)


async def is_hung_up(stream: Stream) -> bool:
    """Whether the server ends the connection, and says nothing before."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(WITHIN_S):
            return await stream[0].read() == b""
    return True


async def ask(stream: Stream, path: bytes = b"/") -> bytes:
    stream[1].write(HEAD.replace(b"/ ", path + b" ", 1) + b"\r\n")
    async with asyncio.timeout(WITHIN_S):
        return await stream[0].readline()


@pytest.mark.parametrize("begun", [b"", b"G", HEAD, HEAD + b"X-A: "])
async def test_headers_that_never_end_are_given_up(begun: bytes) -> None:
    async with listening(SHORT) as listener:
        stream = await dial(listener)
        stream[1].write(begun)
        assert await is_hung_up(stream)


async def test_a_request_that_never_ends_is_given_up() -> None:
    async with listening(SHORT) as listener:
        stream = await dial(listener)
        stream[1].write(HEAD.replace(b"/ ", b"/hang ", 1) + b"\r\n")
        assert await is_hung_up(stream)


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async with listening(SHORT) as listener:
        _, writer = await dial(listener)
        writer.write(HEAD.replace(b"/ ", b"/flood ", 1) + b"\r\n")
        async with asyncio.timeout(WITHIN_S):
            while len(listener.connections) == 0:
                await asyncio.sleep(0)
            while len(listener.connections):
                await asyncio.sleep(0.01)
        writer.close()


async def test_a_connection_between_two_requests_may_rest() -> None:
    async with listening(SHORT) as listener:
        stream = await dial(listener)
        assert b"200" in await ask(stream)
        resting = asyncio.create_task(stream[0].readuntil(b"hello"))
        await resting
        other = await dial(listener)
        assert await is_hung_up(other)
        assert b"200" in await ask(stream)


async def test_a_client_with_all_connections_does_not_keep_others_out() -> None:
    async with listening(LONG) as listener:
        held = [await dial(listener) for _ in range(10)]
        stream = await dial(listener)
        assert b"200" in await ask(stream)
        assert len(listener.connections) <= LONG.a_peer
        for each in held:
            each[1].close()


async def test_connections_that_ask_nothing_make_room_before_one_that_waits_for_its_answer() -> (
    None
):
    async with listening(LONG) as listener:
        waiting = asyncio.create_task(ask(await dial(listener), b"/later"))
        while not any(each.is_served for each in listener.connections.connections.values()):
            await asyncio.sleep(0.01)
        held = [await dial(listener) for _ in range(10)]
        assert b"200" in await ask(await dial(listener), b"/now")
        assert b"200" in await waiting
        for each in held:
            each[1].close()
