"""All writes of the cluster in one order: a reader of etcd's JSON gateway.

The API server has one watch per kind, each with its own delay, so their events have no common
order. etcd's watch on a prefix has all of them in order of revision, which is the resourceVersion
that clients see. `stored` converts the protobuf of kube-apiserver's own kinds to JSON.
"""

import asyncio
import base64
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec
from msgspec import Struct, field

from tests.support.auditor.history import DELETED, FOLDERS, Change, locate
from tests.support.auditor.stored import as_json

PAGE: Final = 500
RETRY_S: Final = 0.2


class HistoryLostError(Exception):
    """etcd no longer has the next revisions, so the audit would have a gap."""


class _Header(Struct):
    revision: str = "0"


class _KeyValue(Struct):
    key: str = ""
    mod_revision: str = "0"
    value: str = ""


class _Range(Struct):
    header: _Header = field(default_factory=_Header)
    kvs: list[_KeyValue] = field(default_factory=list)
    more: bool = False


class _Event(Struct):
    kv: _KeyValue
    type: str = "PUT"


class _Watch(Struct):
    header: _Header = field(default_factory=_Header)
    events: list[_Event] = field(default_factory=list)
    canceled: bool = False
    compact_revision: str = "0"
    cancel_reason: str = ""


class _Answer(Struct):
    result: _Watch | None = None
    error: msgspec.Raw | None = None


@dataclass(slots=True, frozen=True)
class Store:
    """The API server's store: etcd's client URL, and the --etcd-prefix."""

    url: str
    prefix: str = "/registry"


class Reader:
    """Reads the state once, then every change after it; for a single iteration."""

    def __init__(self, store: Store, session: aiohttp.ClientSession) -> None:
        self._store = store
        self._session = session
        self._root = store.prefix.rstrip("/") + "/"
        self._next = 0
        self._answers = msgspec.json.Decoder(_Answer)

    async def read_state(self) -> list[Change]:
        """The present state, as initial changes. `changes` continues right after it."""
        found: list[Change] = []
        revision = ""
        for folder in FOLDERS:
            start = f"{self._root}{folder}/".encode()
            end, is_more = start[:-1] + b"0", True
            while is_more:
                page = await self._range(start, end, revision)
                revision = revision or page.header.revision
                found += [each for kv in page.kvs if (each := self._change(kv, is_initial=True))]
                is_more = page.more
                start = base64.b64decode(page.kvs[-1].key) + b"\x00" if page.kvs else start
        self._next = int(revision) + 1
        return found

    async def changes(self) -> AsyncIterator[Change | str]:
        """All changes after `read_state`, without end; a string is the name of a mark (`mark`).

        After a broken connection it continues at the next revision. Raises HistoryLostError if that
        has been compacted.
        """
        while True:
            try:
                async for answer in self._watch():
                    for event in answer.events:
                        revision = int(event.kv.mod_revision)
                        if revision < self._next:
                            continue  # seen before the connection broke
                        if seen := self._event(event):
                            yield seen
                    if answer.events:
                        self._next = int(answer.events[-1].kv.mod_revision) + 1
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                pass
            await asyncio.sleep(RETRY_S)

    async def mark(self) -> str:
        """Write a mark; once `changes` yields its name, all earlier writes have been yielded.

        It is a key under the prefix that belongs to no API type, so the API server ignores it.
        """
        name = f"audit-marks/{uuid.uuid4().hex}"
        await self._post("kv/put", {"key": _b64(f"{self._root}{name}".encode()), "value": ""})
        return name

    # -- wire --------------------------------------------------------------------------------

    async def _range(self, start: bytes, end: bytes, revision: str) -> _Range:
        body = {"key": _b64(start), "range_end": _b64(end), "limit": PAGE}
        if revision:
            body["revision"] = revision
        return msgspec.json.decode(await self._post("kv/range", body), type=_Range)

    async def _post(self, path: str, body: object) -> bytes:
        url = f"{self._store.url}/v3/{path}"
        timeout = aiohttp.ClientTimeout(total=10)
        async with self._session.post(
            url, data=msgspec.json.encode(body), timeout=timeout
        ) as response:
            response.raise_for_status()
            return await response.read()

    async def _watch(self) -> AsyncIterator[_Watch]:
        end = self._root[:-1].encode() + b"0"
        create = {
            "key": _b64(self._root.encode()),
            "range_end": _b64(end),
            "start_revision": str(self._next),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._session.post(
            f"{self._store.url}/v3/watch",
            data=msgspec.json.encode({"create_request": create}),
            timeout=timeout,
        ) as response:
            response.raise_for_status()
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield self._read_answer(line)

    def _read_answer(self, line: bytes) -> _Watch:
        answer = self._answers.decode(line)
        if answer.result is None:
            raise ConnectionError(f"etcd ended the watch: {bytes(answer.error or b'')!r}")
        if answer.result.canceled:
            if int(answer.result.compact_revision):
                raise HistoryLostError(
                    f"etcd compacted up to revision {answer.result.compact_revision},"
                    f" next to read was {self._next}"
                )
            raise ConnectionError(f"etcd ended the watch: {answer.result.cancel_reason}")
        return answer.result

    def _event(self, event: _Event) -> Change | str | None:
        path = base64.b64decode(event.kv.key).decode()[len(self._root) :]
        if path.startswith("audit-marks/"):
            return path if event.type == "PUT" else None
        return self._change(event.kv, is_deleted=event.type == "DELETE")

    def _change(
        self, kv: _KeyValue, *, is_initial: bool = False, is_deleted: bool = False
    ) -> Change | None:
        place = locate(base64.b64decode(kv.key).decode()[len(self._root) :])
        if place is None:
            return None
        # Custom resources are stored with a trailing newline, which would break a recording.
        value = DELETED
        if not is_deleted:
            value = msgspec.Raw(as_json(place[0], base64.b64decode(kv.value)).strip())
        return Change(int(kv.mod_revision), time.monotonic(), *place, value, is_initial)


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()
