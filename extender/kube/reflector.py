"""Tells a listener what exists of one kind, without gaps: list, watch, list again where needed.

Three loops with one duty each: `run` lists, compares and survives every failure; `_follow` keeps a
watch going from the newest version seen; `_watch` is one connection, from bytes to changes. Only
key and UID of each object are kept here, for the comparison.

What is promised: nothing that exists is ever reported as removed because a list failed, was cut
short, or came from an API server that lags behind what was already seen; and nothing that is gone
stays reported, however long the connection was away.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar, Unpack

import structlog
from msgspec.json import decode
from prometheus_client import Counter, Gauge

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.objects import Status
from extender.kube.backoff import Backoff
from extender.kube.client import PAGE_LIMIT, Client, Selection, selection_query
from extender.kube.errors import (
    Expired,
    KubeError,
    Throttled,
    Unauthorized,
    Unavailable,
    Undecodable,
    error_of_status,
)
from extender.kube.resources import KubeObject, Resource
from extender.kube.transport import Call
from extender.kube.wire import (
    Identity,
    Page,
    WatchLine,
    decode_identity,
    decode_line,
    decode_object,
    skip,
)

T = TypeVar("T", bound=KubeObject)

#: The event loop is given back after this much work.
SLICE_S: Final = 0.002

_LINE_TYPES: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")

_log = structlog.get_logger(__name__)
_LISTS = Counter("ballast_kube_lists_total", "Complete lists used.", ["resource"])
_EVENTS = Counter("ballast_kube_watch_events_total", "Lines of watches.", ["resource", "type"])
_FAILURES = Counter(
    "ballast_kube_reflector_failures_total", "Lists and watches that failed.", ["resource", "cause"]
)
_HEARD = Gauge(
    "ballast_kube_reflector_heard_timestamp_seconds",
    "When the API server last sent a list or a line of a watch.",
    ["resource"],
)


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient a reflector is, in seconds."""

    #: The server ends each watch after this long, or up to a third longer, chosen at random.
    watch_s: float = 60.0
    #: A watch that is silent this long is broken; bookmarks come once a minute.
    silence_s: float = 90.0
    #: A watch that held this long was not refused, so the next failure starts with a short delay.
    settled_s: float = 1.0
    #: With the credentials refused for this long, `run` gives up, so that the process restarts.
    unauthorized_s: float = 60.0


class Reflector(Generic[T]):
    """Delivers every object of one resource to `deliver`, from now on.

    `deliver` must not block: it is called once per object, and the loop gets its turn between
    calls. What it raises ends `run`.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        deliver: Callable[[Event], None],
        *,
        timing: Timing | None = None,
        **selection: Unpack[Selection],
    ) -> None:
        self._client = client
        self._resource = resource
        self._deliver = deliver
        self._timing = timing or Timing()
        self._selection = selection
        self._backoff = Backoff()
        self._synced = asyncio.Event()
        #: "namespace/name" -> UID of everything delivered and not removed.
        self._known: dict[str, str] = {}
        #: Where a watch may go on; and the newest version ever seen, as a number.
        self._version = ""
        self._newest = 0
        self._slice_ends = 0.0
        self._refused_since: float | None = None
        self._heard = _HEARD.labels(resource.plural)
        self._events = {kind: _EVENTS.labels(resource.plural, kind) for kind in _LINE_TYPES}

    @property
    def is_synced(self) -> bool:
        """Whether one complete list was delivered; stays true from then on."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Returns after the first complete list was delivered."""
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Lists, then watches until that is no longer possible, for ever.

        Raises Unauthorized when the credentials stay refused, and whatever `deliver` raises.
        """
        while True:
            try:
                await self._list()
                self._refused_since = None
                await self._follow()
            except Unauthorized as error:
                self._give_up_in_time(error)
                self._note(error)
            except KubeError as error:
                self._note(error)
            await asyncio.sleep(self._backoff.next_s())

    # -- listing ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Delivers what exists now and, once the list is complete, what no longer does."""
        listed: set[str] = set()
        token = ""
        while True:
            page = await self._client.list_page(
                self._resource, **self._selection, limit=PAGE_LIMIT, continue_token=token
            )
            self._refuse_stale(page.resource_version)
            self._heard.set_to_current_time()
            await self._take_page(page, listed)
            token = page.continue_token
            if not token:
                break
        for key in self._known.keys() - listed:
            self._remove(key)
            await self._breathe()
        self._version = page.resource_version
        _LISTS.labels(self._resource.plural).inc()
        if not self._synced.is_set():
            self._deliver(Synced(self._resource.kind))
            self._synced.set()

    def _refuse_stale(self, version: str) -> None:
        """Raises Unavailable for a list older than what was seen: a lagging server sent it."""
        number = _number(version)
        if number < self._newest:
            plural = self._resource.plural
            raise Unavailable(
                f"list of {plural}: is at version {number}, {self._newest} was seen before",
                reason="StaleList",
            )
        self._newest = number

    async def _take_page(self, page: Page[T], listed: set[str]) -> None:
        for obj in page.items:
            listed.add(self._upsert(obj))
            await self._breathe()
        for identity in page.skipped:
            listed.add(self._keep(identity))

    # -- watching --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Watches on from the newest version seen, over any number of connections.

        Ends by an error after which only a new list helps: Expired above all.
        """
        clock = asyncio.get_running_loop().time
        while True:
            started = clock()
            try:
                async with aclosing(self._watch()) as changes:
                    async for change in changes:
                        self._backoff.reset()
                        self._apply(change)
                        await self._breathe()
            except (Unavailable, Throttled) as error:
                self._note(error)
            if clock() - started >= self._timing.settled_s:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_s())

    async def _watch(self) -> AsyncGenerator[WatchLine, None]:
        """The changes of one connection, until the server ends it; an ERROR line is raised."""
        call = Call(
            "GET",
            self._resource.url(self._selection.get("namespace", "")),
            self._resource.plural,
            query=selection_query(self._selection)
            | {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": self._version,
                "timeoutSeconds": str(round(self._timing.watch_s * random.uniform(1, 4 / 3))),  # noqa: S311
            },
        )
        async with aclosing(self._client.lines(call, self._timing.silence_s)) as lines:
            async for line in lines:
                change = decode_line(self._resource, line)
                if change.type == "ERROR":
                    raise self._broken_off(decode(change.object, type=Status))
                if change.type not in _LINE_TYPES:
                    raise Undecodable(f"watch of {self._resource.plural}: type {change.type!r}")
                yield change

    def _broken_off(self, status: Status) -> KubeError:
        """What an ERROR line means: the next watch may fail alike, so only a new list is sure."""
        error = error_of_status(status, f"watch of {self._resource.plural}")
        if isinstance(error, Throttled | Expired):
            return error
        return Expired(error.message, reason=error.reason)

    def _apply(self, change: WatchLine) -> None:
        self._events[change.type].inc()
        self._heard.set_to_current_time()
        if change.type in ("ADDED", "MODIFIED"):
            try:
                obj = decode_object(self._resource, change.object)
            except Undecodable as error:
                identity = skip(self._resource, change.object, error)
                self._keep(identity)
                self._advance(identity.resource_version)
                return
            self._advance(obj.metadata.resource_version)
            self._upsert(obj)
            return
        identity = decode_identity(self._resource, change.object)
        self._advance(identity.resource_version)
        if change.type == "DELETED":
            self._remove(_key(identity.namespace, identity.name))

    def _advance(self, version: str) -> None:
        self._version = version
        self._newest = max(self._newest, _number(version))

    # -- delivering ------------------------------------------------------------------------------

    def _upsert(self, obj: T) -> str:
        """Delivers the object, after the removal of one it took the name of; returns its key."""
        meta = obj.metadata
        key = _key(meta.namespace, meta.name)
        if self._known.get(key, meta.uid) != meta.uid:
            self._remove(key)
        self._known[key] = meta.uid
        self._deliver(Upserted(obj))
        return key

    def _keep(self, identity: Identity) -> str:
        """Accounts for an object that exists and cannot be delivered; returns its key."""
        key = _key(identity.namespace, identity.name)
        if self._known.get(key, identity.uid) != identity.uid:
            self._remove(key)
        return key

    def _remove(self, key: str) -> None:
        uid = self._known.pop(key, None)
        if uid is not None:
            namespace, _, name = key.rpartition("/")
            self._deliver(Removed(self._resource.kind, uid, namespace, name))

    # -- the loop, the log -----------------------------------------------------------------------

    async def _breathe(self) -> None:
        """Lets others run once this reflector has worked for `SLICE_S` without a pause."""
        if time.perf_counter() >= self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = time.perf_counter() + SLICE_S

    def _note(self, error: KubeError) -> None:
        _FAILURES.labels(self._resource.plural, error.reason).inc()
        _log.warning(
            "lost sight of a resource",
            resource=self._resource.plural,
            reason=error.reason,
            error=error.message,
        )

    def _give_up_in_time(self, error: Unauthorized) -> None:
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= self._timing.unauthorized_s:
            raise error


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _number(version: str) -> int:
    """A resourceVersion as a number; 0, which compares as oldest, where it is none."""
    return int(version) if version.isascii() and version.isdigit() else 0
