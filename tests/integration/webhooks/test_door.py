"""The door by itself: connections that say nothing, say it slowly, or come in hundreds."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from extender.door import Patience, listen
from tests.support.admission import pod, review_body, usual_index
from webhooks import certs
from webhooks.body import MAX_BODY
from webhooks.door import USUAL, PacedDoor, Pacing
from webhooks.server import Server

REVIEW = review_body(pod().noted({"gpu-fraction": "0.5"}).body)
HOST = "127.0.0.1"
QUICK = Patience(40, 40, handshake_s=0.3, headers_s=0.3, request_s=1.0, unread_s=0.3)
FAST = Pacing(a_second=1000.0, under_way=4)


class Street:
    """A server behind its door, and who comes to it."""

    def __init__(self, door: PacedDoor, trust: ssl.SSLContext) -> None:
        self.door = door
        self.trust = trust

    async def review(self, of: str = HOST) -> int:
        """The status of a good review on a connection of its own, from this address."""
        connector = aiohttp.TCPConnector(ssl=self.trust, force_close=True, local_addr=(of, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.post(f"https://localhost:{self.door.port}/mutate", data=REVIEW) as answer,
        ):
            await answer.read()
            return answer.status

    async def connect(
        self, *, tls: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has said nothing yet."""
        return await asyncio.open_connection(
            HOST,
            self.door.port,
            ssl=self.trust if tls else None,
            server_hostname="localhost" if tls else None,
        )


@pytest_asyncio.fixture
async def build(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Street]]]:
    """Opens a street with a door of this patience, and pace."""
    bundle = certs.load_or_make(tmp_path)
    context = certs.server_context()
    certs.serve_with(context, tmp_path)
    opened: list[tuple[PacedDoor, aiohttp.web.AppRunner]] = []

    async def open_street(patience: Patience, pacing: Pacing | None = None) -> Street:
        door = PacedDoor(context, patience, pacing)
        server = Server(usual_index(), body_deadline_s=0.5)
        server.bundle = bundle
        runner = server.runner(door.middleware)
        await runner.setup()
        assert runner.server is not None
        door.open(listen(HOST, 0), runner.server)
        opened.append((door, runner))
        return Street(door, ssl.create_default_context(cadata=bundle.ca.decode()))

    yield open_street
    for door, runner in opened:
        await door.close()
        await runner.cleanup()


Build = Callable[..., Awaitable[Street]]


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


async def test_review_is_answered_through_the_door(build: Build) -> None:
    street = await build(USUAL)
    assert await street.review() == 200


async def test_open_connection_is_used_again(build: Build) -> None:
    street = await build(QUICK, FAST)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=street.trust)) as client:
        for _ in range(20):
            url = f"https://localhost:{street.door.port}/mutate"
            async with client.post(url, data=REVIEW) as answer:
                assert answer.status == 200
        assert len(street.door) == 1


@pytest.mark.parametrize(
    "said",
    [b"P", b"POST /mutate HTTP/1.1\r\nHost: x\r\n", b"POST /mutate HTTP/1.1\r\nX: " + b"a" * 5000],
    ids=["one byte", "half of its headers", "a long header"],
)
async def test_connection_that_keeps_us_waiting_is_closed(build: Build, said: bytes) -> None:
    street = await build(QUICK, FAST)
    reader, writer = await street.connect()
    writer.write(said)
    assert await ended(reader, 2.0)
    writer.close()


async def test_headers_that_drip_in_are_not_waited_for(build: Build) -> None:
    street = await build(QUICK, FAST)
    reader, writer = await street.connect()

    async def drip() -> None:
        for byte in b"POST /mutate HTTP/1.1\r\n" + b"X-Slow: y\r\n" * 100:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    assert await ended(reader, 2.0)
    dripping.cancel()
    writer.close()


async def test_second_request_that_drips_in_is_not_waited_for_either(build: Build) -> None:
    street = await build(QUICK, FAST)
    reader, writer = await street.connect()
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    writer.write(head.encode() + REVIEW)
    assert b"200" in await reader.readline()
    await asyncio.sleep(0.1)
    writer.write(b"POST /mut")
    assert await ended(reader, 2.0)
    writer.close()


async def test_connection_in_reserve_stays_open(build: Build) -> None:
    street = await build(QUICK, FAST)
    reader, writer = await street.connect()
    assert not await ended(reader, 1.0)
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    writer.write(head.encode() + REVIEW)
    assert b"200" in await reader.readline()
    writer.close()


async def test_idle_connection_stays_open(build: Build) -> None:
    street = await build(QUICK, FAST)
    reader, writer = await street.connect()
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    writer.write(head.encode() + REVIEW)
    assert b"200" in await reader.readline()
    assert not await ended(reader, 1.0)
    writer.close()


@pytest.mark.parametrize("tls", [True, False], ids=["after the handshake", "before it"])
async def test_review_passes_by_hundreds_that_say_nothing(build: Build, tls: bool) -> None:
    street = await build(QUICK, FAST)
    silent = await asyncio.gather(
        *(street.connect(tls=tls) for _ in range(100)), return_exceptions=True
    )
    assert len(street.door) <= QUICK.connections
    assert await street.review() == 200
    for each in silent:
        if not isinstance(each, BaseException):
            each[1].close()


async def test_idle_connections_make_room_for_new_ones(build: Build) -> None:
    street = await build(QUICK, FAST)
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(REVIEW)}\r\n\r\n"
    kept = []
    for _ in range(60):
        reader, writer = await street.connect()
        writer.write(head.encode() + REVIEW)
        assert b"200" in await reader.readline()
        kept.append(writer)
    assert len(street.door) <= QUICK.connections
    for writer in kept:
        writer.close()


async def test_who_speaks_no_tls_is_let_go(build: Build) -> None:
    street = await build(QUICK, FAST)
    reader, writer = await street.connect(tls=False)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await ended(reader, 2.0)
    writer.close()
    assert await street.review() == 200


async def test_flood_of_large_bodies_takes_little_memory_and_holds_nobody_up(build: Build) -> None:
    street = await build(USUAL)
    url = f"https://localhost:{street.door.port}/mutate"
    connector = aiohttp.TCPConnector(ssl=street.trust, limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:

        async def send() -> int:
            try:
                async with client.post(url, data=b"[" * MAX_BODY) as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

        flood = [asyncio.create_task(send()) for _ in range(6)]
        assert await street.review() == 200
        assert {await each for each in flood} <= {0, 408, 413}


async def test_who_has_enough_connections_waits_for_more_and_holds_up_nobody(build: Build) -> None:
    pacing = Pacing(a_second=0.001, a_request=0.0, at_once=3, enough=2, more_turns=2)
    street = await build(USUAL, pacing)
    enough = [await street.connect() for _ in range(2)]
    more = asyncio.create_task(street.connect())
    async with asyncio.timeout(5.0):
        while len(street.door) < 3:
            await asyncio.sleep(0)
        assert await street.review(of="127.0.0.2") == 200
    assert not more.done()
    more.cancel()
    for _, writer in enough:
        writer.close()


async def test_door_forgets_those_who_left(build: Build) -> None:
    street = await build(QUICK, FAST)
    for _ in range(5):
        assert await street.review() == 200
    async with asyncio.timeout(5.0):
        while len(street.door):
            await asyncio.sleep(0.01)
