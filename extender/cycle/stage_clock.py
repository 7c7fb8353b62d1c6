"""Times each stage of one cycle: decisions are pure, so their caller has the clock."""

import time
from collections.abc import Callable
from typing import Final

from extender.cycle import metrics

#: What `decide` does before its first stage: nominations, demand and fair shares.
PREPARE: Final = "prepare"


class StageClock:
    """Counts the time from one `enter` to the next, or to `stop`, for the stage entered first.

    It starts with `PREPARE`. Work after the last stage counts for that stage.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._stage = PREPARE
        self._since = now()

    def enter(self, stage: str) -> None:
        """Begin the stage, and end the one before it."""
        self.stop()
        self._stage = stage

    def stop(self) -> None:
        """End the stage."""
        now = self._now()
        metrics.STAGE_SECONDS.labels(self._stage).observe(now - self._since)
        self._since = now
