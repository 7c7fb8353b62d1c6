"""How long containers wait for their turn: from the moment they want the card until they may.

Kept where the arbiter hears both, so that a program in a container can't make its figures up; one
wait for each time the gate was closed on somebody who had work.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gpu_shim.arbiter.server import Arbiter
from gpu_shim.arbiter.wire import Gate, Message

#: Waits that the percentile is taken of: at four leases a second, the last four minutes.
KEPT: Final = 1024

#: (container, card's UUID).
Key = tuple[str, str]


@dataclass(slots=True)
class Waits:
    """The last waits of every (container, card), in nanoseconds."""

    _open: set[Key] = field(default_factory=set)
    _since: dict[Key, int] = field(default_factory=dict)
    _took: dict[Key, deque[int]] = field(default_factory=dict)

    def opened(self, key: Key, now_ns: int) -> None:
        """The gate is open."""
        self._open.add(key)
        if (since := self._since.pop(key, None)) is not None:
            self._took.setdefault(key, deque(maxlen=KEPT)).append(now_ns - since)

    def closed(self, key: Key) -> None:
        """The gate is closed; `heard` must follow."""
        self._open.discard(key)

    def heard(self, key: Key, is_busy: bool, now_ns: int) -> None:
        """Whether anybody of the container has work for the card: behind a closed gate it waits."""
        if not is_busy:
            self._since.pop(key, None)
        elif key not in self._open:
            self._since.setdefault(key, now_ns)

    def waiting(self) -> list[Key]:
        """Who waits now."""
        return list(self._since)

    def p99_ns(self, key: Key) -> int:
        """The wait that all but one in a hundred were below; 0 where nobody waited."""
        took = sorted(self._took.get(key, ()))
        return took[(len(took) * 99 - 1) // 100] if took else 0

    def forget(self, container: str) -> None:
        """The container is gone."""
        for key in {*self._open, *self._since, *self._took}:
            if key[0] == container:
                self._open.discard(key)
                self._since.pop(key, None)
                self._took.pop(key, None)


@dataclass(slots=True)
class WatchedArbiter(Arbiter):
    """An arbiter that also keeps the waits."""

    waits: Waits = field(default_factory=Waits)

    def said(self, key: int, container: str, message: Message) -> None:
        """A process wants, yields or has drained a card."""
        Arbiter.said(self, key, container, message)
        self._heard(container, self.containers[container].cards[message.card].uuid)

    def left(self, key: int) -> None:
        """A process is gone; it may have been the one that waited."""
        Arbiter.left(self, key)
        for container, card in self.waits.waiting():
            self._heard(container, card)

    def set_gate(self, container: str, card: str, gate: Gate, deadline_ns: int) -> int:
        """Write one gate of a container; its generation then."""
        if gate == Gate.CLOSED:
            self.waits.closed((container, card))
            self._heard(container, card)
        else:
            self.waits.opened((container, card), time.monotonic_ns())
        return Arbiter.set_gate(self, container, card, gate, deadline_ns)

    def remove(self, name: str) -> None:
        """Forget a container that is gone."""
        Arbiter.remove(self, name)
        self.waits.forget(name)

    def _heard(self, container: str, card: str) -> None:
        account = self.account(container, card)
        is_busy = account is not None and account.is_busy
        self.waits.heard((container, card), is_busy, time.monotonic_ns())
