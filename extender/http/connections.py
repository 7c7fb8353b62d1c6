"""Connections to the extender: a new one is always accepted, if need be by closing an old one.

At a limit, the connection that has been idle or silent for longest is closed, of the same peer or
of the peer with the most connections. So a peer with many open connections can't keep others out. A
connection with a request that is being answered is closed only if all of the peer's have one.
"""

from collections.abc import Sequence
from typing import Final

from extender.connection_limits import Accepted, ConnectionLimiter, ConnectionLimits

#: kube-scheduler opens a connection for each bind in flight, some tens in a burst.
USUAL: Final = ConnectionLimits(connections=256, a_peer=128)


class NewestConnections(ConnectionLimiter):
    """Begins every handshake at once."""

    def admit(self, connections: Sequence[Accepted]) -> None:
        """Serve each connection; at a limit, close another one."""
        for accepted, peer in connections:
            self.of_peer[peer] += 1
            self.begin_handshake(accepted, peer)
            if self.of_peer[peer] > self.limits.a_peer:
                self._make_room(peer)
            elif len(self) > self.limits.connections:
                self._make_room(max(self.of_peer, key=self.of_peer.__getitem__))

    def _make_room(self, peer: str) -> None:
        """Close the peer's connection that was idle or silent for longest."""
        own = [each for each in self.connections.values() if each.peer == peer]
        next((each for each in own if not each.is_served), own[0]).abort()
