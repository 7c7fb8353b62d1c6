"""The door of the HTTPS server: who gets a connection, and how long one may keep us waiting.

aiohttp bounds what a request may hold; here is bounded what comes before one. Connections wait as
bare sockets until it is their turn for a TLS handshake, which costs three times what a review does.
An API server opens one for every review that finds no idle connection, and takes whichever is free
first, its own or one that another review has left; so after some at once they are made slowly, and
most reviews of a burst come on connections that are open already. Turns go round over peers
(addresses), and to the newest of each peer first: whoever came long ago may have given up, and
those who hold connections open to keep others out came before them.

A peer may hold `a_peer` connections, most of them waiting: twice what an API server has in flight
(600 by default: --max-requests-inflight, --max-mutating-requests-inflight), as it leaves some
behind.
"""

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

#: What asyncio sets aside for one read of each TLS connection; its own 256 KiB would let a flood of
#: idle connections cost more memory than anything else here. A review is some 4 KiB.
TLS_BUFFER: Final = 32 * 2**10
BACKLOG: Final = 1024
#: How often connections are looked at whose time may be over.
SWEEP_S: Final = 0.25
#: For how long nobody is let in when the process has no file descriptor left.
BREATH_S: Final = 0.1

log = structlog.get_logger("webhooks")
Factory = Callable[[], asyncio.Protocol]


@dataclass(slots=True, frozen=True)
class Limits:
    """How much the door lets in, and for how long (seconds)."""

    connections: int = 1500
    a_peer: int = 1280
    #: Handshakes begun in one second and for each request that was answered, after `at_once` that
    #: were begun together; and under way.
    a_second: float = 20.0
    a_request: float = 0.1
    at_once: int = 32
    handshakes: int = 64
    #: A handshake. Longer than an API server waits for a review: a connection too late for its own
    #: review serves the next one.
    handshake_s: float = 5.0
    #: From a request's first byte to the end of its headers. A connection that has said nothing is
    #: idle: an API server keeps those that it opened for a review which came another way.
    headers_s: float = 2.0
    #: A request from its headers to the last byte of the answer.
    request_s: float = 10.0


class Pace:
    """A bucket that holds `at_once` turns, and is filled with `a_second` of them every second."""

    def __init__(self, a_second: float, at_once: int, now: float) -> None:
        self._a_second = a_second
        self._at_once = at_once
        self._turns = float(at_once)
        self._as_of = now

    def take(self, now: float) -> float:
        """Take a turn at the time `now`, and 0; or the seconds until there is one."""
        filled = self._turns + (now - self._as_of) * self._a_second
        self._turns, self._as_of = min(filled, self._at_once), now
        if self._turns < 1:
            return (1 - self._turns) / self._a_second
        self._turns -= 1
        return 0.0

    def earn(self, turns: float) -> None:
        """Add to the bucket; what does not fit is lost."""
        self._turns = min(self._turns + turns, self._at_once)


class Visit(asyncio.Protocol):
    """One connection after its handshake, between the transport and aiohttp's protocol.

    `since` is when it began to keep us waiting for headers, or for the end of a request; None while
    it is idle between requests, which costs nothing but its place.
    """

    def __init__(self, door: "Door", inner: Any, peer: str) -> None:
        self.inner = inner
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        self.since: float | None = None
        self.is_served = False
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._door.visits[self.inner] = self
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes for aiohttp; the first ones after a while begin a request."""
        if self.since is None:
            self.since = self._door.now()
        self.inner.data_received(data)

    def begin(self) -> None:
        """A request's headers are whole."""
        self.since, self.is_served = self._door.now(), True

    def end(self) -> None:
        """Its answer was made."""
        self.since, self.is_served = None, False

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        kept: bool | None = self.inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read."""
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, by whomever."""
        if self._door.visits.pop(self.inner, None) is not None:
            self._door.leave(self.peer)
        self.inner.connection_lost(exc)


class Door:
    """Listens, and hands connections over to aiohttp. `middleware` has to be the app's first."""

    def __init__(
        self,
        context: ssl.SSLContext,
        limits: Limits | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        sslproto.SSLProtocol.max_size = TLS_BUFFER
        self._context = context
        self._limits = limits or Limits()
        self.now: Callable[[], float] = asyncio.get_running_loop().time
        self._factory: Factory | None = None
        self._socket: socket.socket | None = None
        self._waiting: dict[str, deque[socket.socket]] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        #: By aiohttp's protocol, the oldest first.
        self.visits: dict[Any, Visit] = {}
        self._of_peer: Counter[str] = Counter()
        self._sweeper: asyncio.Task[None] | None = None
        self._pace = Pace(self._limits.a_second, self._limits.at_once, self.now())
        self._is_paced = False
        self._count = Metric(
            "ballast_webhook_connections_total",
            "Connections, by what became of them: served, given up before a request, turned away.",
            ["outcome"],
            registry=registry,
        )

    @property
    def port(self) -> int:
        """The port in use, also where 0 was asked for."""
        return int(self._socket.getsockname()[1]) if self._socket else 0

    @property
    def n_connections(self) -> int:
        """Connections that wait, shake hands, or are open."""
        return self._of_peer.total()

    def open(self, host: str, port: int, factory: Factory) -> None:
        """Listen; `factory` makes aiohttp's protocol of one connection."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self._factory = factory
        self._listen()
        self._sweeper = asyncio.create_task(self._sweep(), name="door")

    async def close(self) -> None:
        """Let nobody in any more; open connections are aiohttp's to close."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        tasks = [*self._handshakes, *([self._sweeper] if self._sweeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in list(self._waiting):
            while peer in self._waiting:
                self._turn_away(peer)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tells requests that are under way from connections that keep us waiting."""
        visit = self.visits.get(request.protocol)
        if visit is None:
            return await handler(request)
        visit.begin()
        try:
            return await handler(request)
        finally:
            visit.end()
            self._pace.earn(self._limits.a_request)

    def _listen(self) -> None:
        if self._socket is not None and self._socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Take what waits in the kernel."""
        assert self._socket is not None
        for _ in range(BACKLOG):
            try:
                accepted, address = self._socket.accept()
            except BlockingIOError:
                break
            except OSError as error:
                loop = asyncio.get_running_loop()
                log.warning("connection not accepted", error=str(error))
                loop.remove_reader(self._socket)
                loop.call_later(BREATH_S, self._listen)
                break
            accepted.setblocking(False)
            self._queue(accepted, str(address[0]))
        self._let_in()

    def _queue(self, accepted: socket.socket, peer: str) -> None:
        self._waiting.setdefault(peer, deque()).append(accepted)
        self._of_peer[peer] += 1
        if self._of_peer[peer] > self._limits.a_peer:
            self._turn_one_away(peer, peer)
        elif self.n_connections > self._limits.connections:
            most = max(self._waiting, key=lambda each: len(self._waiting[each]))
            self._turn_one_away(most, "")

    def _turn_one_away(self, peer: str, among: str) -> None:
        """Of several that wait the oldest goes, whose review has most likely been answered by now.

        The only one that waits is let in, and one that is open goes for it if there is any.
        """
        if len(self._waiting[peer]) > 1 or not self._make_room(among):
            self._turn_away(peer)

    def _turn_away(self, peer: str) -> None:
        """Close the peer's oldest connection that waits."""
        waiting = self._waiting[peer]
        waiting.popleft().close()
        self._count.labels("turned_away").inc()
        if not waiting:
            del self._waiting[peer]
        self.leave(peer)

    def _make_room(self, peer: str = "") -> bool:
        """Close the first connection (of `peer`) without a request; whether there was one.

        One that is idle goes before one that has said half of its headers.
        """
        found = None
        for visit in self.visits.values():
            if peer in ("", visit.peer) and not visit.is_served:
                found = found or visit
                if visit.since is None:
                    found = visit
                    break
        if found is None or found.transport is None:
            return False
        found.transport.abort()
        self._count.labels("turned_away").inc()
        del self.visits[found.inner]
        self.leave(found.peer)
        return True

    def leave(self, peer: str) -> None:
        """One connection of the peer is gone."""
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]

    def _let_in(self) -> None:
        """Begin handshakes as long as there is a place and time: peer after peer."""
        while len(self._handshakes) < self._limits.handshakes and (found := self._next()):
            accepted, peer = found
            wait_s = self._pace.take(self.now())
            if wait_s > 0:
                self._waiting.setdefault(peer, deque()).append(accepted)
                if not self._is_paced:
                    self._is_paced = True
                    asyncio.get_running_loop().call_later(wait_s, self._let_in_again)
                return
            task = asyncio.create_task(self._welcome(accepted, peer), name=f"handshake {peer}")
            self._handshakes.add(task)
            task.add_done_callback(self._handshake_ended)

    def _next(self) -> tuple[socket.socket, str] | None:
        """Whose turn it is, taken out of those that wait; who has left meanwhile is forgotten."""
        while self._waiting:
            peer = next(iter(self._waiting))
            waiting = self._waiting.pop(peer)
            accepted = waiting.pop()
            if waiting:
                self._waiting[peer] = waiting
            if not _has_left(accepted):
                return accepted, peer
            accepted.close()
            self._count.labels("given_up").inc()
            self.leave(peer)
        return None

    def _let_in_again(self) -> None:
        self._is_paced = False
        self._let_in()

    def _handshake_ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if self._socket is not None and self._socket.fileno() >= 0:
            self._let_in()

    async def _welcome(self, accepted: socket.socket, peer: str) -> None:
        assert self._factory is not None
        visit = Visit(self, self._factory(), peer)
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: visit, accepted, ssl=self._context, ssl_shutdown_timeout=1.0
                )
        except (OSError, TimeoutError):
            # Strangers who speak no TLS, or took too long.
            self._count.labels("given_up").inc()
        else:
            self._count.labels("served").inc()
        finally:
            if visit.transport is None:
                self.leave(peer)

    async def _sweep(self) -> None:
        """Close what has kept us waiting for too long; ends by cancellation."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now, limits = self.now(), self._limits
            for visit in list(self.visits.values()):
                allowed_s = limits.request_s if visit.is_served else limits.headers_s
                if visit.since is not None and now - visit.since > allowed_s and visit.transport:
                    visit.transport.abort()


def _has_left(accepted: socket.socket) -> bool:
    """Whether the peer has closed the connection again."""
    try:
        return accepted.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
