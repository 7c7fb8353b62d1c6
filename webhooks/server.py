"""The HTTPS server that the API server calls: POST /mutate for pods and Jobs, POST /validate for
our own kinds; and health and metrics.

A review is answered from memory, except for pods whose gang only their owner knows: the owner is
read within the webhook's timeout (`webhooks.owners.reader`). `webhooks.body` bounds the cost of a
body, and `webhooks.connection_limits` that of connections. A body is never decompressed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from extender.api.names import GROUP
from extender.api.reasons import Reason, Refused
from webhooks.body import (
    LARGE_WITHIN_S,
    MAX_BODY,
    MAX_OBJECT,
    SMALL,
    Lane,
    Oversized,
    ReviewReader,
    TooLargeError,
)
from webhooks.certs import Bundle
from webhooks.claims import names_claims, take_claims
from webhooks.jobs import decide_job
from webhooks.kinds.judge import judge_kind
from webhooks.mutate import judge, read_pod, wants_origin, with_warnings
from webhooks.native_groups import join, names_native_group, read_group
from webhooks.owners.origin import NO_OWNER
from webhooks.owners.trace import Read, trace, until
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, ReviewError, allowed, answer, read, refused

#: The API server gives up after 3 s (`timeoutSeconds`), so a slower body is useless.
BODY_DEADLINE_S: Final = 3.0
#: Reads of the pod's group and owners end this long after the request came.
READS_WITHIN_S: Final = 2.0
#: How long the rest of a refused body is read before the connection is closed.
LINGER_S: Final = 1.0
#: Go's transport keeps idle connections for 90 s; ours must not close them first.
KEEP_ALIVE_S: Final = 120.0

log = structlog.get_logger("webhooks")


class Server:
    """Answers reviews. `bundle` is the certificate in use, `now` the wall clock that judges it.

    `read_owner` reads the owner of a pod; without it owners are ignored. `nri_plugin` is the node
    agent's name as a plugin of container runtimes, if it is one.
    """

    def __init__(
        self,
        projects: ProjectIndex,
        *,
        nri_plugin: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        body_deadline_s: float = BODY_DEADLINE_S,
        reads_within_s: float = READS_WITHIN_S,
        large_within_s: float = LARGE_WITHIN_S,
    ) -> None:
        self._projects = projects
        self.bundle: Bundle | None = None
        self.read_owner: Read | None = None
        self._nri_plugin = nri_plugin
        self._now = now
        self._body_deadline_s = body_deadline_s
        self._reads_within_s = reads_within_s
        self._lane = Lane()
        self._bodies = ReviewReader(self._lane, large_within_s)
        self.registry = CollectorRegistry()
        self._reviews = Counter(
            "ballast_webhook_reviews_total",
            "Reviews answered, by decision.",
            ["decision"],
            registry=self.registry,
        )
        self._duration = Histogram(
            "ballast_webhook_review_duration_seconds",
            "Time from the complete body to the answer.",
            registry=self.registry,
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 3.0),
        )
        expires = Gauge(
            "ballast_webhook_certificate_expires_timestamp_seconds",
            "When the serving certificate expires; 0 while there is none.",
            registry=self.registry,
        )
        expires.set_function(lambda: self.bundle.ends_at.timestamp() if self.bundle else 0.0)

    def runner(self, *middlewares: Middleware) -> web.AppRunner:
        """The server, ready to be set up and given a port or connections."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=middlewares)
        app.router.add_post("/mutate", self._mutate)
        app.router.add_post("/validate", self._validate)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        # A compressed body is refused, not expanded.
        return web.AppRunner(
            app,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,
            access_log=None,
        )

    async def _mutate(self, http: web.Request) -> web.Response:
        read_owner = self.read_owner
        if read_owner is not None:
            ends_at = asyncio.get_running_loop().time() + self._reads_within_s
            read_owner = until(ends_at, read_owner)
        return await self._review(http, partial(self._decide, read_owner))

    async def _validate(self, http: web.Request) -> web.Response:
        return await self._review(http, self._decide_kind)

    async def _review(
        self, http: web.Request, decide: Callable[[Request], Awaitable[Decision]]
    ) -> web.Response:
        if hdrs.CONTENT_ENCODING in http.headers:
            return _refuse_body(415, "send the body without Content-Encoding")
        async with AsyncExitStack() as place:
            try:
                async with asyncio.timeout(self._body_deadline_s):
                    body = await self._bodies.read(http.content, http.content_length, place)
            except TimeoutError:
                return _refuse_body(408, f"body took longer than {self._body_deadline_s:g} s")
            except TooLargeError:
                return _refuse_body(413, f"body is larger than {MAX_BODY} bytes")
            started = time.perf_counter()
            try:
                request, decision = await self._decide_on(body, decide)
            except ReviewError as error:
                self._reviews.labels("malformed").inc()
                return _plain(400, str(error))
            reply = answer(request.uid, decision)
            took_s = time.perf_counter() - started
            if isinstance(body, bytes) and len(body) > SMALL:
                self._lane.used(took_s)
        self._record(request, decision, took_s)
        return web.Response(body=reply, content_type="application/json")

    async def _decide_on(
        self, body: bytes | Oversized, decide: Callable[[Request], Awaitable[Decision]]
    ) -> tuple[Request, Decision]:
        """The request and the decision about it; raises ReviewError."""
        if isinstance(body, Oversized):
            return body.request, self._without_body(body)
        request = read(body)
        return request, await decide(request)

    def _without_body(self, body: Oversized) -> Decision:
        """The decision about an object that was not decoded: refused if it could be ours."""
        request = body.request
        kind = request.kind
        is_ours = kind.group == GROUP
        if kind.kind == "Pod":
            is_ours = self._projects.project_of(request.namespace) is not None
        if not is_ours:
            return allowed()
        what = f"{kind.kind} {request.namespace}/{request.name or '(generated name)'}"
        text = f"{what:.200}: is larger than {MAX_OBJECT} bytes of JSON: keep data in a ConfigMap"
        if body.is_late:
            text = f"{what:.200}: too many large objects are being created: try again, or make it"
            text += f" smaller than {SMALL} bytes of JSON"
        return refused(Refused(Reason.INVALID_REQUEST, text))

    def _record(self, request: Request, decision: Decision, took_s: float) -> None:
        """Count the decision, and log a refusal."""
        self._reviews.labels(decision.word).inc()
        self._duration.observe(took_s)
        if not decision.is_allowed:
            log.info(
                "refused",
                kind=request.kind.kind,
                namespace=request.namespace,
                name=request.name,
                reason=decision.reason,
                detail=decision.message,
            )

    async def _decide(self, read_owner: Read | None, request: Request) -> Decision:
        if request.kind.kind != "Pod":
            return decide_job(request, self._projects)
        pod = read_pod(request)
        if isinstance(pod, Decision):
            return pod
        warnings: tuple[str, ...] = ()
        if names_native_group(pod, self._projects):
            joined = join(pod, await read_group(pod, read_owner) if read_owner else None)
            if isinstance(joined, Refused):
                return refused(joined)
            warnings = joined
        if names_claims(pod, self._projects) and (why := await take_claims(pod, read_owner)):
            return refused(why)
        origin = NO_OWNER
        if read_owner and wants_origin(pod, self._projects):
            origin = await trace(pod.metadata, read_owner)
        decision = judge(pod, request, self._projects, origin, self._nri_plugin)
        return with_warnings(decision, warnings)

    async def _decide_kind(self, request: Request) -> Decision:
        return judge_kind(request, self._projects)

    async def _healthz(self, _http: web.Request) -> web.Response:
        return _plain(200, "ok")

    async def _readyz(self, _http: web.Request) -> web.Response:
        """Ready once every GpuProject is known and the certificate is in force."""
        if not (self._projects.is_synced and self._projects.catalog.is_synced):
            return _plain(503, "projects and what they name are not listed yet")
        if self.bundle is None or not self.bundle.is_valid(self._now()):
            return _plain(503, "the serving certificate is not in force")
        return _plain(200, "ok")

    async def _metrics(self, _http: web.Request) -> web.Response:
        body = generate_latest(self.registry)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _refuse_body(status: int, text: str) -> web.Response:
    """An answer to a body that is not read to its end: the connection is closed afterwards."""
    response = _plain(status, text)
    response.force_close()
    return response
