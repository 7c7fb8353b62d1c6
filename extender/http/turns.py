"""Locks by key: by pod for binds, by node for writes of its rows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLocks:
    """One lock per key, kept only while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._n_users: dict[str, int] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Hold the key's lock; callers get it in the order of their calls."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._n_users[key] = self._n_users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._n_users[key] -= 1
            if not self._n_users[key]:
                del self._n_users[key], self._locks[key]

    def __len__(self) -> int:
        return len(self._locks)
