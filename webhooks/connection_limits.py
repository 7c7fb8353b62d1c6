"""Limits on connections to the HTTPS server, and the order of their TLS handshakes.

Accepted connections wait as bare sockets for their handshake, which costs six times as much as a
review, both ends together. An API server opens a connection for every review that finds none idle,
and uses the first one that is free. Reviews are answered one at a time, so connections beyond those
that keep the process busy are pure cost: a peer (address) that has `enough` of them gets further
ones more slowly, since several clients may share the address. Handshakes go to peers with few
connections first, then round robin, and to the newest connection of a peer first: older ones may
have been given up, and connections that are held open to keep others out are older still.

A peer may hold `a_peer` connections, most of them waiting: twice what an API server has in flight
(600 by default: --max-requests-inflight, --max-mutating-requests-inflight), since it leaves some
behind.
"""

import asyncio
import socket
import ssl
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

from extender.connection_limits import (
    Accepted,
    ConnectionLimiter,
    ConnectionLimits,
    LimitedConnection,
)
from extender.kube.backoff import TokenBucket

#: A handshake may take longer than an API server waits for a review: a connection that is too late
#: for its own review serves the next one. A silent connection after that is idle: its review was
#: sent over another one.
USUAL: Final = ConnectionLimits(
    connections=1500, a_peer=1280, handshake_s=5.0, headers_s=2.0, request_s=10.0
)
#: The longest pause before the waiting connections are checked again for a due handshake.
RETRY_S: Final = 0.05


@dataclass(slots=True, frozen=True)
class Pacing:
    """Rates of handshakes per second and per answered request after a burst of `at_once`, and how
    many are in progress at a time.

    For a peer with `enough` connections without a review, a handshake costs `more_turns` tokens.
    """

    a_second: float = 20.0
    a_request: float = 0.1
    at_once: int = 32
    under_way: int = 64
    #: One less than client-go keeps idle (25, `transport/cache.go`): further ones are closed after
    #: one use.
    enough: int = 24
    #: Low enough that a long burst gains connections: a review waits for one within its 3 s.
    more_turns: int = 3


class PacedConnections(ConnectionLimiter):
    """Begins handshakes at a limited rate, peer after peer."""

    def __init__(
        self,
        context: ssl.SSLContext,
        limits: ConnectionLimits = USUAL,
        pacing: Pacing | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__(limits, context)
        self._pacing = pacing or Pacing()
        self._pace = TokenBucket(self._pacing.a_second, self._pacing.at_once, self.now())
        self._is_paced = False
        self._n_handshakes = 0
        self._waiting: dict[str, deque[socket.socket]] = {}
        self._count = Metric(
            "ballast_webhook_connections_total",
            "Connections, by outcome: served, given up before a request, turned away.",
            ["outcome"],
            registry=registry,
        )

    async def close(self) -> None:
        """Stop accepting; aiohttp closes the connections that are open."""
        await super().close()
        for peer in list(self._waiting):
            while peer in self._waiting:
                self._reject(peer)

    def admit(self, connections: Sequence[Accepted]) -> None:
        """Queue the connections for their handshakes; at a limit, close a waiting one."""
        for accepted, peer in connections:
            self._waiting.setdefault(peer, deque()).append(accepted)
            self.of_peer[peer] += 1
            if self.of_peer[peer] > self.limits.a_peer:
                self._reject_one(peer, peer)
            elif len(self) > self.limits.connections:
                most = max(self._waiting, key=lambda each: len(self._waiting[each]))
                self._reject_one(most, "")
        self._begin_handshakes()

    def handshake_done(self, connection: LimitedConnection) -> None:
        """Mark the connection idle."""
        connection.since = None

    def answered(self) -> None:
        """Earn part of a handshake for an answered review."""
        self._pace.earn(self._pacing.a_request)

    def _reject_one(self, peer: str, among: str) -> None:
        """Close the oldest of several waiting connections: its review is most likely answered.

        If only one waits, close an open connection without a request instead, if there is one.
        """
        if len(self._waiting[peer]) > 1 or not self._make_room(among):
            self._reject(peer)

    def _reject(self, peer: str) -> None:
        """Close the peer's oldest waiting connection."""
        waiting = self._waiting[peer]
        waiting.popleft().close()
        self._count.labels("turned_away").inc()
        if not waiting:
            del self._waiting[peer]
        self.forget(peer)

    def _make_room(self, peer: str) -> bool:
        """Close the first connection (of `peer`, if given) without a request; return whether there
        was one.

        An idle one is closed before one that has sent part of its headers.
        """
        unused = [
            connection
            for connection in self.connections.values()
            if connection.transport and not connection.is_served and peer in ("", connection.peer)
        ]
        found = next(
            (connection for connection in unused if connection.since is None),
            next(iter(unused), None),
        )
        if found is None:
            return False
        found.abort()
        self._count.labels("turned_away").inc()
        return True

    def _begin_handshakes(self) -> None:
        """Begin handshakes, peer after peer, as far as limits and pace allow."""
        if self._is_paced:
            return
        pacing = self._pacing
        free = Counter(
            connection.peer for connection in self.connections.values() if not connection.is_served
        )
        while self._n_handshakes < pacing.under_way and (found := self._next(free)):
            accepted, peer = found
            turns = pacing.more_turns if free[peer] >= pacing.enough else 1
            wait_s = self._pace.take(self.now(), turns)
            if wait_s > 0:
                self._waiting.setdefault(peer, deque()).append(accepted)
                self._is_paced = True
                asyncio.get_running_loop().call_later(min(wait_s, RETRY_S), self._resume_handshakes)
                return
            self._n_handshakes += 1
            free[peer] += 1
            connection = self.begin_handshake(accepted, peer)
            assert connection.handshake is not None
            connection.handshake.add_done_callback(partial(self._handshake_ended, connection))

    def _next(self, free: Counter[str]) -> Accepted | None:
        """Remove and return the next connection to handshake; drop those that their peer has
        closed.

        `free` counts each peer's connections without a review in progress.
        """
        while self._waiting:
            peer = min(self._waiting, key=lambda each: free[each] >= self._pacing.enough)
            waiting = self._waiting.pop(peer)
            accepted = waiting.pop()
            if waiting:
                self._waiting[peer] = waiting
            if not _is_closed_by_peer(accepted):
                return accepted, peer
            accepted.close()
            self._count.labels("given_up").inc()
            self.forget(peer)
        return None

    def _resume_handshakes(self) -> None:
        self._is_paced = False
        self._begin_handshakes()

    def _handshake_ended(
        self, connection: LimitedConnection, _handshake: asyncio.Task[None]
    ) -> None:
        self._n_handshakes -= 1
        self._count.labels("served" if connection.transport else "given_up").inc()
        if self.is_open:
            self._begin_handshakes()


def _is_closed_by_peer(accepted: socket.socket) -> bool:
    """Whether the peer has closed the connection."""
    try:
        return accepted.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
