"""The door of the HTTPS server: who gets a connection, and in which order.

Connections wait as bare sockets until it is their turn for a TLS handshake, which costs both ends
together six times what a review costs here. An API server opens one for every review that finds no
idle connection, and takes whichever is free first, its own or one that another review has left. We
answer one review after another, so more connections than keep us busy only cost: a peer (address)
that has `enough` of them gets more slowly, because there may be several clients behind it. Turns go
to peers with few connections first, then round; and to the newest of each peer first: whoever came
long ago may have given up, and those who hold connections open to keep others out came before them.

A peer may hold `a_peer` connections, most of them waiting: twice what an API server has in flight
(600 by default: --max-requests-inflight, --max-mutating-requests-inflight), as it leaves some
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

from extender.door import Door, Newcomer, Patience, Visit

#: A handshake may take longer than an API server waits for a review: a connection too late for its
#: own review serves the next one. One that has said nothing after it is idle: an API server keeps
#: those that it opened for a review which came another way.
USUAL: Final = Patience(
    connections=1500, a_peer=1280, handshake_s=5.0, headers_s=2.0, request_s=10.0
)
#: For how long at most nobody new is looked at, while those that wait have no turn.
LOOK_S: Final = 0.05


@dataclass(slots=True, frozen=True)
class Pacing:
    """Handshakes: begun in one second and for each request that was answered, after `at_once` that
    were begun together; and under way.

    A peer that has `enough` connections on which no review is under way pays `more_turns` for one.
    """

    a_second: float = 20.0
    a_request: float = 0.1
    at_once: int = 32
    under_way: int = 64
    #: One less than client-go keeps idle (25, `transport/cache.go`): more are closed after one use.
    enough: int = 24
    #: So few that a long burst gets more as it goes on: a review waits for one within its 3 s.
    more_turns: int = 3


class Pace:
    """A bucket that holds `at_once` turns, and is filled with `a_second` of them every second."""

    def __init__(self, a_second: float, at_once: int, now: float) -> None:
        self._a_second = a_second
        self._at_once = at_once
        self._turns = float(at_once)
        self._as_of = now

    def take(self, now: float, turns: int = 1) -> float:
        """Take turns at the time `now`, and 0; or the seconds until there are as many."""
        filled = self._turns + (now - self._as_of) * self._a_second
        self._turns, self._as_of = min(filled, self._at_once), now
        if self._turns < turns:
            return (turns - self._turns) / self._a_second
        self._turns -= turns
        return 0.0

    def earn(self, turns: float) -> None:
        """Add to the bucket; what does not fit is lost."""
        self._turns = min(self._turns + turns, self._at_once)


class PacedDoor(Door):
    """Lets connections in one after another, peer after peer."""

    def __init__(
        self,
        context: ssl.SSLContext,
        patience: Patience = USUAL,
        pacing: Pacing | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__(patience, context)
        self._pacing = pacing or Pacing()
        self._pace = Pace(self._pacing.a_second, self._pacing.at_once, self.now())
        self._is_paced = False
        self._n_arriving = 0
        self._waiting: dict[str, deque[socket.socket]] = {}
        self._count = Metric(
            "ballast_webhook_connections_total",
            "Connections, by what became of them: served, given up before a request, turned away.",
            ["outcome"],
            registry=registry,
        )

    async def close(self) -> None:
        """Let nobody in any more; open connections are aiohttp's to close."""
        await super().close()
        for peer in list(self._waiting):
            while peer in self._waiting:
                self._turn_away(peer)

    def admit(self, newcomers: Sequence[Newcomer]) -> None:
        """They wait for their turn; where too many do, one of them goes."""
        for accepted, peer in newcomers:
            self._waiting.setdefault(peer, deque()).append(accepted)
            self.of_peer[peer] += 1
            if self.of_peer[peer] > self.patience.a_peer:
                self._turn_one_away(peer, peer)
            elif len(self) > self.patience.connections:
                most = max(self._waiting, key=lambda each: len(self._waiting[each]))
                self._turn_one_away(most, "")
        self._let_in()

    def seat(self, visit: Visit) -> None:
        """From now on it is idle."""
        visit.since = None

    def answered(self) -> None:
        """Reviews that come earn turns for handshakes."""
        self._pace.earn(self._pacing.a_request)

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
        self.forget(peer)

    def _make_room(self, peer: str) -> bool:
        """Close the first connection (of `peer`, where named) without a request; whether there was
        one.

        One that is idle goes before one that has said half of its headers.
        """
        unused = [
            visit
            for visit in self.visits.values()
            if visit.transport and not visit.is_served and peer in ("", visit.peer)
        ]
        found = next((visit for visit in unused if visit.since is None), next(iter(unused), None))
        if found is None:
            return False
        found.send_away()
        self._count.labels("turned_away").inc()
        return True

    def _let_in(self) -> None:
        """Begin handshakes as long as there is a place and time: peer after peer."""
        if self._is_paced:
            return
        pacing = self._pacing
        free = Counter(visit.peer for visit in self.visits.values() if not visit.is_served)
        while self._n_arriving < pacing.under_way and (found := self._next(free)):
            accepted, peer = found
            turns = pacing.more_turns if free[peer] >= pacing.enough else 1
            wait_s = self._pace.take(self.now(), turns)
            if wait_s > 0:
                self._waiting.setdefault(peer, deque()).append(accepted)
                self._is_paced = True
                asyncio.get_running_loop().call_later(min(wait_s, LOOK_S), self._let_in_again)
                return
            self._n_arriving += 1
            free[peer] += 1
            visit = self.welcome(accepted, peer)
            assert visit.arrival is not None
            visit.arrival.add_done_callback(partial(self._arrived, visit))

    def _next(self, free: Counter[str]) -> Newcomer | None:
        """Whose turn it is, taken out of those that wait; who has left meanwhile is forgotten.

        `free` are the connections that each peer has to use.
        """
        while self._waiting:
            peer = min(self._waiting, key=lambda each: free[each] >= self._pacing.enough)
            waiting = self._waiting.pop(peer)
            accepted = waiting.pop()
            if waiting:
                self._waiting[peer] = waiting
            if not _has_left(accepted):
                return accepted, peer
            accepted.close()
            self._count.labels("given_up").inc()
            self.forget(peer)
        return None

    def _let_in_again(self) -> None:
        self._is_paced = False
        self._let_in()

    def _arrived(self, visit: Visit, _handshake: asyncio.Task[None]) -> None:
        self._n_arriving -= 1
        self._count.labels("served" if visit.transport else "given_up").inc()
        if self.is_open:
            self._let_in()


def _has_left(accepted: socket.socket) -> bool:
    """Whether the peer has closed the connection again."""
    try:
        return accepted.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
