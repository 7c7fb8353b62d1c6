"""Reads owners from the API server, within what a review may cost, and remembers them for a while.

Why reads and not a watch: an owner's pods come in a burst, so one read answers for all of them;
most pods need none, because their labels say enough; a kind that is not installed has no pods and
so costs nothing; and a replica that has just started knows as much as one that runs for a week. A
watch would hold every Job of the cluster in memory and would still miss the owner that was made a
moment ago.

What is remembered may be old by `keep_s`. A read that fails is the answer "not known", never an
error: the API server calls us with failurePolicy Ignore and a timeout of 3 s, and a pod without its
gang's size is better off than a pod without its gate. After a failure nothing is asked for a while,
so an API server in trouble is left alone, and pods cost what they cost without look-up.
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
    """How patient a reader is, in seconds."""

    #: One read, once it has its place. Its failure ends the way upward.
    read_s: float = 0.8
    #: How long an answer counts: a gang's pods come within that, and a change of the owner's size
    #: is seen soon after.
    keep_s: float = 3.0
    #: How long nothing is asked after a read that failed.
    rest_s: float = 2.0


#: Reads in flight at once. Each has its own connection; the handshake costs more than the read.
MAX_READS: Final = 16
#: Answers kept: some 1 KiB each.
MAX_KEPT: Final = 10_000


class OwnerReader:
    """Answers from memory where it can. `get` gives the body of a GET, as `Client.get_raw`."""

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
            "Owners asked for; unknown ones are gone, replaced, or not ours to read.",
            ["answer"],
            registry=registry,
        )

    async def read(self, asked: Asked) -> Owner | None:
        """The owner, or None where it is not there any more or cannot be read in time."""
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
        # Shielded: others may wait for the same read when this review's caller hangs up.
        return await asyncio.shield(flying)

    async def _fetch(self, asked: Asked) -> Owner | None:
        async with self._places:
            # While this read waited for its place, another may have failed.
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
        """The owner as the API server has it now; None where another has its name."""
        kind = asked.kind
        if not asked.name:
            raise RequestRefused(f"{kind.plural}: an owner has a name")
        path = f"/apis/{kind.api_group}/{asked.version}"
        resource = Resource(kind.document, path, kind.plural, bool(asked.namespace))
        body = await self._get(resource.url(asked.namespace, asked.name))
        owner = decode_object(resource, body)
        return owner if asked.uid in ("", owner.metadata.uid) else None

    def _keep(self, asked: Asked, owner: Owner | None) -> None:
        """Remember the answer, and forget the expired ones: the oldest come first."""
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
