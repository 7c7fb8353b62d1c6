"""How long one cycle may decide: CPU time of the thread that decides, from its first stage on.

Not by the wall clock: a controller that gets a twentieth of a core would spend its budget waiting
for that core, and cut every workload in every cycle. What comes before the first stage is the same
in every cycle, however little is decided, so it does not count.
"""

import time
from collections.abc import Callable


class CycleBudget:
    """`budget_s` seconds, counted by `now` (seconds) from the first `start` on."""

    def __init__(self, budget_s: float, now: Callable[[], float] = time.thread_time) -> None:
        self._budget_s = budget_s
        self._now = now
        self._ends = float("inf")

    def start(self) -> None:
        """A stage begins; only the first one starts the budget."""
        if self._ends == float("inf"):
            self._ends = self._now() + self._budget_s

    def is_spent(self) -> bool:
        """Whether the time is over. Must be asked in the thread that called `start`."""
        return self._now() > self._ends
