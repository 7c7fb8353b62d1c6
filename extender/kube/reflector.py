"""Reports the objects of one kind to a listener without gaps: list, watch, list again if needed.

Three loops with one duty each: `run` lists, compares and survives every failure; `_follow` keeps a
watch going from the newest version seen; `_watch` is one connection, from bytes to changes.
`delivered` holds what lists are compared with.

Guarantees: an existing object is never reported as removed because a list failed, was cut short, or
came from an API server that lags behind; and a deleted object does not stay reported, however long
the connection was down.

A store that was restored from a backup goes back in time. It shows by versions: every list is older
than what was seen, or a list has an object that the watch should have delivered long ago. Then the
list is taken as the truth, or `run` ends with Restored if the listener remembers more than the
objects that exist.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar, Unpack

import structlog
from msgspec.json import decode
from prometheus_client import Counter, Gauge

from extender.api.events import Event, Synced
from extender.api.objects import Status
from extender.kube.backoff import Backoff
from extender.kube.client import Client, Selection, selection_query
from extender.kube.delivered import Delivered
from extender.kube.errors import (
    Expired,
    KubeError,
    NotFound,
    Restored,
    Throttled,
    Unauthorized,
    Unavailable,
    Undecodable,
    error_of_status,
)
from extender.kube.lines import CutLine
from extender.kube.resources import KubeObject, Resource
from extender.kube.transport import MAX_OBJECT_BYTES, Call
from extender.kube.versions import Versions
from extender.kube.wire import (
    Identity,
    Page,
    WatchLine,
    decode_identity,
    decode_line,
    decode_object,
    read_cut_line,
    skip,
)

T = TypeVar("T", bound=KubeObject)

#: The reflector yields to the event loop after this much work.
SLICE_S: Final = 0.002

#: Longest delay between tries: a program must work again within a minute of the API server.
BACKOFF_CAP_S: Final = 10.0
#: After this many watches that broke off at one version, list again: the next event breaks them.
MAX_BROKEN_WATCHES: Final = 3
#: Up to this many objects, a list is faster than waiting for a watch's bookmark.
_FEW: Final = 2_000
#: The API server sends a bookmark two seconds before a watch ends, so here after one second.
_SHORT_WATCH_S: Final = 3
#: Seconds after which a watch that has not caught up is replaced by a list.
_CATCHES_UP_S: Final = 4.0
#: A namespace and a field selector for lists that should find nothing.
_NOWHERE: Final = "default"
_NOTHING: Final = "metadata.name=ballast-no-such-object"

#: Status of an error after the server had accepted the watch.
_ACCEPTED: Final = 200

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
    """The time-outs of a reflector, in seconds."""

    #: The server ends each watch after this long, plus up to a third of it at random.
    watch_s: float = 60.0
    #: A watch that is silent this long is broken; bookmarks come once a minute.
    silence_s: float = 90.0
    #: A watch that lasted this long was not refused, so the next failure starts with a short delay.
    settled_s: float = 1.0
    #: If the credentials are refused for this long, `run` gives up, so that the process restarts.
    unauthorized_s: float = 60.0
    #: Lists older than what was seen are refused for this long, because an API server may lag. A
    #: list is a quorum read, so if it lags longer, the store was restored.
    stale_s: float = 10.0


class Reflector(Generic[T]):
    """Delivers every object of one resource to `deliver`, and every change.

    `deliver` must not block: it is called once per object, and the reflector yields to the loop
    between calls. If it raises, the object is logged, counted and skipped, so that one unforeseen
    object does not hide all others.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        deliver: Callable[[Event], None],
        *,
        timing: Timing | None = None,
        ends_on_restore: bool = False,
        **selection: Unpack[Selection],
    ) -> None:
        """`ends_on_restore`: `run` raises Restored when the store has gone back in time."""
        self._client = client
        self._resource = resource
        self._timing = timing or Timing()
        self._selection = selection
        self._backoff = Backoff(cap_s=BACKOFF_CAP_S)
        self._synced = asyncio.Event()
        self._delivered = Delivered(resource, deliver)
        self._versions = Versions(
            resource.plural,
            stale_s=self._timing.stale_s,
            ends_on_restore=ends_on_restore,
        )
        #: Lists are numbered: the last one begun, requested, and delivered.
        self._n_lists = self._wanted = self._n_listed = 0
        self._listed = asyncio.Condition()
        #: The watch in progress, which ends when a list is requested.
        self._watching: asyncio.Timeout | None = None
        self._is_next_short = False
        self._moved = asyncio.Event()
        self._slice_ends = 0.0
        self._refused_since: float | None = None
        #: Whether the last answer was that a kind, which was listed before, does not exist.
        self._is_withdrawn = False
        self._heard = _HEARD.labels(resource.plural)
        self._events = {kind: _EVENTS.labels(resource.plural, kind) for kind in _LINE_TYPES}

    @property
    def is_synced(self) -> bool:
        """Whether one complete list was delivered; stays true from then on."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return after the first complete list was delivered."""
        await self._synced.wait()

    async def catch_up(self) -> None:
        """Return after everything stored before the call has been delivered.

        A large number of objects is not listed again: a new watch continues the last one, and its
        bookmark says how far it came. Raises KubeError if the API server does not answer.
        """
        if len(self._delivered.keys()) <= _FEW or not await self._watch_up_to_now():
            await self.relist()

    async def relist(self) -> None:
        """Return after a list that began after this call has been delivered."""
        number = self._wanted = self._n_lists + 1
        self._end_watch()
        async with self._listed:
            await self._listed.wait_for(lambda: self._n_listed >= number)

    async def run(self) -> NoReturn:
        """List, then watch until a new list is needed, for ever.

        Raises Unauthorized if the credentials stay refused, and Restored if `ends_on_restore`.
        """
        while True:
            try:
                await self._list()
                self._refused_since = None
                self._is_withdrawn = False
                await self._follow_until_wanted()
                continue
            except Unauthorized as error:
                self._give_up_in_time(error)
                self._note(error)
            except Restored:
                raise
            except KubeError as error:
                self._note(error)
            except Exception:
                # A bug, or an unforeseen answer: the next list may succeed.
                _FAILURES.labels(self._resource.plural, "Unforeseen").inc()
                _log.exception("list or watch failed", resource=self._resource.plural)
            await asyncio.sleep(self._backoff.next_s())

    # -- listing ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Deliver existing objects and, once the list is complete, the removal of others."""
        self._n_lists += 1
        number = self._n_lists
        listed: set[str] = set()
        version = ""
        async with aclosing(self._client.pages(self._resource, **self._selection)) as pages:
            async for page in pages:
                version = page.resource_version
                self._versions.take_list(version)
                self._heard.set_to_current_time()
                await self._take_page(page, listed)
        for key in self._delivered.keys() - listed:
            self._delivered.remove(key, version)
            await self._yield_to_loop()
        self._versions.current = version
        _LISTS.labels(self._resource.plural).inc()
        if not self._synced.is_set():
            self._delivered.tell(Synced(self._resource.kind))
            self._synced.set()
        async with self._listed:
            self._n_listed = number
            self._listed.notify_all()

    async def _take_page(self, page: Page[T], listed: set[str]) -> None:
        for obj in page.items:
            self._versions.check_listed(obj.metadata, self._delivered.get(obj.metadata))
            listed.add(self._delivered.upsert(obj))
            await self._yield_to_loop()
        for identity in page.skipped:
            listed.add(self._delivered.keep(identity))

    # -- watching --------------------------------------------------------------------------------

    async def _follow_until_wanted(self) -> None:
        """Watch until a new list is requested or necessary."""
        while self._wanted <= self._n_lists:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as watching:
                    self._watching = watching
                    try:
                        await self._follow()
                    finally:
                        self._watching = None

    def _end_watch(self) -> None:
        """End the watch in progress, which would otherwise go on for a while."""
        if self._watching is not None:
            self._watching.reschedule(asyncio.get_running_loop().time())
            self._watching = None

    async def _watch_up_to_now(self) -> bool:
        """Whether a new watch has delivered all changes up to the store's current version.

        It can't if the store went back in time.
        """
        version = await self._current_version()
        if self._versions.is_behind(version):
            return False
        self._is_next_short = True
        self._end_watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCHES_UP_S):
                while not self._versions.has(version):
                    self._moved.clear()
                    await self._moved.wait()
        return self._versions.has(version)

    async def _follow(self) -> None:
        """Watch from the newest version seen, over any number of connections.

        Ends with an error that only a new list resolves, mostly Expired.
        """
        clock = asyncio.get_running_loop().time
        n_broken, version = 0, self._versions.current
        while True:
            started = clock()
            error: KubeError | None = None
            try:
                async with aclosing(self._watch()) as changes:
                    async for change in changes:
                        self._backoff.reset()
                        self._apply(change)
                        self._moved.set()
                        await self._yield_to_loop()
            except (Unavailable, Throttled) as caught:
                error = caught
                self._note(error)
            if clock() - started >= self._timing.settled_s:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_s())
            if error is None:
                continue
            if version != self._versions.current:
                n_broken, version = 0, self._versions.current
            n_broken += error.status == _ACCEPTED
            if n_broken >= MAX_BROKEN_WATCHES:
                raise Expired(f"{n_broken} watches broke off at {version}", reason="BrokenWatch")
            await self._check_restored()

    async def _check_restored(self) -> None:
        """Raise Expired if the server is behind what was seen, because its watches stay silent.

        It answers a watch only once its own version has passed the requested one.
        """
        try:
            version = await self._current_version()
        except (Unavailable, Throttled) as error:
            self._note(error)
            return
        if self._versions.is_behind(version):
            raise Expired(f"the server is at {version}", reason="StaleServer")

    async def _current_version(self) -> str:
        """The version of the store, from a list that finds nothing; raises KubeError."""
        selection = Selection(**self._selection)
        selection.setdefault("field_selector", _NOTHING)
        if self._resource.is_namespaced:
            selection.setdefault("namespace", _NOWHERE)
        page = await self._client.list_page(self._resource, **selection, limit=1)
        return page.resource_version

    async def _watch(self) -> AsyncGenerator[WatchLine, None]:
        """The changes of one connection, until the server ends it; raises for an ERROR line."""
        ends_s = round(self._timing.watch_s * random.uniform(1, 4 / 3))  # noqa: S311
        if self._is_next_short:
            ends_s, self._is_next_short = _SHORT_WATCH_S, False
        call = Call(
            "GET",
            self._resource.url(self._selection.get("namespace", "")),
            self._resource.plural,
            query=selection_query(self._selection)
            | {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": self._versions.current,
                "timeoutSeconds": str(ends_s),
            },
            max_bytes=MAX_OBJECT_BYTES,
        )
        async with aclosing(self._client.lines(call, self._timing.silence_s)) as lines:
            async for line in lines:
                if isinstance(line, CutLine):
                    self._apply_cut(line)
                    continue
                change = decode_line(self._resource, line)
                if change.type == "ERROR":
                    raise self._broken_off(decode(change.object, type=Status))
                if change.type not in _LINE_TYPES:
                    raise Undecodable(f"watch of {self._resource.plural}: type {change.type!r}")
                yield change

    def _broken_off(self, status: Status) -> KubeError:
        """The error of an ERROR line: the next watch may fail too, so only a new list is safe."""
        error = error_of_status(status, f"watch of {self._resource.plural}")
        if isinstance(error, Throttled | Expired):
            return error
        return Expired(error.message, reason=error.reason)

    def _apply_cut(self, line: CutLine) -> None:
        """Record an object that is too large to decode; its last delivered state stays."""
        kind, identity = read_cut_line(self._resource, line.head)
        self._apply_identity(kind, identity)

    def _apply(self, change: WatchLine) -> None:
        self._events[change.type].inc()
        self._heard.set_to_current_time()
        if change.type in ("ADDED", "MODIFIED"):
            try:
                obj = decode_object(self._resource, change.object)
            except Undecodable as error:
                self._apply_identity(change.type, skip(self._resource, change.object, error))
                return
            self._versions.advance(obj.metadata.resource_version)
            self._delivered.upsert(obj)
            return
        self._apply_identity(change.type, decode_identity(self._resource, change.object))

    def _apply_identity(self, kind: str, identity: Identity) -> None:
        self._versions.advance(identity.resource_version)
        if kind == "DELETED":
            self._delivered.remove(identity.key, identity.resource_version)
        elif kind != "BOOKMARK":
            self._delivered.keep(identity)

    # -- helpers ---------------------------------------------------------------------------------

    async def _yield_to_loop(self) -> None:
        """Yield to the loop once this reflector has worked for `SLICE_S` without a pause."""
        if time.perf_counter() >= self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = time.perf_counter() + SLICE_S

    def _note(self, error: KubeError) -> None:
        """Count and log the failure, but log only once that a kind is no longer served."""
        _FAILURES.labels(self._resource.plural, error.reason).inc()
        was_withdrawn = self._is_withdrawn
        self._is_withdrawn = self.is_synced and isinstance(error, NotFound)
        if was_withdrawn and self._is_withdrawn:
            return
        _log.warning(
            "list or watch failed",
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
