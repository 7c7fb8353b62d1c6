"""Who may be connected to the extender: everybody, for as long as nobody newer needs the place.

A new connection always finds one: it takes that of the one which came or asked first, of the same
peer or of the peer that has the most, so whoever holds many open keeps nobody out for long.
"""

from collections.abc import Sequence
from typing import Final

from extender.door import Door, Newcomer, Patience

#: kube-scheduler has a connection for each bind under way, some tens in a burst.
USUAL: Final = Patience(connections=256, a_peer=128)


class House(Door):
    """Lets everybody in at once."""

    def admit(self, newcomers: Sequence[Newcomer]) -> None:
        """Each finds a place; another may have to go for it."""
        for accepted, peer in newcomers:
            self.of_peer[peer] += 1
            self.welcome(accepted, peer)
            if self.of_peer[peer] > self.patience.a_peer:
                self._make_room(peer)
            elif len(self) > self.patience.connections:
                self._make_room(max(self.of_peer, key=self.of_peer.__getitem__))

    def _make_room(self, peer: str) -> None:
        """Sends the peer's connection away that came or asked first."""
        next(each for each in self.visits.values() if each.peer == peer).send_away()
