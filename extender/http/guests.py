"""Connections: how many a peer may have, and how long one may keep us waiting.

aiohttp bounds what a request holds once its headers are read. Here is bounded what comes before and
around one: handshakes, headers and answers that never end, connections that say nothing, and sheer
numbers. A new connection always finds a place: it takes that of the one which came or asked first,
so whoever holds many open keeps nobody out for long. Decides nothing about requests.
"""

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiohttp import web

#: What asyncio sets aside for one read of each TLS connection: with its own 256 KiB, a flood of
#: idle connections would cost more memory than anything else here.
TLS_BUFFER: Final = 32 * 2**10
#: How often it is looked whose time is over.
SWEEP_S: Final = 0.5
BACKLOG: Final = 128
#: For how long nobody is let in when the process has no file descriptor left.
BREATH_S: Final = 0.1

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class Patience:
    """Connections at once, of a peer (address) and in all; and seconds."""

    #: kube-scheduler has one for each bind under way, some tens in a burst.
    a_peer: int = 128
    connections: int = 256
    #: From a request's first byte to the end of its headers; at the beginning, with the handshake.
    headers_s: float = 5.0
    #: From the end of the headers until the answer is made; a bind is given up after 4 s.
    request_s: float = 15.0
    #: How long a peer may read nothing of an answer.
    unread_s: float = 5.0


class Guest(asyncio.Protocol):
    """One connection, between its transport and aiohttp's protocol.

    `since` is when it began to keep us waiting, for at most `for_s`; None while it is idle between
    two requests, which costs nothing but its place.
    """

    __slots__ = ("_house", "_transport", "arrival", "for_s", "inner", "peer", "since")

    def __init__(self, house: "House", inner: Any, peer: str) -> None:
        self._house = house
        self._transport: asyncio.Transport | None = None
        self.inner = inner
        self.peer = peer
        #: The handshake, until it is over.
        self.arrival: asyncio.Task[None] | None = None
        self.since: float | None = None
        self.for_s = 0.0
        self.wait(house.patience.headers_s)

    def wait(self, for_s: float) -> None:
        """From now on it keeps us waiting, and may do so for this long."""
        self.since, self.for_s = self._house.now(), for_s

    def send_away(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self.arrival is not None:
            self.arrival.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake, where there is one, is done."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes for aiohttp; the first ones after a rest begin a request."""
        if self.since is None:
            self.wait(self._house.patience.headers_s)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        kept: bool | None = self.inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        """The peer does not read its answer."""
        self.wait(self._house.patience.unread_s)
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self.since = None
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, by whomever."""
        self._house.leave(self)
        self.inner.connection_lost(exc)


class House:
    """Accepts on one socket, for one app. `middleware` has to be the app's first.

    `context` may be exchanged at any time; handshakes that begin from then on use it.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        sslproto.SSLProtocol.max_size = TLS_BUFFER
        self.patience = patience or Patience()
        self.context: ssl.SSLContext | None = None
        self._socket: socket.socket | None = None
        self._factory: Callable[[], Any] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        #: By aiohttp's protocol; who came or asked last is last.
        self._guests: dict[Any, Guest] = {}
        self._of_peer: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def now(self) -> float:
        """Seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    def open(self, listening: socket.socket, factory: Callable[[], Any]) -> None:
        """Accept on `listening`; `factory` makes aiohttp's protocol of one connection."""
        listening.setblocking(False)
        self._socket, self._factory = listening, factory
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep connections")
        self._resume()

    async def close(self) -> None:
        """Accept nobody any more; connections that are open are aiohttp's to close."""
        if self._socket is None or self._sweeper is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket = None
        tasks = [self._sweeper, *(guest.arrival for guest in self._guests.values())]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Tells requests that are under way from connections that keep us waiting."""
        guest = self._guests.pop(request.protocol, None)
        if guest is not None:
            self._guests[request.protocol] = guest
            guest.wait(self.patience.request_s)
        try:
            answer: web.StreamResponse = await handler(request)
            return answer
        finally:
            if guest is not None:
                guest.since = None

    def leave(self, guest: Guest) -> None:
        """The guest's connection is closed."""
        if self._guests.pop(guest.inner, None) is None:
            return
        self._of_peer[guest.peer] -= 1
        if not self._of_peer[guest.peer]:
            del self._of_peer[guest.peer]

    def _resume(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Take what waits in the kernel."""
        assert self._socket is not None
        for _ in range(BACKLOG):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                loop = asyncio.get_running_loop()
                _log.warning("a connection was not accepted", error=str(error))
                loop.remove_reader(self._socket)
                loop.call_later(BREATH_S, self._resume)
                return
            accepted.setblocking(False)
            self._enter(accepted, str(address[0]))

    def _enter(self, accepted: socket.socket, peer: str) -> None:
        """A new guest; another may have to go for it."""
        assert self._factory is not None
        guest = Guest(self, self._factory(), peer)
        self._of_peer[peer] = self._of_peer.get(peer, 0) + 1
        self._guests[guest.inner] = guest
        guest.arrival = asyncio.create_task(self._welcome(guest, accepted))
        # Also where it is cancelled before it began.
        guest.arrival.add_done_callback(lambda task: accepted.close() if task.cancelled() else None)
        if self._of_peer[peer] > self.patience.a_peer:
            self._make_room(peer)
        elif len(self._guests) > self.patience.connections:
            self._make_room(max(self._of_peer, key=self._of_peer.__getitem__))

    def _make_room(self, peer: str) -> None:
        """Sends the peer's connection away that came or asked first."""
        first = next(each for each in self._guests.values() if each.peer == peer)
        self.leave(first)
        first.send_away()

    async def _welcome(self, guest: Guest, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: guest, accepted, ssl=self.context)
        except OSError:
            # Strangers who speak no TLS, or have no certificate that we know.
            self.leave(guest)
        finally:
            guest.arrival = None

    async def _sweep(self) -> None:
        """Closes what has kept us waiting for too long; ends by cancellation."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self.now()
            late = [
                guest
                for guest in self._guests.values()
                if guest.since is not None and now - guest.since > guest.for_s
            ]
            for guest in late:
                self.leave(guest)
                guest.send_away()
            if late:
                _log.warning("closed connections that kept us waiting", connections=len(late))
