"""How long containers wait for a card: from WANT until their gate opens.

The arbiter measures this, so a program cannot forge it. There is one wait for each time that a gate
was closed to a container with work.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

#: Waits in the percentile: at four leases a second, the last four minutes.
KEPT: Final = 1024

#: (container, card's UUID).
Key = tuple[str, str]


@dataclass(slots=True)
class Waits:
    """The last waits of every (container, card), in nanoseconds."""

    _open: set[Key] = field(default_factory=set)
    _since: dict[Key, int] = field(default_factory=dict)
    _took: dict[Key, deque[int]] = field(default_factory=dict)

    def gate_opened(self, container: str, card: str, now_ns: int) -> None:
        """The gate is open."""
        key = container, card
        self._open.add(key)
        if (since := self._since.pop(key, None)) is not None:
            self._took.setdefault(key, deque(maxlen=KEPT)).append(now_ns - since)

    def gate_closed(self, container: str, card: str) -> None:
        """The gate is closed; `demand` must follow."""
        self._open.discard((container, card))

    def demand(self, container: str, card: str, is_busy: bool, now_ns: int) -> None:
        """Whether the container has work for the card; at a closed gate it waits."""
        key = container, card
        if not is_busy:
            self._since.pop(key, None)
        elif key not in self._open:
            self._since.setdefault(key, now_ns)

    def p99_ns(self, key: Key) -> int:
        """The 99th percentile of the waits; 0 if there were none."""
        took = sorted(self._took.get(key, ()))
        return took[(len(took) * 99 - 1) // 100] if took else 0

    def forget(self, container: str) -> None:
        """The container is gone."""
        for key in {*self._open, *self._since, *self._took}:
            if key[0] == container:
                self._open.discard(key)
                self._since.pop(key, None)
                self._took.pop(key, None)
