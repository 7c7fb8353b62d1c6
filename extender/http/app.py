"""The HTTP interface: four verbs by POST, health and metrics by GET.

Every body is decoded or refused before any decision. kube-scheduler reads only the code of an
answer other than 200; the text is for people who try the verbs by hand.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from aiohttp import hdrs, web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from extender.http import metrics
from extender.http.bodies import JSON, MAX_BODY_BYTES, BodyReader
from extender.http.handlers import Answer, Verbs
from extender.http.metrics import Result, Verb
from extender.http.wire import BadBodyError, ExtenderBindingResult, encode

_log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(verbs: Verbs) -> web.Application:
    """The whole interface: verbs, health, metrics."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_explain_errors])
    bodies = BodyReader()
    app.router.add_post("/filter", _handler("filter", verbs.filter, verbs, bodies))
    app.router.add_post("/prioritize", _handler("prioritize", verbs.prioritize, verbs, bodies))
    app.router.add_post("/preempt", _handler("preempt", verbs.preempt, verbs, bodies))
    app.router.add_post("/bind", _handler("bind", verbs.bind, verbs, bodies))
    _add_observation(app, verbs)
    return app


class Observed(Protocol):
    """A program as seen by its health and metrics endpoints."""

    @property
    def is_ready(self) -> bool:
        """Whether its caches are filled."""

    def note_sizes(self) -> None:
        """Update its size gauges, if any, before metrics are shown."""
        return


def _answers() -> bool:
    """The default liveness: a program that answers is alive."""
    return True


def build_observation_app(
    observed: Observed, is_alive: Callable[[], bool] = _answers
) -> web.Application:
    """Only health and metrics, for a separate port. If the program is not `is_alive`, `/healthz`
    answers 503, so that kubelet restarts it."""
    app = web.Application(middlewares=[_explain_errors])
    _add_observation(app, observed, is_alive)
    return app


def _add_observation(
    app: web.Application, verbs: Observed, is_alive: Callable[[], bool] = _answers
) -> None:
    async def healthz(_request: web.Request) -> web.Response:
        if is_alive():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="a decision hangs\n")

    async def readyz(_request: web.Request) -> web.Response:
        if verbs.is_ready:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the caches are not filled yet\n")

    async def show_metrics(_request: web.Request) -> web.Response:
        verbs.note_sizes()
        # In a thread, because with a thousand projects it takes a good part of a second.
        body = await asyncio.to_thread(generate_latest)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)


def _handler(
    verb: Verb, answer: Callable[[bytes], Awaitable[Answer]], verbs: Verbs, bodies: BodyReader
) -> Handler:
    duration = metrics.DURATION.labels(verb)

    def count(result: Result) -> None:
        metrics.REQUESTS.labels(verb, result).inc()

    async def handle(request: web.Request) -> web.Response:
        if not verbs.is_ready:
            count("not_ready")
            return _refuse(503, "the caches are not filled yet")
        try:
            body = await bodies.read(request)
        except web.HTTPException:
            count("bad_request")
            raise
        started = time.perf_counter()
        try:
            reply = await answer(body)
        except BadBodyError as error:
            count("bad_request")
            return _refuse(400, str(error))
        except Exception:
            count("crashed")
            raise
        duration.observe(time.perf_counter() - started)
        count(reply.result)
        return web.Response(body=reply.body, content_type=JSON)

    return handle


@web.middleware
async def _explain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as JSON {"Error": text}; log an unexpected one and answer 500."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _refuse(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return _refuse(405, f"use {allowed}", {hdrs.ALLOW: allowed})
    except web.HTTPNotFound:
        known = ", ".join(f"/{verb}" for verb in metrics.VERBS)
        return _refuse(404, f"there are {known}, /healthz, /readyz, /metrics")
    except web.HTTPException as error:
        return _refuse(error.status, error.text or error.reason)
    except ConnectionError:
        raise
    except Exception:
        _log.exception("a handler failed", path=request.path)
        return _refuse(500, "this is a bug in the extender; its log has the details")


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status,
        body=encode(ExtenderBindingResult(text)),
        content_type=JSON,
        headers=headers,
    )
