"""How long containers wait for their turn, from the moment they ask until their gate opens.

Kept where the arbiter hears both, so that a program in a container can't make its figures up; one
wait for each time the gate was closed on somebody who had work.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gpu_shim.arbiter.server import Arbiter
from gpu_shim.arbiter.wire import Gate, Kind, Message

#: Waits that the percentile is taken of: at four leases a second, the last four minutes.
KEPT: Final = 1024

Key = tuple[str, str]


@dataclass(slots=True)
class Waits:
    """The last waits of every (container, card), in nanoseconds."""

    _since: dict[Key, int] = field(default_factory=dict)
    _took: dict[Key, deque[int]] = field(default_factory=dict)

    def wanted(self, key: Key, now_ns: int) -> None:
        """Somebody of the container waits; from the first of them on it counts."""
        self._since.setdefault(key, now_ns)

    def opened(self, key: Key, now_ns: int) -> None:
        """The gate is open."""
        if (since := self._since.pop(key, None)) is not None:
            self._took.setdefault(key, deque(maxlen=KEPT)).append(now_ns - since)

    def p99_ns(self, key: Key) -> int:
        """The wait that all but one in a hundred were below; 0 where nobody waited."""
        took = sorted(self._took.get(key, ()))
        return took[(len(took) * 99 - 1) // 100] if took else 0

    def forget(self, container: str) -> None:
        """The container is gone."""
        for kept in (self._since, self._took):
            for key in [key for key in kept if key[0] == container]:
                del kept[key]


@dataclass(slots=True)
class WatchedArbiter(Arbiter):
    """An arbiter that also keeps the waits."""

    waits: Waits = field(default_factory=Waits)

    def said(self, key: int, container: str, message: Message) -> None:
        """A process wants, yields or has drained a card."""
        if message.kind == Kind.WANT and self.is_timed:
            card = self.containers[container].cards[message.card].uuid
            self.waits.wanted((container, card), time.monotonic_ns())
        Arbiter.said(self, key, container, message)

    def set_gate(self, container: str, card: str, gate: Gate, deadline_ns: int) -> int:
        """Write one gate of a container; its generation then."""
        if gate != Gate.CLOSED:
            self.waits.opened((container, card), time.monotonic_ns())
        return Arbiter.set_gate(self, container, card, gate, deadline_ns)

    def remove(self, name: str) -> None:
        """Forget a container that is gone."""
        Arbiter.remove(self, name)
        self.waits.forget(name)
