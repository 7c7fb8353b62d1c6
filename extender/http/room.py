"""How many binds may be under way, and the wait for one of them to end.

kube-scheduler decides one pod after the other and starts a bind for each without waiting for those
before it. If it decides faster than the API server binds, the binds under way pile up until they
are older than kube-scheduler waits for; it then tries them again, and nothing is bound any more. So
filter waits while there are too many: the pods stay in kube-scheduler's queue instead.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Binds under way at once: enough to keep the API server busy.
AT_ONCE: Final = 32
#: Longest wait for one to end. kube-scheduler waits for filter for 5 s (httpTimeout).
WAIT_S: Final = 2.0


class Room:
    """Counts what is under way."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._n_under_way = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Counts one more for as long as the context lasts; never waits."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    async def wait(self, at_most_s: float = WAIT_S) -> None:
        """Returns when there is room, or the time is up."""
        if self._has_room.is_set():
            return
        try:
            async with asyncio.timeout(at_most_s):
                await self._has_room.wait()
        except TimeoutError:
            pass

    def _count(self, change: int) -> None:
        self._n_under_way += change
        if self._n_under_way < self._at_once:
            self._has_room.set()
        else:
            self._has_room.clear()
