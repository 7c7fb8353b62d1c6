"""The time budget of one cycle: CPU time of the deciding thread, from its first stage on.

CPU time, not wall time: a controller with a twentieth of a core would spend its budget waiting for
that core, and cut every workload in every cycle. The work before the first stage does not count: it
is the same in every cycle, however little is decided.
"""

import time
from collections.abc import Callable


class CycleBudget:
    """`budget_s` seconds, measured by `now` (seconds) from the first `start` on."""

    def __init__(self, budget_s: float, now: Callable[[], float] = time.thread_time) -> None:
        self._budget_s = budget_s
        self._now = now
        self._ends = float("inf")

    def start(self) -> None:
        """Begin a stage; only the first call starts the budget."""
        if self._ends == float("inf"):
            self._ends = self._now() + self._budget_s

    def is_spent(self) -> bool:
        """Whether the budget is used up. Call it in the thread that called `start`."""
        return self._now() > self._ends
