"""Requests to one API server: a deadline for each, safe retries, the write fence, and metrics.

Only harmless retries are made: of reads, of requests that the server did not execute (429), and
once after a 401, with credentials read again. Any other write must be repeated by the caller: after
a broken connection only the caller can find out what happened.
"""

import asyncio
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import aiohttp
import msgspec
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import Counter, Histogram

from extender.api.units import api_time
from extender.kube.backoff import Backoff, RetryBudget
from extender.kube.connection import Connection
from extender.kube.errors import (
    DISRUPTION_BUDGET,
    KubeError,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    error_of_response,
)
from extender.kube.failpoint import reach
from extender.kube.lines import CutLine, LineSplitter
from extender.kube.warnings import read_warnings

JSON: Final = "application/json"

DEADLINE_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 3.0
MAX_TRIES: Final = 4
#: Writes in flight; more would only lengthen the API server's queues. Each has a connection, which
#: keeps 256 KiB for TLS.
MAX_WRITES: Final = 48
#: The largest object that is decoded; larger ones are skipped. etcd stores 1.5 MiB, which is up to
#: 9 MiB as JSON, because `<` becomes six bytes; decoding that takes 20 ms.
MAX_OBJECT_BYTES: Final = 64 * 2**20
#: Only a few answers above this size are read at a time, to bound memory.
LARGE_BODY_BYTES: Final = 2**20
MAX_LARGE_BODIES: Final = 4
#: How much is kept of an answer or a line that is too large: the metadata comes first.
HEAD_BYTES: Final = 2**16

#: OpenSSL's codes for a certificate that is not yet, or no longer, valid.
_BY_TIME: Final = (9, 10)
#: Exceptions of reading an answer when the connection or its data is broken. Some errors of
#: aiohttp's parser are no ClientError.
_BROKEN: Final = (
    aiohttp.ClientError,
    HttpProcessingError,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    AssertionError,
    TimeoutError,
)

_REQUESTS = Counter(
    "ballast_kube_requests_total",
    "Requests to the API server; code 0 where none came back.",
    ["method", "resource", "code"],
)
_SECONDS = Histogram(
    "ballast_kube_request_seconds",
    "Time until the whole answer was read.",
    ["method", "resource"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)
_RETRIES = Counter("ballast_kube_retries_total", "Requests sent again.", ["method", "resource"])


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `path` starts with a slash; `about` names the resource in metrics, with the
    subresource, as in `pods/status`.
    """

    method: str
    path: str
    about: str = "raw"
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str = JSON
    deadline_s: float = DEADLINE_S
    #: A larger answer is not read to the end: TooLarge is raised.
    max_bytes: int = MAX_OBJECT_BYTES
    #: Fenced writes call `Client.before_write` and wait for one of `MAX_WRITES` slots.
    is_fenced: bool = True

    @property
    def is_write(self) -> bool:
        """Whether the request may change something."""
        return self.method != "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport:
    """A connection pool and the rules for sending requests over it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._budget = RetryBudget()
        self._write_slots = asyncio.Semaphore(MAX_WRITES)
        self._large_slots = asyncio.Semaphore(MAX_LARGE_BODIES)
        #: Called right before each fenced write is sent or repeated; an exception stops the write.
        #: The leader's fence (`Leadership.check`) goes here.
        self.before_write: Callable[[], None] | None = None
        #: Called with each warning of the API server about a request that it executed.
        self.on_warning: Callable[[str], None] | None = None

    async def close(self) -> None:
        """Close the connections; requests in flight fail."""
        await self._connection.close()

    async def send(self, call: Call) -> bytes:
        """The body of the answer. `call.deadline_s` covers waiting, credentials and retries."""
        slot: AbstractAsyncContextManager[object] = nullcontext()
        if call.is_write and call.is_fenced:
            slot = self._write_slots
        try:
            async with asyncio.timeout(call.deadline_s) as timeout, slot:
                return await self._try(call, timeout.when() or 0.0)
        except TimeoutError as error:
            raise Unavailable(f"{call}: no answer within {call.deadline_s:g} s") from error

    async def lines(
        self, call: Call, read_timeout_s: float
    ) -> AsyncGenerator[bytes | bytearray | CutLine, None]:
        """Each whole line of a streamed answer, until the server ends it.

        Only the head is kept of a line above `call.max_bytes`. Raises Unavailable if the connection
        breaks or is silent for `read_timeout_s`; its status is 200 if the server had accepted the
        request.
        """
        generation = self._connection.generation
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=read_timeout_s
        )
        code = 0
        try:
            async with await self._open(call, limits) as response:
                code = response.status
                if code >= 300:
                    raise _error_of(response, await self._read(response, call), call)
                splitter = LineSplitter(call.max_bytes, HEAD_BYTES)
                async for chunk in response.content.iter_any():
                    for line in splitter.feed(chunk):
                        yield line
                if splitter.is_inside_line:
                    raise Unavailable(f"{call}: cut in the middle of a line", status=code)
        except Unauthorized:
            await self._connection.renew(generation)
            raise
        except _BROKEN as error:
            self._note_broken(error)
            raise Unavailable(f"{call}: {_text_of(error)}", status=code) from error
        finally:
            _REQUESTS.labels("WATCH", call.about, code).inc()

    async def _try(self, call: Call, deadline: float) -> bytes:
        """Send `call`; once more with credentials read again if the first were refused."""
        generation = self._connection.generation
        try:
            return await self._repeat(call, deadline)
        except Unauthorized:
            await self._connection.renew(generation)
            return await self._repeat(call, deadline)

    async def _repeat(self, call: Call, deadline: float) -> bytes:
        """Send `call` until a retry is not allowed or would not help."""
        clock = asyncio.get_running_loop().time
        backoff = Backoff(cap_s=2.0)
        n_tries = 0
        while True:
            n_tries += 1
            try:
                return await self._once(call)
            except (Throttled, Unavailable) as error:
                wait_s = _retry_delay_s(call, error, backoff)
                if wait_s is None or n_tries == MAX_TRIES or clock() + wait_s >= deadline:
                    raise
                if not self._budget.take():
                    raise
            _RETRIES.labels(call.method, call.about).inc()
            await asyncio.sleep(wait_s)

    async def _once(self, call: Call) -> bytes:
        # A read without data for half its deadline is repeated: the connection may be dead.
        limits = aiohttp.ClientTimeout(
            total=call.deadline_s,
            sock_connect=CONNECT_TIMEOUT_S,
            sock_read=None if call.is_write else call.deadline_s / 2,
        )
        code = 0
        with _SECONDS.labels(call.method, call.about).time():
            try:
                async with await self._open(call, limits) as response:
                    body = await self._read(response, call)
                    code = response.status
            except _BROKEN as error:
                self._note_broken(error)
                raise Unavailable(f"{call}: {_text_of(error)}") from error
            finally:
                _REQUESTS.labels(call.method, call.about, code).inc()
        if code >= 300:
            raise _error_of(response, body, call)
        if call.is_write:
            reach("after", call.method, call.about)
        if self.on_warning is not None:
            for text in read_warnings(response.headers.getall("Warning", ())):
                self.on_warning(text)
        self._budget.earn()
        return body

    def _note_broken(self, error: BaseException) -> None:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            self._connection.renew_trust()

    async def _read(self, response: aiohttp.ClientResponse, call: Call) -> bytes:
        """The body; raises TooLarge. Only `MAX_LARGE_BODIES` large ones are read at a time."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > LARGE_BODY_BYTES:
                break
        else:
            return bytes(body)
        async with self._large_slots:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > call.max_bytes:
                    head = bytes(body[:HEAD_BYTES])
                    raise TooLarge(f"{call}: the answer is above {call.max_bytes} bytes", head=head)
            return bytes(body)

    async def _open(self, call: Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Send the request and wait for the head of the answer."""
        headers = await self._connection.headers()
        data = None
        if call.body is not None:
            data = msgspec.json.encode(call.body)
            headers["Content-Type"] = call.content_type
        if call.is_write and call.is_fenced and self.before_write is not None:
            self.before_write()  # nothing is awaited between the fence and the request
        if call.is_write:
            reach("before", call.method, call.about)
        return await self._connection.session.request(
            call.method,
            self._connection.host + call.path,
            params=call.query,
            data=data,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
            **self._connection.options(),
        )


def _retry_delay_s(call: Call, error: KubeError, backoff: Backoff) -> float | None:
    """Seconds to wait before `call` may be sent again; None if it must not be."""
    if isinstance(error, Throttled):
        if DISRUPTION_BUDGET in error.causes:
            return None
        return max(error.retry_after_s, backoff.next_s())
    return None if call.is_write else backoff.next_s()


def _error_of(response: aiohttp.ClientResponse, body: bytes, call: Call) -> KubeError:
    retry_after = response.headers.get("Retry-After", "")
    return error_of_response(response.status, body, str(call), retry_after)


def _text_of(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _text_of_certificate(error)
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError
    ):
        code, text = error.os_error.errno or 0, error.os_error.strerror
        # asyncio's own text repeats the address; errors of resolvers have other numbers.
        why = os.strerror(code) if code > 0 else text
        return f"cannot connect to {error.host}:{error.port}: {why}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _text_of_certificate(error: aiohttp.ClientConnectorCertificateError) -> str:
    """Why the server's certificate is not accepted, with the local time if that is the reason."""
    cause = error.certificate_error
    server = f"the certificate of {error.host}:{error.port} is not accepted"
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return f"{server}: {cause}"
    clock = f"; here it is {api_time(datetime.now(UTC))}" if cause.verify_code in _BY_TIME else ""
    return f"{server}: {cause.verify_message.rstrip('.')}{clock}"
