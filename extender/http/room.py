"""Limits the binds in flight, by making filter wait.

kube-scheduler schedules one pod after the other, and starts a bind for each without waiting for
earlier ones. If it is faster than the API server binds, binds pile up until they take longer than
kube-scheduler's time-out; it then retries them, and nothing is bound any more. So filter waits
while there are too many, and the pods stay in kube-scheduler's queue instead.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Binds in flight: enough to keep the API server busy.
AT_ONCE: Final = 32
#: Longest wait for one to end. kube-scheduler waits for filter for 5 s (httpTimeout).
WAIT_S: Final = 2.0


class Room:
    """Counts the binds in flight."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._n_in_flight = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Count one more while in the context; never waits."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    async def wait(self, at_most_s: float = WAIT_S) -> None:
        """Return when there is room, or after `at_most_s`."""
        if self._has_room.is_set():
            return
        try:
            async with asyncio.timeout(at_most_s):
                await self._has_room.wait()
        except TimeoutError:
            pass

    def _count(self, change: int) -> None:
        self._n_in_flight += change
        if self._n_in_flight < self._at_once:
            self._has_room.set()
        else:
            self._has_room.clear()
