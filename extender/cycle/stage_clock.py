"""How long each stage of one cycle takes: decisions are pure, so their caller has the clock."""

import time
from collections.abc import Callable
from typing import Final

from extender.cycle import metrics

#: What `decide` does before its first stage: promises, demand and fair shares.
PREPARE: Final = "prepare"


class StageClock:
    """Counts the time from `enter` to `enter`, and to `stop`, for the stage that was entered.

    It starts with `PREPARE`. What a plan costs once all is decided counts for the last stage.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._stage = PREPARE
        self._since = now()

    def enter(self, stage: str) -> None:
        """The stage begins, and the one before it is over."""
        self.stop()
        self._stage = stage

    def stop(self) -> None:
        """The stage is over."""
        now = self._now()
        metrics.STAGE_SECONDS.labels(self._stage).observe(now - self._since)
        self._since = now
