"""The door of a server: accepts connections and closes those that keep us waiting for too long.

aiohttp bounds what a request holds once its headers are read. Here is bounded what comes before and
around one: handshakes, headers and answers that never end, and connections that say nothing. Who
gets a place, and when, is what each server says in its own `admit`. Decides nothing about requests.
"""

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

#: What asyncio sets aside for one read of each TLS connection: with its own 256 KiB, a flood of
#: idle connections would cost more memory than anything else here.
TLS_BUFFER: Final = 32 * 2**10
#: Connections that the kernel keeps for us.
BACKLOG: Final = 1024
#: How many of them are taken before others have their turn in the loop: 3 ms.
ACCEPTED_AT_ONCE: Final = 128
#: How often it is looked whose time is over.
SWEEP_S: Final = 0.25
#: For how long nobody is let in when the process has no file descriptor left.
BREATH_S: Final = 0.1
#: For how long a connection that we close waits for the peer's part of it.
FAREWELL_S: Final = 1.0

_log = structlog.get_logger(__name__)
#: A connection as it was accepted, and its peer's address.
Newcomer = tuple[socket.socket, str]
#: Makes aiohttp's protocol of one connection.
Factory = Callable[[], Any]


@dataclass(slots=True, frozen=True)
class Patience:
    """Connections in all and of a peer (address); and how long (s) one may keep us waiting."""

    connections: int
    a_peer: int
    #: From the beginning to the end of the handshake; to that of the first headers, unless `seat`
    #: lets a connection rest between the two.
    handshake_s: float = 5.0
    #: From a request's first byte to the end of its headers.
    headers_s: float = 5.0
    #: From the end of the headers until the answer is made.
    request_s: float = 15.0
    #: How long a peer may read nothing of an answer.
    unread_s: float = 5.0


class Visit(asyncio.Protocol):
    """One connection, between its transport and aiohttp's protocol.

    `since` is when it began to keep us waiting, for at most `for_s`; None while it is idle, which
    costs nothing but its place. `is_served` while a request of it is being answered.
    """

    __slots__ = ("_door", "arrival", "for_s", "inner", "is_served", "peer", "since", "transport")

    def __init__(self, door: "Door", inner: Any, peer: str) -> None:
        self._door = door
        self.inner = inner
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        #: The handshake, until it is over.
        self.arrival: asyncio.Task[None] | None = None
        self.is_served = False
        self.since: float | None = None
        self.for_s = 0.0
        self.wait(door.patience.handshake_s)

    def wait(self, for_s: float) -> None:
        """From now on it keeps us waiting, and may do so for this long."""
        self.since, self.for_s = self._door.now(), for_s

    def send_away(self) -> None:
        """Close the connection at once; its place is free from now on."""
        self._door.leave(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.arrival is not None:
            self.arrival.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake, where there is one, is done."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._door.seat(self)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes for aiohttp; the first ones after a rest begin a request."""
        if self.since is None:
            self.wait(self._door.patience.headers_s)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        kept: bool | None = self.inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        """The peer does not read its answer."""
        self.wait(self._door.patience.unread_s)
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self.since = None
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, by whomever."""
        self._door.leave(self)
        self.inner.connection_lost(exc)


class Door:
    """Accepts on one socket, for one app. `middleware` has to be the app's first.

    `context` may be exchanged at any time: handshakes that begin from then on use it; without one
    there is no TLS. A server's own door says in `admit` what becomes of connections that came.
    """

    def __init__(self, patience: Patience, context: ssl.SSLContext | None = None) -> None:
        sslproto.SSLProtocol.max_size = TLS_BUFFER
        self.patience = patience
        self.context = context
        #: By aiohttp's protocol; who came or asked last is last.
        self.visits: dict[Any, Visit] = {}
        #: All connections of a peer, also those that are not visits yet.
        self.of_peer: Counter[str] = Counter()
        self._socket: socket.socket | None = None
        self._factory: Factory | None = None
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return self.of_peer.total()

    @property
    def port(self) -> int:
        """The port in use, also where 0 was asked for; 0 while it is closed."""
        return int(self._socket.getsockname()[1]) if self._socket else 0

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._socket is not None

    def now(self) -> float:
        """Seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    def open(self, listening: socket.socket, factory: Factory) -> None:
        """Accept on `listening`, which is ours from now on."""
        listening.setblocking(False)
        self._socket, self._factory = listening, factory
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep connections")
        self._resume()

    async def close(self) -> None:
        """Accept nobody any more; connections that are open are aiohttp's to close."""
        if self._socket is None or self._sweeper is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        arrivals = [visit.arrival for visit in self.visits.values() if visit.arrival]
        for task in (self._sweeper, *arrivals):
            task.cancel()
        await asyncio.gather(self._sweeper, *arrivals, return_exceptions=True)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tells requests that are under way from connections that keep us waiting."""
        visit = self.visits.pop(request.protocol, None)
        if visit is None:
            return await handler(request)
        self.visits[request.protocol] = visit
        visit.wait(self.patience.request_s)
        visit.is_served = True
        try:
            return await handler(request)
        finally:
            visit.since, visit.is_served = None, False
            self.answered()

    def admit(self, newcomers: Sequence[Newcomer]) -> None:
        """Connections that were accepted: count each in `of_peer`, and `welcome` or close it."""
        raise NotImplementedError

    def seat(self, visit: Visit) -> None:
        """A handshake is done; the visit may rest now, where it may."""

    def answered(self) -> None:
        """A request was answered."""

    def welcome(self, accepted: socket.socket, peer: str) -> Visit:
        """Begin the handshake."""
        assert self._factory is not None
        visit = Visit(self, self._factory(), peer)
        self.visits[visit.inner] = visit
        visit.arrival = asyncio.create_task(self._shake_hands(visit, accepted))
        # Also where it is cancelled before it began.
        visit.arrival.add_done_callback(lambda task: accepted.close() if task.cancelled() else None)
        return visit

    def leave(self, visit: Visit) -> None:
        """The visit is over."""
        if self.visits.pop(visit.inner, None) is not None:
            self.forget(visit.peer)

    def forget(self, peer: str) -> None:
        """One connection of the peer is gone, and counts no more."""
        self.of_peer[peer] -= 1
        if not self.of_peer[peer]:
            del self.of_peer[peer]

    def _resume(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Take what waits in the kernel."""
        assert self._socket is not None
        newcomers: list[Newcomer] = []
        try:
            while len(newcomers) < ACCEPTED_AT_ONCE:
                accepted, address = self._socket.accept()
                accepted.setblocking(False)
                newcomers.append((accepted, str(address[0])))
        except (BlockingIOError, ConnectionAbortedError):
            pass
        except OSError as error:
            loop = asyncio.get_running_loop()
            _log.warning("a connection was not accepted", error=str(error))
            loop.remove_reader(self._socket)
            loop.call_later(BREATH_S, self._resume)
        self.admit(newcomers)

    async def _shake_hands(self, visit: Visit, accepted: socket.socket) -> None:
        context = self.context
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: visit,
                accepted,
                ssl=context,
                ssl_shutdown_timeout=FAREWELL_S if context else None,
            )
        except OSError:
            # Strangers who speak no TLS, or have no certificate that we know.
            self.leave(visit)
        finally:
            visit.arrival = None

    async def _sweep(self) -> None:
        """Closes what has kept us waiting for too long; ends by cancellation."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self.now()
            late = [
                visit
                for visit in self.visits.values()
                if visit.since is not None and now - visit.since > visit.for_s
            ]
            for visit in late:
                visit.send_away()
            if late:
                _log.warning("closed connections that kept us waiting", connections=len(late))


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections come to; "::" takes those of both families. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::"
    )
