"""Reads owners from the API server within a review's time budget, and caches them briefly.

Reads are used, not a watch, for four reasons. An owner's pods come in a burst, so one read serves
all of them. Most pods need none, because their labels suffice. A kind that is not installed has no
pods, and so costs nothing. A replica that has just started knows as much as one that has run for a
week. A watch would hold every Job of the cluster in memory, and would still miss an owner that was
created a moment ago.

A cached answer may be `keep_s` old. A failed read is answered with "not known", never with an
error: the API server calls us with failurePolicy Ignore and a timeout of 3 s, and a pod without its
gang's size is better off than a pod without its gate. After a failure there are no reads for
`rest_s`, to spare an API server in trouble and to keep reviews fast.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from extender.kube.errors import KubeError, RequestRefused, Throttled, Unauthorized, Unavailable
from extender.kube.resources import Resource
from extender.kube.wire import decode_object
from webhooks.owners.origin import Owner
from webhooks.owners.trace import Asked

log = structlog.get_logger("webhooks")

Get = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ReaderTiming:
    """Timeouts and cache lifetimes, in seconds."""

    #: Timeout of one read, from when it gets its slot. After a failure no higher owner is read.
    read_s: float = 0.8
    #: Lifetime of a cached answer: a gang's pods come within it, and a changed size is seen soon
    #: after.
    keep_s: float = 3.0
    #: Pause after a failed read.
    rest_s: float = 2.0


#: Reads in flight at once. Each has its own connection; the handshake costs more than the read.
MAX_READS: Final = 16
#: Cached answers, about 1 KiB each.
MAX_KEPT: Final = 10_000


class OwnerReader:
    """A cache over reads of owners. `get` returns the body of a GET, like `Client.get_raw`."""

    def __init__(
        self,
        get: Get,
        *,
        timing: ReaderTiming | None = None,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get = get
        self._timing = timing or ReaderTiming()
        self._clock = clock
        self._kept: OrderedDict[Asked, tuple[float, Owner | None]] = OrderedDict()
        self._flying: dict[Asked, asyncio.Task[Owner | None]] = {}
        self._places = asyncio.Semaphore(MAX_READS)
        self._rests_until = 0.0
        self._answers = Counter(
            "ballast_webhook_owner_lookups_total",
            "Owners looked up; unknown: deleted, replaced, or not readable by the webhook.",
            ["answer"],
            registry=registry,
        )

    async def read(self, asked: Asked) -> Owner | None:
        """The owner, or None if it does not exist any more or cannot be read in time."""
        now = self._clock()
        kept = self._kept.get(asked)
        if kept is not None and kept[0] > now:
            self._answers.labels("kept").inc()
            return kept[1]
        flying = self._flying.get(asked)
        if flying is None:
            if now < self._rests_until:
                self._answers.labels("resting").inc()
                return None
            flying = asyncio.create_task(self._fetch(asked), name=f"owner {asked.name}")
            self._flying[asked] = flying
            flying.add_done_callback(lambda _: self._flying.pop(asked, None))
        # Shielded: other reviews may wait for the same read when this review's caller hangs up.
        return await asyncio.shield(flying)

    async def _fetch(self, asked: Asked) -> Owner | None:
        async with self._places:
            # Another read may have failed while this one waited for its slot.
            if self._clock() < self._rests_until:
                self._answers.labels("resting").inc()
                return None
            return await self._ask(asked)

    async def _ask(self, asked: Asked) -> Owner | None:
        try:
            async with asyncio.timeout(self._timing.read_s):
                owner = await self._look(asked)
        except (Unavailable, Throttled, Unauthorized, TimeoutError) as error:
            self._rests_until = self._clock() + self._timing.rest_s
            self._answers.labels("failed").inc()
            _note(asked, error)
            return None
        except (KubeError, RecursionError, ValueError) as error:
            owner = None
            _note(asked, error)
        self._keep(asked, owner)
        self._answers.labels("read" if owner else "unknown").inc()
        return owner

    async def _look(self, asked: Asked) -> Owner | None:
        """The owner as the API server has it now; None if another object has its name."""
        kind = asked.kind
        if not asked.name:
            raise RequestRefused(f"{kind.plural}: an owner has a name")
        path = f"/apis/{kind.api_group}/{asked.version}"
        resource = Resource(kind.document, path, kind.plural, bool(asked.namespace))
        body = await self._get(resource.url(asked.namespace, asked.name))
        owner = decode_object(resource, body)
        return owner if asked.uid in ("", owner.metadata.uid) else None

    def _keep(self, asked: Asked, owner: Owner | None) -> None:
        """Cache the answer, and drop expired ones, which are the oldest."""
        now = self._clock()
        self._kept.pop(asked, None)
        self._kept[asked] = now + self._timing.keep_s, owner
        while self._kept:
            until, _ = next(iter(self._kept.values()))
            if until > now and len(self._kept) <= MAX_KEPT:
                return
            self._kept.popitem(last=False)


def _note(asked: Asked, error: Exception) -> None:
    log.warning(
        "owner not read",
        kind=asked.kind.kind,
        namespace=asked.namespace,
        name=asked.name,
        error=str(error) or type(error).__name__,
    )
