"""Kubernetes Events (events.k8s.io/v1): what users see with `kubectl describe`.

Best effort by design: bounded, deduplicated, rate limited, and a lost Event never makes anything
else fail. Losses are counted. Decisions are recorded in conditions; Events only narrate.
"""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NoReturn

import structlog
from msgspec import Struct
from prometheus_client import Counter

from extender.api import names
from extender.api.objects import ObjectMeta
from extender.api.reasons import Reason
from extender.kube.backoff import TokenBucket
from extender.kube.client import MERGE_PATCH, Client
from extender.kube.errors import KubeError, NotFound
from extender.kube.resources import Resource
from extender.kube.transport import Call

#: Limits of the API in characters: it refuses longer values.
MAX_NOTE: Final = 1024
MAX_NAME: Final = 253

EventType = Literal["Normal", "Warning"]

_log = structlog.get_logger(__name__)
_WRITTEN = Counter("ballast_kube_events_written_total", "Events created or counted up.", ["result"])
_DROPPED = Counter(
    "ballast_kube_events_dropped_total", "Events dropped because the queue was full."
)


class ObjectRef(Struct, rename="camel", frozen=True, omit_defaults=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class RecordedEvent(Struct, rename="camel"):
    """The fields of an Event that we read."""

    metadata: ObjectMeta
    reason: str = ""
    note: str = ""


EVENTS: Final = Resource(RecordedEvent, "/apis/events.k8s.io/v1", "events")


@dataclass(frozen=True, slots=True)
class EventRates:
    """How much a recorder writes, and how long it remembers."""

    per_s: float = 20.0
    burst: int = 200
    max_queued: int = 2000
    #: Repeats within this time count up the first Event instead of creating another.
    window_s: float = 600.0
    #: An Event's count is written at most this often.
    series_s: float = 30.0


@dataclass(slots=True)
class _Entry:
    """One Event and its repeats."""

    about: ObjectRef
    reason: Reason
    note: str
    type: EventType
    related: ObjectRef | None
    first: datetime
    last: datetime
    name: str
    seen_at: float
    count: int = 1
    #: Time of the last write attempt, and whether the API server has the Event.
    written_at: float | None = None
    is_created: bool = False
    is_queued: bool = True


class EventRecorder:
    """Queues Events from anywhere in the loop and writes them in `run`."""

    def __init__(self, client: Client, instance: str, pace: EventRates | None = None) -> None:
        self._client = client
        self._instance = instance
        self._pace = pace or EventRates()
        self._entries: OrderedDict[tuple[ObjectRef, Reason], _Entry] = OrderedDict()
        self._queue: asyncio.Queue[_Entry] = asyncio.Queue(self._pace.max_queued)

    def record(
        self,
        about: ObjectRef,
        reason: Reason,
        note: str,
        type: EventType = "Normal",  # noqa: A002 (the field's name in the API)
        related: ObjectRef | None = None,
    ) -> None:
        """Queue one Event; never waits and never fails.

        A repeat of a reason for the same object within the window counts up the first Event, which
        keeps its note.
        """
        now = asyncio.get_running_loop().time()
        self._forget(now)
        key = (about, reason)
        entry = self._entries.get(key)
        if entry is None:
            moment = datetime.now(UTC)
            entry = _Entry(
                about, reason, note[:MAX_NOTE], type, related, moment, moment, _name(about), now
            )
            self._entries[key] = entry
            self._enqueue(key, entry)
            return
        entry.count += 1
        entry.last = datetime.now(UTC)
        entry.seen_at = now
        self._entries.move_to_end(key)
        is_due = entry.written_at is not None and now - entry.written_at >= self._pace.series_s
        if is_due and not entry.is_queued:
            self._enqueue(key, entry)

    async def run(self) -> NoReturn:
        """Write queued Events at the recorder's rate until cancelled."""
        clock = asyncio.get_running_loop().time
        bucket = TokenBucket(self._pace.per_s, self._pace.burst, clock())
        while True:
            entry = await self._queue.get()
            while (wait_s := bucket.take(clock())) > 0:  # noqa: ASYNC110 (tokens come with time)
                await asyncio.sleep(wait_s)
            entry.is_queued = False
            entry.written_at = clock()
            try:
                await self._write(entry)
            except KubeError as error:
                _WRITTEN.labels(error.reason).inc()
                _log.debug("could not write an event", reason=entry.reason, error=error.message)
            else:
                _WRITTEN.labels("ok").inc()

    def _enqueue(self, key: tuple[ObjectRef, Reason], entry: _Entry) -> None:
        try:
            self._queue.put_nowait(entry)
        except asyncio.QueueFull:
            _DROPPED.inc()
            if entry.written_at is None:
                del self._entries[key]
        else:
            entry.is_queued = True

    def _forget(self, now: float) -> None:
        """Forget Events last repeated before the window; they are ordered by that time."""
        while self._entries:
            key, oldest = next(iter(self._entries.items()))
            if now - oldest.seen_at < self._pace.window_s:
                return
            del self._entries[key]

    async def _write(self, entry: _Entry) -> None:
        namespace = entry.about.namespace or "default"
        if entry.is_created and await self._count_up(entry):
            return
        body = EVENTS.document(self._event(entry, namespace))
        # Events change nothing, so they bypass the leader's fence and the limit on writes.
        path = EVENTS.url(namespace)
        await self._client.send(Call("POST", path, "events", body=body, is_fenced=False))
        entry.is_created = True

    async def _count_up(self, entry: _Entry) -> bool:
        """Update the count of the Event; False if the API server no longer has it."""
        path = EVENTS.url(entry.about.namespace or "default", entry.name)
        call = Call(
            "PATCH", path, "events", body={"series": _series(entry)},
            content_type=MERGE_PATCH, is_fenced=False,
        )  # fmt: skip
        try:
            await self._client.send(call)
        except NotFound:
            entry.name = _name(entry.about)
            return False
        return True

    def _event(self, entry: _Entry, namespace: str) -> dict[str, Any]:
        event: dict[str, Any] = {
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": namespace},
            "eventTime": _micro_time(entry.first),
            "reportingController": names.CONTROLLER_NAME,
            "reportingInstance": self._instance[:128],
            "action": str(entry.reason),
            "reason": str(entry.reason),
            "regarding": entry.about,
            "note": entry.note,
            "type": entry.type,
        }
        if entry.related is not None:
            event["related"] = entry.related
        if entry.count > 1:
            event["series"] = _series(entry)
        return event


def _name(about: ObjectRef) -> str:
    """A unique name: the object's name and a random suffix."""
    tail = secrets.token_hex(8)
    return f"{about.name[: MAX_NAME - len(tail) - 1].rstrip('.-')}.{tail}"


def _series(entry: _Entry) -> dict[str, Any]:
    return {"count": entry.count, "lastObservedTime": _micro_time(entry.last)}


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
