"""The bodies of reviews: how much of one is kept, and how many large ones at a time.

An object in a review can be much larger than the 1.5 MiB that etcd stores: a request may have
3 MiB, and the API server writes each `<` of it as six characters. A tenant chooses what that costs
here, and a review without an answer lets the object through. So every body is read to its end, but
of an object above `MAX_OBJECT` only the head is kept, which is enough to refuse it.

Bodies above `SMALL` wait for a turn: one per namespace, two at a time, and for at most a quarter of
the process's time. Smaller bodies do not wait for them. A body whose turn does not come in time is
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

#: Longest object that is looked at, as JSON: more than what etcd stores, written plainly.
MAX_OBJECT: Final = 2 * 2**20
#: Longest body that is read to its end: a new object of 3 MiB and a stored one of 1.5 MiB, in which
#: every character is escaped, and their frame.
MAX_BODY: Final = 28 * 2**20
#: Pods are some KiB; of those that are reviewed, hardly one is larger than this.
SMALL: Final = 64 * 2**10
TURNS: Final = 2
#: After a large review the next one rests for so many times what that one took.
REST: Final = 3.0
#: The API server gives up after 3 s.
LARGE_WITHIN_S: Final = 2.0
#: Where the object begins. Inside of a string each quote would stand behind a backslash.
_OBJECT: Final = re.compile(rb',"(?:object|oldObject)":\{')


class Oversized(Struct, frozen=True):
    """A body of which only the head is known, and why the rest is not."""

    request: Request
    is_late: bool = False


class TooLargeError(ValueError):
    """The body is too large, and says nothing that an answer needs."""


def read_head(text: bytes) -> Request | None:
    """The request without its objects, from the first part of a body; None where it has no end."""
    found = _OBJECT.search(text)
    if found is None:
        return None
    try:
        return read(text[: found.start()] + b"}}")
    except ReviewError:
        return None


class Lane:
    """Turns for what is large: one of a namespace, `TURNS` in all, with rests between them."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._turns = asyncio.Semaphore(TURNS)
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """A turn; its body is read and answered meanwhile."""
        lock = self._of.get(namespace)
        if lock is None:
            lock = self._of[namespace] = asyncio.Lock()
        async with lock, self._turns:
            now = asyncio.get_running_loop().time()
            if now < self._free_at:
                await asyncio.sleep(self._free_at - now)
            yield

    def used(self, took_s: float) -> None:
        """Tell what a turn cost."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + REST * took_s


class ReviewReader:
    """Reads bodies; those that are large have their turn until `place` is left."""

    def __init__(self, lane: Lane, large_within_s: float = LARGE_WITHIN_S) -> None:
        self._lane = lane
        self._large_within_s = large_within_s

    async def read(
        self, content: StreamReader, length: int | None, place: AsyncExitStack
    ) -> bytes | Oversized:
        """The body, or what is known of one that is too large or comes too late.

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
        head = read_head(b"".join(parts))
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
    """Longest body that is kept: an update has two objects."""
    n_objects = 2 if head is not None and head.operation == "UPDATE" else 1
    return n_objects * MAX_OBJECT + SMALL


async def _rest(
    content: StreamReader, parts: list[bytes], size: int, head: Request | None
) -> bytes | Oversized:
    """The whole body, of which `parts` are known already."""
    while part := await content.readany():
        size += len(part)
        if size > _most(head):
            parts.clear()
            return await _drain(content, head, size)
        parts.append(part)
    return b"".join(parts)


async def _drain(content: StreamReader, head: Request | None, size: int) -> Oversized:
    """Reads the rest and keeps nothing, so that the API server gets to read the answer."""
    if head is None:
        raise TooLargeError
    while size <= MAX_BODY and (part := await content.readany()):
        size += len(part)
    return Oversized(head)
