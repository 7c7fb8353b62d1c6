"""When rows are written that can wait, so that a pod with a free place does not wait behind them.

In a mass reclaim rows of victims are freed, and places of pods that wait for victims are written,
by the hundred. Such writes have turns: a turn ends after `TURN_S`, and the next one begins when
the time that it took has passed again. A cycle between two turns writes free places only.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from extender.ledger.writer import RowChange

#: How long one cycle writes rows that can wait, in seconds; a write under way is finished.
TURN_S: Final = 0.2
#: Nodes that are written at a time: enough to keep the API server busy, too few to starve others.
NODES_AT_ONCE: Final = 16


class Turns:
    """Counts the time that writes take. Outside of a cycle that began with `begin` all may go."""

    def __init__(self) -> None:
        self._is_open = True
        self._spent_s = 0.0
        self._resumes_at = float("-inf")

    def begin(self, *, is_taken: bool) -> None:
        """A cycle begins; `is_taken`: rows of an earlier turn are still being written."""
        self._is_open = not is_taken and _now() >= self._resumes_at
        self._spent_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether this cycle has a turn, and the turn is not over."""
        return self._is_open and self._spent_s < TURN_S

    @property
    def next_in_s(self) -> float:
        """Until the next turn begins."""
        return max(0.0, self._resumes_at - _now())

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Rows that can wait are written meanwhile."""
        began = _now()
        try:
            yield
        finally:
            now = _now()
            self._spent_s += now - began
            self._resumes_at = now + self._spent_s


def batches(changes: Sequence[RowChange]) -> Iterator[list[RowChange]]:
    """The changes in parts of about `NODES_AT_ONCE` nodes; a node is in one part if possible."""
    left = list(changes)
    while left:
        nodes: set[str] = set()
        batch: list[RowChange] = []
        others: list[RowChange] = []
        for change in left:
            touched = {*change.rows, *change.frees, *change.bound}
            if len(nodes) < NODES_AT_ONCE or touched <= nodes:
                nodes |= touched
                batch.append(change)
            else:
                others.append(change)
        yield batch
        left = others


def _now() -> float:
    return asyncio.get_running_loop().time()
