"""A job's work under checkpoints: what it has done, what a stop costs, when it will be finished.

A job saves its state every 30 minutes of running. If it is stopped or moved, it goes on from the
last save, after 60 s in which it holds its GPUs and does nothing (start, load).
"""

from dataclasses import dataclass
from typing import Final

CHECKPOINT_S: Final = 1800
RESTART_S: Final = 60


@dataclass(slots=True)
class JobProgress:
    """One job's way to its end. `held_s` is how long it has held its GPUs in all its runs."""

    run_s: int
    saved_s: int = 0
    held_s: int = 0
    n_stops: int = 0
    started_s: int = 0

    @property
    def lost_s(self) -> int:
        """Once it has finished: seconds that its GPUs were held for nothing."""
        return self.held_s - self.run_s

    def start(self, now_s: int) -> int:
        """It runs from now on; returns when it will finish if nothing stops it."""
        self.started_s = now_s
        return now_s + self._load_s() + self.run_s - self.saved_s

    def stop(self, now_s: int) -> int:
        """It is stopped and keeps what it saved; returns the seconds that were held for nothing."""
        ran_s = now_s - self.started_s
        kept_s = max(0, ran_s - self._load_s()) // CHECKPOINT_S * CHECKPOINT_S
        self.saved_s += kept_s
        self.held_s += ran_s
        self.n_stops += 1
        return ran_s - kept_s

    def finish(self, now_s: int) -> int:
        """Its work is done; returns seconds of its last run that were held for nothing."""
        self.held_s += now_s - self.started_s
        return self._load_s()

    def _load_s(self) -> int:
        return RESTART_S if self.n_stops else 0
