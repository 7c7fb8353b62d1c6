"""Kubernetes Events (events.k8s.io/v1): what users see under `kubectl describe`.

Best effort by design: bounded, deduplicated, rate limited, and never a reason for anything else to
fail. What is lost is counted. Decisions are recorded in conditions; Events only narrate.
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

#: Limits of the API, in characters: longer values are refused.
MAX_NOTE: Final = 1024
MAX_NAME: Final = 253

EventType = Literal["Normal", "Warning"]

_log = structlog.get_logger(__name__)
_WRITTEN = Counter("ballast_kube_events_written_total", "Events created or counted up.", ["result"])
_DROPPED = Counter(
    "ballast_kube_events_dropped_total", "Events dropped because the queue was full."
)


class ObjectRef(Struct, rename="camel", frozen=True, omit_defaults=True):
    """The object that an Event is about, as Events name it."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class RecordedEvent(Struct, rename="camel"):
    """What we read of an Event."""

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
    #: Repeats within this time count up the first Event instead of making another.
    window_s: float = 600.0
    #: An Event's count is written at most this often.
    series_s: float = 30.0


@dataclass(slots=True)
class _Story:
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
    #: When a write was last tried, and whether the API server has the Event.
    written_at: float | None = None
    is_created: bool = False
    is_queued: bool = True


class EventRecorder:
    """Queues Events from anywhere in the loop and writes them in `run`."""

    def __init__(self, client: Client, instance: str, pace: EventRates | None = None) -> None:
        self._client = client
        self._instance = instance
        self._pace = pace or EventRates()
        self._stories: OrderedDict[tuple[ObjectRef, Reason], _Story] = OrderedDict()
        self._queue: asyncio.Queue[_Story] = asyncio.Queue(self._pace.max_queued)

    def record(
        self,
        about: ObjectRef,
        reason: Reason,
        note: str,
        type: EventType = "Normal",  # noqa: A002 (the field's name in the API)
        related: ObjectRef | None = None,
    ) -> None:
        """Queues one Event; never waits and never fails.

        A repeat of the same reason for the same object within the window raises the first Event's
        count and keeps its note.
        """
        now = asyncio.get_running_loop().time()
        self._forget(now)
        key = (about, reason)
        story = self._stories.get(key)
        if story is None:
            moment = datetime.now(UTC)
            story = _Story(
                about, reason, note[:MAX_NOTE], type, related, moment, moment, _name(about), now
            )
            self._stories[key] = story
            self._enqueue(key, story)
            return
        story.count += 1
        story.last = datetime.now(UTC)
        story.seen_at = now
        self._stories.move_to_end(key)
        is_due = story.written_at is not None and now - story.written_at >= self._pace.series_s
        if is_due and not story.is_queued:
            self._enqueue(key, story)

    async def run(self) -> NoReturn:
        """Writes what is queued, at the recorder's pace, until cancelled."""
        clock = asyncio.get_running_loop().time
        bucket = TokenBucket(self._pace.per_s, self._pace.burst, clock())
        while True:
            story = await self._queue.get()
            while (wait_s := bucket.take(clock())) > 0:  # noqa: ASYNC110 (turns come with time)
                await asyncio.sleep(wait_s)
            story.is_queued = False
            story.written_at = clock()
            try:
                await self._write(story)
            except KubeError as error:
                _WRITTEN.labels(error.reason).inc()
                _log.debug("could not write an event", reason=story.reason, error=error.message)
            else:
                _WRITTEN.labels("ok").inc()

    def _enqueue(self, key: tuple[ObjectRef, Reason], story: _Story) -> None:
        try:
            self._queue.put_nowait(story)
        except asyncio.QueueFull:
            _DROPPED.inc()
            if story.written_at is None:
                del self._stories[key]
        else:
            story.is_queued = True

    def _forget(self, now: float) -> None:
        """Drops what was last seen before the window; the order is that of the last sight."""
        while self._stories:
            key, oldest = next(iter(self._stories.items()))
            if now - oldest.seen_at < self._pace.window_s:
                return
            del self._stories[key]

    async def _write(self, story: _Story) -> None:
        namespace = story.about.namespace or "default"
        if story.is_created and await self._count_up(story):
            return
        body = EVENTS.document(self._event(story, namespace))
        # Events change nothing, so they pass the leader's fence, and queue behind no other write.
        path = EVENTS.url(namespace)
        await self._client.send(Call("POST", path, "events", body=body, is_fenced=False))
        story.is_created = True

    async def _count_up(self, story: _Story) -> bool:
        """Raises the count of the Event; False where the API server no longer has it."""
        path = EVENTS.url(story.about.namespace or "default", story.name)
        call = Call(
            "PATCH", path, "events", body={"series": _series(story)},
            content_type=MERGE_PATCH, is_fenced=False,
        )  # fmt: skip
        try:
            await self._client.send(call)
        except NotFound:
            story.name = _name(story.about)
            return False
        return True

    def _event(self, story: _Story, namespace: str) -> dict[str, Any]:
        event: dict[str, Any] = {
            "kind": "Event",
            "metadata": {"name": story.name, "namespace": namespace},
            "eventTime": _micro_time(story.first),
            "reportingController": names.CONTROLLER_NAME,
            "reportingInstance": self._instance[:128],
            "action": str(story.reason),
            "reason": str(story.reason),
            "regarding": story.about,
            "note": story.note,
            "type": story.type,
        }
        if story.related is not None:
            event["related"] = story.related
        if story.count > 1:
            event["series"] = _series(story)
        return event


def _name(about: ObjectRef) -> str:
    """A name that no other Event has: the object's, and a random end."""
    tail = secrets.token_hex(8)
    return f"{about.name[: MAX_NAME - len(tail) - 1].rstrip('.-')}.{tail}"


def _series(story: _Story) -> dict[str, Any]:
    return {"count": story.count, "lastObservedTime": _micro_time(story.last)}


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
