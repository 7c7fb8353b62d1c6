"""The bodies of reviews: limits on their size, and on how many large ones are read at a time.

An object in a review can be much larger than the 1.5 MiB that etcd stores: a request may have 3
MiB, and the API server escapes each `<` as six characters. Tenants choose the size, and a review
without an answer lets the object through. So every body is read to its end, but of an object above
`MAX_OBJECT` only the head is kept, which is enough to refuse it.

Bodies above `SMALL` wait for a turn: one per namespace, two at a time, and at most a quarter of the
process's time. Smaller bodies do not wait for them. If the turn does not come in time, the body is
answered from its head too.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from aiohttp import StreamReader
from msgspec import Struct

from webhooks.review import Request, ReviewError, read

#: Longest object that is decoded, as JSON: larger than any that etcd stores, without escapes.
MAX_OBJECT: Final = 2 * 2**20
#: Longest body that is read to its end: a new object of 3 MiB and a stored one of 1.5 MiB, with
#: every character escaped, and their envelope.
MAX_BODY: Final = 28 * 2**20
#: Pods have a few KiB; hardly any reviewed pod is larger than this.
SMALL: Final = 64 * 2**10
TURNS: Final = 2
#: Pause before the next large review, as a multiple of the time that the last one took.
REST: Final = 3.0
#: The API server gives up after 3 s.
LARGE_WITHIN_S: Final = 2.0
#: Where the object begins. Within a JSON string each quote would be escaped.
_OBJECT: Final = re.compile(rb',"(?:object|oldObject)":\{')


class Oversized(Struct, frozen=True):
    """A body of which only the head was kept; `is_late` if its turn did not come in time."""

    request: Request
    is_late: bool = False


class TooLargeError(ValueError):
    """The body is too large, and its head has no request to answer."""


def _read_head(text: bytes) -> Request | None:
    """The request without its objects, from the first part of a body; None if it is incomplete."""
    found = _OBJECT.search(text)
    if found is None:
        return None
    try:
        return read(text[: found.start()] + b"}}")
    except ReviewError:
        return None


class Lane:
    """Turns for large bodies: one per namespace, `TURNS` at a time, with pauses between them."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._turns = asyncio.Semaphore(TURNS)
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Holds a turn, in which the body is read and answered."""
        lock = self._of.get(namespace)
        if lock is None:
            lock = self._of[namespace] = asyncio.Lock()
        async with lock, self._turns:
            now = asyncio.get_running_loop().time()
            if now < self._free_at:
                await asyncio.sleep(self._free_at - now)
            yield

    def used(self, took_s: float) -> None:
        """Record how long a turn took."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + REST * took_s


class ReviewReader:
    """Reads bodies; a large one holds its turn until the caller's exit stack is closed."""

    def __init__(self, lane: Lane, large_within_s: float = LARGE_WITHIN_S) -> None:
        self._lane = lane
        self._large_within_s = large_within_s

    async def read(
        self, content: StreamReader, length: int | None, place: AsyncExitStack
    ) -> bytes | Oversized:
        """The body, or its head if the body is too large or late; `place` holds its turn.

        Raises TooLargeError; TimeoutError is the caller's to raise.
        """
        parts: list[bytes] = []
        size = 0
        while size <= SMALL:
            part = await content.readany()
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
        head = _read_head(b"".join(parts))
        if length is not None and length > _most(head):
            return await _drain(content, head, size)
        if head is None:
            await place.enter_async_context(self._lane.turn(""))
            return await _rest(content, parts, size, None)
        try:
            async with asyncio.timeout(self._large_within_s):
                await place.enter_async_context(self._lane.turn(head.namespace))
                return await _rest(content, parts, size, head)
        except TimeoutError:
            return Oversized(head, is_late=True)


def _most(head: Request | None) -> int:
    """Longest body that is kept: an update contains two objects."""
    n_objects = 2 if head is not None and head.operation == "UPDATE" else 1
    return n_objects * MAX_OBJECT + SMALL


async def _rest(
    content: StreamReader, parts: list[bytes], size: int, head: Request | None
) -> bytes | Oversized:
    """The whole body; `parts` were read before."""
    while part := await content.readany():
        size += len(part)
        if size > _most(head):
            parts.clear()
            return await _drain(content, head, size)
        parts.append(part)
    return b"".join(parts)


async def _drain(content: StreamReader, head: Request | None, size: int) -> Oversized:
    """Reads the rest and discards it, so that the API server can receive the answer."""
    if head is None:
        raise TooLargeError
    while size <= MAX_BODY and (part := await content.readany()):
        size += len(part)
    return Oversized(head)
