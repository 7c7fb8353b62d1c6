"""Reads request bodies, with a bound on the memory of all bodies read at one time.

Short bodies are read as they arrive. A longer one first reserves its declared length from a budget,
and waits for it until its deadline. Very long bodies have a separate budget, so that they do not
delay calls of ordinary length.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from aiohttp import hdrs, web

#: 5,000 node names are 160 KB, 5,000 bare Node objects some 8 MiB.
MAX_BODY_BYTES: Final = 8 * 2**20
SHORT_BODY_BYTES: Final = 32 * 2**10
ORDINARY_BODY_BYTES: Final = 2**20
#: The budget for all bodies of one kind.
ROOM_BYTES: Final = 2 * MAX_BODY_BYTES
#: A body that takes longer is given up; kube-scheduler's own timeout is 5 s.
BODY_TIMEOUT_S: Final = 5.0
JSON: Final = "application/json"


class _ByteBudget:
    """A budget of bytes; a reader that needs more than is left waits, in no particular order."""

    def __init__(self) -> None:
        self._left = ROOM_BYTES
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._left >= size)
            self._left -= size

    async def give(self, size: int) -> None:
        async with self._changed:
            self._left += size
            self._changed.notify_all()


class BodyReader:
    """Reads the bodies of one app."""

    def __init__(self) -> None:
        self._ordinary, self._long = _ByteBudget(), _ByteBudget()

    async def read(self, request: web.Request) -> bytes:
        """The body; raises the HTTP error that says why it is not read."""
        if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise web.HTTPUnsupportedMediaType(
                text="compressed bodies are not read; send plain JSON"
            )
        if request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType(text=f"the body must be {JSON}")
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._read(request)
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="the body did not come in time") from error

    async def _read(self, request: web.Request) -> bytes:
        parts: list[bytes] = []
        size, may_be = 0, min(request.content_length or MAX_BODY_BYTES, MAX_BODY_BYTES)
        budget = self._ordinary if may_be <= ORDINARY_BODY_BYTES else self._long
        async with AsyncExitStack() as taken:
            while part := await request.content.readany():
                was_short = size <= SHORT_BODY_BYTES
                size += len(part)
                parts.append(part)
                if size > MAX_BODY_BYTES:
                    raise web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES, size)
                if was_short and size > SHORT_BODY_BYTES:
                    await budget.take(may_be)
                    taken.push_async_callback(budget.give, may_be)
            return b"".join(parts)
