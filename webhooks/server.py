"""The HTTPS server that the API server calls: POST /mutate for pods and Jobs, POST /validate for
our own kinds, and health and metrics for kubelet.

A review is answered from memory, but for pods whose gang only their owner knows: the owner is read
within the webhook's timeout (`webhooks.owners.reader`). What the body costs is bounded: 7 MiB (two
objects of 3 MiB and their frame, the bound that controller-runtime uses), sent within the webhook's
own timeout, never decompressed. What comes before a body is bounded by `webhooks.door`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from webhooks.certs import Bundle
from webhooks.jobs import decide_job
from webhooks.kinds.judge import judge_kind
from webhooks.mutate import judge, read_pod, wants_origin
from webhooks.owners.origin import NOBODY
from webhooks.owners.trace import WITHIN_S, Read, trace
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, ReviewError, answer, read

MAX_BODY: Final = 7 * 2**20
#: The API server gives up after 3 s (`timeoutSeconds`); a body that takes longer serves nobody.
BODY_DEADLINE_S: Final = 3.0
#: Bodies above this are read a few at a time, so that a flood of them costs no memory to speak of;
#: pods are some KiB, and only an object with large annotations comes near it.
LARGE_BODY: Final = 64 * 2**10
MAX_LARGE_BODIES: Final = 2
#: What is left of a refused body is read for so long before the connection is closed.
LINGER_S: Final = 1.0
#: Go's transport keeps idle connections for 90 s; ours must not close them first.
KEEP_ALIVE_S: Final = 120.0

log = structlog.get_logger("webhooks")


class Server:
    """Answers reviews. `bundle` is the certificate in use, `now` the wall clock that judges it.

    `read_owner` reads the owner of a pod; without it pods stand for themselves. `nri_plugin` is
    what the node agent is called by container runtimes, where there is one.
    """

    def __init__(
        self,
        projects: ProjectIndex,
        *,
        nri_plugin: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        body_deadline_s: float = BODY_DEADLINE_S,
        owner_deadline_s: float = WITHIN_S,
    ) -> None:
        self._projects = projects
        self.bundle: Bundle | None = None
        self.read_owner: Read | None = None
        self._nri_plugin = nri_plugin
        self._now = now
        self._body_deadline_s = body_deadline_s
        self._owner_deadline_s = owner_deadline_s
        self._large_bodies = asyncio.Semaphore(MAX_LARGE_BODIES)
        self.registry = CollectorRegistry()
        self._reviews = Counter(
            "ballast_webhook_reviews_total",
            "Reviews answered, by decision.",
            ["decision"],
            registry=self.registry,
        )
        self._duration = Histogram(
            "ballast_webhook_review_duration_seconds",
            "From the whole body to the answer.",
            registry=self.registry,
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 3.0),
        )

    def runner(self, *middlewares: Middleware) -> web.AppRunner:
        """The server, ready to be set up and given a port or a door (`webhooks.door`)."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=middlewares)
        app.router.add_post("/mutate", self._mutate)
        app.router.add_post("/validate", self._validate)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        # A body that says it is compressed is refused, not expanded.
        return web.AppRunner(
            app,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,
            access_log=None,
        )

    async def _mutate(self, http: web.Request) -> web.Response:
        return await self._review(http, self._decide)

    async def _validate(self, http: web.Request) -> web.Response:
        return await self._review(http, self._decide_kind)

    async def _review(
        self, http: web.Request, decide: Callable[[Request], Awaitable[Decision]]
    ) -> web.Response:
        if hdrs.CONTENT_ENCODING in http.headers:
            return _plain(415, "send the body without Content-Encoding")
        try:
            async with asyncio.timeout(self._body_deadline_s):
                body = await self._read_body(http)
        except TimeoutError:
            return _plain(408, f"body took longer than {self._body_deadline_s:g} s")
        started = time.perf_counter()
        try:
            request = read(body)
        except ReviewError as error:
            self._reviews.labels("malformed").inc()
            return _plain(400, str(error))
        decision = await decide(request)
        self._reviews.labels(decision.word).inc()
        self._duration.observe(time.perf_counter() - started)
        if not decision.is_allowed:
            log.info(
                "refused",
                kind=request.kind.kind,
                namespace=request.namespace,
                name=request.name,
                reason=decision.reason,
                detail=decision.message,
            )
        return web.Response(body=answer(request.uid, decision), content_type="application/json")

    async def _read_body(self, http: web.Request) -> bytes:
        """The whole body; raises HTTPRequestEntityTooLarge. A large one waits for its turn."""
        parts: list[bytes] = []
        size = 0
        async with AsyncExitStack() as place:
            while part := await http.content.readany():
                is_first = size <= LARGE_BODY < size + len(part)
                size += len(part)
                parts.append(part)
                if size > MAX_BODY:
                    raise web.HTTPRequestEntityTooLarge(MAX_BODY, size)
                if is_first:
                    await place.enter_async_context(self._large_bodies)
            return b"".join(parts)

    async def _decide(self, request: Request) -> Decision:
        if request.kind.kind != "Pod":
            return decide_job(request, self._projects)
        pod = read_pod(request)
        if isinstance(pod, Decision):
            return pod
        origin = NOBODY
        if self.read_owner and wants_origin(pod, self._projects):
            origin = await trace(pod.metadata, self.read_owner, self._owner_deadline_s)
        return judge(pod, request, self._projects, origin, self._nri_plugin)

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
