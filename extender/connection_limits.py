"""Limits on a server's connections: accepts them, and closes those that keep it waiting too long.

aiohttp bounds what a request holds once its headers are read. This module bounds what comes before
and around a request: handshakes, headers and answers that never end, and silent connections. Each
server decides in its own `admit` which connection is served, and when. Nothing here looks at what a
request asks for.
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
#: How many of them are accepted before other tasks of the loop run: 3 ms.
ACCEPTED_AT_ONCE: Final = 128
#: How often connections are checked against their deadlines.
SWEEP_S: Final = 0.25
#: How long accepting pauses when the process has no file descriptor left.
ACCEPT_RETRY_S: Final = 0.1
#: How long a connection that we close waits for the peer to close its side.
CLOSE_S: Final = 1.0

_log = structlog.get_logger(__name__)
#: A connection as it was accepted, and its peer's address.
Accepted = tuple[socket.socket, str]
#: Makes aiohttp's protocol of one connection.
Factory = Callable[[], Any]


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """Connections in all and of one peer (address), and how long (s) each may keep us waiting."""

    connections: int
    a_peer: int
    #: From accepting to the end of the handshake; to the end of the first headers, unless
    #: `handshake_done` marks the connection idle in between.
    handshake_s: float = 5.0
    #: From a request's first byte to the end of its headers.
    headers_s: float = 5.0
    #: From the end of the headers until the answer is made.
    request_s: float = 15.0
    #: How long a peer may read nothing of an answer.
    unread_s: float = 5.0


class LimitedConnection(asyncio.Protocol):
    """One connection, between its transport and aiohttp's protocol.

    `since` is when it began to keep us waiting, for at most `for_s`; None while it is idle.
    `is_served` is set while one of its requests is being answered.
    """

    __slots__ = (
        "_limiter",
        "for_s",
        "handshake",
        "inner",
        "is_served",
        "peer",
        "since",
        "transport",
    )

    def __init__(self, limiter: "ConnectionLimiter", inner: Any, peer: str) -> None:
        self._limiter = limiter
        self.inner = inner
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        #: The handshake, until it is over.
        self.handshake: asyncio.Task[None] | None = None
        self.is_served = False
        self.since: float | None = None
        self.for_s = 0.0
        self.wait(limiter.limits.handshake_s)

    def wait(self, for_s: float) -> None:
        """Start a deadline of `for_s` seconds."""
        self.since, self.for_s = self._limiter.now(), for_s

    def abort(self) -> None:
        """Close the connection at once and stop counting it."""
        self._limiter.leave(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake, where there is one, has succeeded."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._limiter.handshake_done(self)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to aiohttp; the first ones after an idle time begin a request."""
        if self.since is None:
            self.wait(self._limiter.limits.headers_s)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        kept: bool | None = self.inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        """The peer does not read its answer."""
        self.wait(self._limiter.limits.unread_s)
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read its answer."""
        self.since = None
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._limiter.leave(self)
        self.inner.connection_lost(exc)


class ConnectionLimiter:
    """Accepts on one socket, for one app. `middleware` must be the app's first.

    `context` may be replaced at any time: later handshakes use the new one; without one there is no
    TLS. A subclass decides in `admit` what happens to accepted connections.
    """

    def __init__(self, limits: ConnectionLimits, context: ssl.SSLContext | None = None) -> None:
        sslproto.SSLProtocol.max_size = TLS_BUFFER
        self.limits = limits
        self.context = context
        #: By aiohttp's protocol, in the order in which they were accepted or last sent a request.
        self.connections: dict[Any, LimitedConnection] = {}
        #: Connections per peer, including those whose handshake has not begun.
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
        """Stop accepting; aiohttp closes the connections that are open."""
        if self._socket is None or self._sweeper is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        handshakes = [
            connection.handshake for connection in self.connections.values() if connection.handshake
        ]
        for task in (self._sweeper, *handshakes):
            task.cancel()
        await asyncio.gather(self._sweeper, *handshakes, return_exceptions=True)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Marks the connection of each request that is being answered."""
        connection = self.connections.pop(request.protocol, None)
        if connection is None:
            return await handler(request)
        self.connections[request.protocol] = connection
        connection.wait(self.limits.request_s)
        connection.is_served = True
        try:
            return await handler(request)
        finally:
            connection.since, connection.is_served = None, False
            self.answered()

    def admit(self, accepted: Sequence[Accepted]) -> None:
        """Count each accepted connection in `of_peer`, and begin its handshake or close it."""
        raise NotImplementedError

    def handshake_done(self, connection: LimitedConnection) -> None:
        """A handshake has succeeded; a subclass may mark the connection idle."""

    def answered(self) -> None:
        """A request was answered."""

    def begin_handshake(self, accepted: socket.socket, peer: str) -> LimitedConnection:
        """Begin the handshake."""
        assert self._factory is not None
        connection = LimitedConnection(self, self._factory(), peer)
        self.connections[connection.inner] = connection
        connection.handshake = asyncio.create_task(self._handshake(connection, accepted))
        # Also where it is cancelled before it began.
        connection.handshake.add_done_callback(
            lambda task: accepted.close() if task.cancelled() else None
        )
        return connection

    def leave(self, connection: LimitedConnection) -> None:
        """Stop counting a connection that has ended."""
        if self.connections.pop(connection.inner, None) is not None:
            self.forget(connection.peer)

    def forget(self, peer: str) -> None:
        """Count one connection of the peer less."""
        self.of_peer[peer] -= 1
        if not self.of_peer[peer]:
            del self.of_peer[peer]

    def _resume(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Accept the connections that wait in the kernel."""
        assert self._socket is not None
        connections: list[Accepted] = []
        try:
            while len(connections) < ACCEPTED_AT_ONCE:
                accepted, address = self._socket.accept()
                accepted.setblocking(False)
                connections.append((accepted, str(address[0])))
        except (BlockingIOError, ConnectionAbortedError):
            pass
        except OSError as error:
            loop = asyncio.get_running_loop()
            _log.warning("a connection was not accepted", error=str(error))
            loop.remove_reader(self._socket)
            loop.call_later(ACCEPT_RETRY_S, self._resume)
        self.admit(connections)

    async def _handshake(self, connection: LimitedConnection, accepted: socket.socket) -> None:
        context = self.context
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_shutdown_timeout=CLOSE_S if context else None,
            )
        except OSError:
            # The peer speaks no TLS, or has no certificate that we trust.
            self.leave(connection)
        finally:
            connection.handshake = None

    async def _sweep(self) -> None:
        """Close connections that are past their deadline; ends by cancellation."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self.now()
            late = [
                connection
                for connection in self.connections.values()
                if connection.since is not None and now - connection.since > connection.for_s
            ]
            for connection in late:
                connection.abort()
            if late:
                _log.warning("closed connections that kept us waiting", connections=len(late))


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections come to; "::" takes those of both families. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::"
    )
