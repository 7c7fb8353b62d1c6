"""The stages that a cycle runs: most of them every time, emptying of nodes only now and then."""

import time
from collections.abc import Callable
from typing import Final

from extender.policy.plan import ALL_STAGES, Stage

#: Between two searches for a node to empty: each may read all pods.
EMPTY_EVERY_S: Final = 10.0
_OFTEN: Final[tuple[Stage, ...]] = tuple(s for s in ALL_STAGES if s != "empty-nodes")


class StageTurns:
    """Call it once per cycle; `now` counts seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._empty_at = float("-inf")

    def next(self) -> tuple[Stage, ...]:
        """The stages of the cycle that begins, in order."""
        now = self._now()
        if now < self._empty_at:
            return _OFTEN
        self._empty_at = now + EMPTY_EVERY_S
        return ALL_STAGES
