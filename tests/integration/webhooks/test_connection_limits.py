"""Connections that send nothing, send slowly, or arrive in hundreds."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from extender.connection_limits import ConnectionLimits, listen
from tests.support.admission import pod, review_body, usual_index
from webhooks import certs
from webhooks.body import MAX_BODY
from webhooks.connection_limits import USUAL, PacedConnections, Pacing
from webhooks.server import Server

REVIEW = review_body(pod().noted({"gpu-fraction": "0.5"}).body)
HOST = "127.0.0.1"
QUICK = ConnectionLimits(40, 40, handshake_s=0.6, headers_s=0.6, request_s=2.0, unread_s=0.6)
#: For tests in which nothing is to be closed for being slow: a busy machine is slow.
PATIENT = replace(USUAL, handshake_s=60.0, headers_s=60.0, request_s=60.0, unread_s=60.0)
#: How long `QUICK` may take to close a connection, and how long an open one is looked at.
CLOSED_S, OPEN_S = 20.0, 1.5
FAST = Pacing(a_second=1000.0, under_way=4)


class Running:
    """A webhook server that listens, and requests to it."""

    def __init__(self, connections: PacedConnections, trust: ssl.SSLContext) -> None:
        self.connections = connections
        self.trust = trust

    async def review(self, of: str = HOST) -> int:
        """The status of a good review on a connection of its own, from this address."""
        connector = aiohttp.TCPConnector(ssl=self.trust, force_close=True, local_addr=(of, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.post(f"https://localhost:{self.connections.port}/mutate", data=REVIEW) as answer,
        ):
            await answer.read()
            return answer.status

    async def connect(
        self, *, tls: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has said nothing yet."""
        return await asyncio.open_connection(
            HOST,
            self.connections.port,
            ssl=self.trust if tls else None,
            server_hostname="localhost" if tls else None,
        )


@pytest_asyncio.fixture
async def build(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """Starts a server with these limits and this pace."""
    bundle = certs.load_or_make(tmp_path)
    context = certs.server_context()
    certs.serve_with(context, tmp_path)
    opened: list[tuple[PacedConnections, aiohttp.web.AppRunner]] = []

    async def open_server(limits: ConnectionLimits, pacing: Pacing | None = None) -> Running:
        connections = PacedConnections(context, limits, pacing)
        server = Server(usual_index())
        server.bundle = bundle
        runner = server.runner(connections.middleware)
        await runner.setup()
        assert runner.server is not None
        connections.open(listen(HOST, 0), runner.server)
        opened.append((connections, runner))
        return Running(connections, ssl.create_default_context(cadata=bundle.ca.decode()))

    yield open_server
    for connections, runner in opened:
        await connections.close()
        await runner.cleanup()


Build = Callable[..., Awaitable[Running]]


async def ended(reader: asyncio.StreamReader, within_s: float) -> bool:
    """Whether the server closes the connection within the time."""
    try:
        async with asyncio.timeout(within_s):
            with suppress(ConnectionError, ssl.SSLError):
                while await reader.read(4096):
                    pass
            return True
    except TimeoutError:
        return False


async def test_review_is_answered_through_the_limiter(build: Build) -> None:
    server = await build(USUAL)
    assert await server.review() == 200


async def test_open_connection_is_used_again(build: Build) -> None:
    server = await build(QUICK, FAST)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=server.trust)) as client:
        for _ in range(20):
            url = f"https://localhost:{server.connections.port}/mutate"
            async with client.post(url, data=REVIEW) as answer:
                assert answer.status == 200
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    "said",
    [b"P", b"POST /mutate HTTP/1.1\r\nHost: x\r\n", b"POST /mutate HTTP/1.1\r\nX: " + b"a" * 5000],
    ids=["one byte", "half of its headers", "a long header"],
)
async def test_connection_that_keeps_us_waiting_is_closed(build: Build, said: bytes) -> None:
    server = await build(QUICK, FAST)
    reader, writer = await server.connect()
    writer.write(said)
    assert await ended(reader, CLOSED_S)
    writer.close()


async def test_headers_that_drip_in_are_not_waited_for(build: Build) -> None:
    server = await build(QUICK, FAST)
    reader, writer = await server.connect()

    async def drip() -> None:
        for byte in b"POST /mutate HTTP/1.1\r\n" + b"X-Slow: y\r\n" * 100:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    assert await ended(reader, CLOSED_S)
    dripping.cancel()
    writer.close()


async def test_second_request_that_drips_in_is_not_waited_for_either(build: Build) -> None:
    server = await build(QUICK, FAST)
    reader, writer = await server.connect()
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    writer.write(head.encode() + REVIEW)
    assert b"200" in await reader.readline()
    await asyncio.sleep(0.1)
    writer.write(b"POST /mut")
    assert await ended(reader, CLOSED_S)
    writer.close()


async def test_connection_in_reserve_stays_open(build: Build) -> None:
    server = await build(QUICK, FAST)
    reader, writer = await server.connect()
    assert not await ended(reader, OPEN_S)
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    writer.write(head.encode() + REVIEW)
    assert b"200" in await reader.readline()
    writer.close()


async def test_idle_connection_stays_open(build: Build) -> None:
    server = await build(QUICK, FAST)
    reader, writer = await server.connect()
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    writer.write(head.encode() + REVIEW)
    assert b"200" in await reader.readline()
    assert not await ended(reader, OPEN_S)
    writer.close()


@pytest.mark.parametrize("tls", [True, False], ids=["after the handshake", "before it"])
async def test_review_passes_by_hundreds_that_say_nothing(build: Build, tls: bool) -> None:
    server = await build(QUICK, FAST)
    silent = await asyncio.gather(
        *(server.connect(tls=tls) for _ in range(100)), return_exceptions=True
    )
    assert len(server.connections) <= QUICK.connections
    assert await server.review() == 200
    for each in silent:
        if not isinstance(each, BaseException):
            each[1].close()


async def test_idle_connections_make_room_for_new_ones(build: Build) -> None:
    server = await build(QUICK, FAST)
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    kept = []
    for _ in range(60):
        reader, writer = await server.connect()
        writer.write(head.encode() + REVIEW)
        assert b"200" in await reader.readline()
        kept.append(writer)
    assert len(server.connections) <= QUICK.connections
    for writer in kept:
        writer.close()


async def test_who_speaks_no_tls_is_let_go(build: Build) -> None:
    server = await build(QUICK, FAST)
    reader, writer = await server.connect(tls=False)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await ended(reader, CLOSED_S)
    writer.close()
    assert await server.review() == 200


async def test_flood_of_large_bodies_takes_little_memory_and_delays_no_other(build: Build) -> None:
    server = await build(PATIENT)
    url = f"https://localhost:{server.connections.port}/mutate"
    connector = aiohttp.TCPConnector(ssl=server.trust, limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:

        async def send() -> int:
            try:
                async with client.post(url, data=b"[" * MAX_BODY) as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

        flood = [asyncio.create_task(send()) for _ in range(6)]
        assert await server.review() == 200
        assert {await each for each in flood} <= {0, 408, 413}


async def test_caller_with_many_connections_waits_for_more_and_delays_no_other(
    build: Build,
) -> None:
    pacing = Pacing(a_second=0.001, a_request=0.0, at_once=3, enough=2, more_turns=2)
    server = await build(USUAL, pacing)
    enough = [await server.connect() for _ in range(2)]
    more = asyncio.create_task(server.connect())
    async with asyncio.timeout(CLOSED_S):
        while len(server.connections) < 3:
            await asyncio.sleep(0)
        assert await server.review(of="127.0.0.2") == 200
    assert not more.done()
    more.cancel()
    for _, writer in enough:
        writer.close()


async def test_connections_closed_by_their_peer_are_forgotten(build: Build) -> None:
    server = await build(QUICK, FAST)
    for _ in range(5):
        assert await server.review() == 200
    async with asyncio.timeout(CLOSED_S):
        while len(server.connections):
            await asyncio.sleep(0.01)
