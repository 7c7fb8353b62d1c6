"""The aggregated API `view.ballast.dev/v1alpha1`: discovery, and answers to questions.

kube-apiserver has authorised the user; an answer contains only what the path permits. A question
about one namespace names no workloads of other namespaces.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec
import structlog
from aiohttp import web
from prometheus_client import Counter, Histogram

from extender.http.connections import USUAL
from extender.state.model import WorkloadView
from extender.state.workloads.imagined import Wanted
from extender.view import openapi
from extender.view.answers import (
    API_VERSION,
    GROUP,
    VERSION,
    AsOf,
    Forecast,
    Metadata,
    QueueList,
    ShareList,
    Simulation,
    SnapshotOfCluster,
)
from extender.view.asked import tell_of, wanted_of
from extender.view.explain import explain, find, try_ways
from extender.view.figures import all_figures
from extender.view.file_names import Names
from extender.view.line import waiting
from extender.view.picture import BadChangeError, Picture
from extender.view.snapshot_file import as_file

#: Limit on waiting questions; further ones get 429.
MOST_WAITING: Final = 32
#: Time limit for trying the ways out of one workload; the others are reported as not tried.
TRIED_S: Final = 10.0
#: Time limit for the run ahead of a simulation.
AHEAD_S: Final = 3.0
#: A question that has waited this long is given up, by its client too.
LIMITS: Final = replace(USUAL, request_s=60.0)
_MAX_BODY: Final = 2**20
_JSON: Final = "application/json"
#: The name of the only snapshot.
NOW: Final = "now"

_ANSWERS = Counter("ballast_view_answers_total", "Answers given.", ["resource", "code"])
_SECONDS = Histogram(
    "ballast_view_answer_seconds",
    "Time to compute an answer, including the wait for earlier ones.",
    ["resource"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
_DISAGREEMENTS = Counter(
    "ballast_view_disagreements_total",
    "Explanations with another reason than the controller gave the pods.",
)

_log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Makes the answer from a picture, in threads.
Answerer = Callable[[Picture, AsOf], Awaitable[object]]

#: Plural, kind, whether namespaced, verbs.
_RESOURCES: Final = (
    ("explanations", "Explanation", True, ["get"]),
    ("queues", "Queue", True, ["list"]),
    ("shares", "Share", False, ["list"]),
    ("simulations", "Simulation", False, ["create"]),
    ("snapshots", "Snapshot", False, ["get"]),
)


class Pictures(Protocol):
    """The source of pictures."""

    @property
    def is_ready(self) -> bool:
        """Whether everything that existed at the start is known."""

    def take(self) -> tuple[Picture, AsOf]:
        """The current cluster."""

    def take_decided(self) -> tuple[Picture, AsOf]:
        """A decided picture, some seconds old, if decisions take long; else the current one."""

    def imagine(self, wanted: Wanted) -> WorkloadView | None:
        """The workload as if it were submitted; None if no pod requests GPUs."""

    def published(self, key: str) -> str:
        """The reason that the controller gave the workload's pods; empty if none."""


class Forecasts(Protocol):
    """The source of forecasts."""

    def tell(self, picture: Picture, workload: WorkloadView) -> Forecast:
        """The forecast of a pending workload."""


class NotFoundError(Exception):
    """The object in question does not exist; the message says what."""


class _Turn:
    """Questions of one kind: they are answered one at a time, from pictures of `take`."""

    def __init__(self, take: Callable[[], tuple[Picture, AsOf]]) -> None:
        self.take = take
        self.lock = asyncio.Lock()
        self.n_waiting = 0


class Questions:
    """Answers questions in threads, so that health checks are always answered.

    Questions that take one decision do not wait for those that take many.
    """

    def __init__(self, pictures: Pictures, forecasts: Forecasts) -> None:
        self._pictures = pictures
        self._forecasts = forecasts
        self._short = _Turn(pictures.take_decided)
        self._long = _Turn(pictures.take)

    def app(self) -> web.Application:
        """The HTTP application."""
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[_as_status])
        root = f"/apis/{API_VERSION}"
        app.router.add_get("/apis", _constant(_groups()))
        app.router.add_get(f"/apis/{GROUP}", _constant(_group()))
        app.router.add_get(root, _constant(_resources()))
        app.router.add_get("/openapi/v2", _constant(_openapi_v2()))
        app.router.add_get(openapi.INDEX_PATH, _constant(openapi.index()))
        app.router.add_get(openapi.DOCUMENT_PATH, _constant(openapi.document(_paths())))
        app.router.add_get(f"{root}/namespaces/{{ns}}/explanations/{{name}}", self.explanation)
        app.router.add_get(f"{root}/namespaces/{{ns}}/queues", self.queue)
        app.router.add_get(f"{root}/queues", self.queue)
        app.router.add_get(f"{root}/shares", self.shares)
        app.router.add_post(f"{root}/simulations", self.simulation)
        app.router.add_get(f"{root}/snapshots/{NOW}", self.snapshot)
        return app

    async def explanation(self, request: web.Request) -> web.Response:
        """Why a workload is pending, found by its name, a pod's or an owner's. `?tried=false`
        leaves out checks and ways out."""
        namespace, name = request.match_info["ns"], request.match_info["name"]
        is_tried = request.query.get("tried") != "false"

        async def answer(picture: Picture, as_of: AsOf) -> object:
            try:
                found = await asyncio.to_thread(_found, picture, namespace, name)
            except NotFoundError:
                # The workload may be younger than a picture that is some seconds old.
                picture, as_of = self._pictures.take()
                found = await asyncio.to_thread(_found, picture, namespace, name)
            # The controller's current reason is compared with a current picture only.
            published = self._pictures.published(found[0].key) if is_tried else ""
            explained = await asyncio.to_thread(explain, picture, found, as_of, published)
            if explained.waiting_pods:
                explained.forecast = await asyncio.to_thread(
                    self._forecasts.tell, picture, found[0]
                )
            if is_tried:
                await asyncio.to_thread(try_ways, explained, picture, found[0], _timer(TRIED_S))
            if not explained.agrees:
                _DISAGREEMENTS.inc()
            return explained

        turn = self._long if is_tried else self._short
        return await self._answer(request, "explanations", answer, turn)

    async def queue(self, request: web.Request) -> web.Response:
        """Pending workloads in queue order. `?own=true` leaves out other namespaces."""
        namespace = request.match_info.get("ns", "")
        is_own_only = request.query.get("own") == "true"

        def answer(picture: Picture, as_of: AsOf) -> object:
            items = list(waiting(picture, namespace, is_own_only=is_own_only))
            for each in items:
                if each.workload:
                    workload = picture.snapshot.workloads[each.workload]
                    each.forecast = self._forecasts.tell(picture, workload)
            return QueueList(as_of=as_of, items=items)

        return await self._answer(request, "queues", _in_thread(answer), self._short)

    async def shares(self, request: web.Request) -> web.Response:
        """The figures of all queues."""

        def answer(picture: Picture, as_of: AsOf) -> object:
            return ShareList(as_of=as_of, items=list(all_figures(picture.plan, picture.snapshot)))

        return await self._answer(request, "shares", _in_thread(answer), self._short)

    async def simulation(self, request: web.Request) -> web.Response:
        """A what-if simulation."""
        asked = msgspec.json.decode(await request.read(), type=Simulation)

        async def answer(picture: Picture, as_of: AsOf) -> object:
            wanted = wanted_of(asked.spec, picture.snapshot, self._pictures.imagine)
            asked.status = await asyncio.to_thread(
                tell_of, picture, asked.spec, as_of, wanted, _timer(AHEAD_S)
            )
            return asked

        return await self._answer(request, "simulations", answer, self._long)

    async def snapshot(self, request: web.Request) -> web.Response:
        """The current cluster as a scenario file; with `?anonymous=true` its names are hashed."""
        names = Names(is_anonymous=request.query.get("anonymous") == "true")

        def answer(picture: Picture, as_of: AsOf) -> object:
            scenario = as_file(picture, names)
            return SnapshotOfCluster(metadata=Metadata(NOW), as_of=as_of, scenario=scenario)

        return await self._answer(request, "snapshots", _in_thread(answer), self._long)

    async def _answer(
        self, request: web.Request, resource: str, answer: Answerer, turn: _Turn
    ) -> web.Response:
        status = 201 if request.method == "POST" else 200
        if not self._pictures.is_ready:
            raise web.HTTPServiceUnavailable(text="the picture of the cluster is not complete yet")
        if turn.n_waiting >= MOST_WAITING:
            raise web.HTTPTooManyRequests(text=f"{MOST_WAITING} questions wait; ask again")
        turn.n_waiting += 1
        try:
            with _SECONDS.labels(resource).time():
                async with turn.lock:
                    if request.transport is None:
                        raise ConnectionResetError("the client has gone")
                    picture, as_of = turn.take()
                    result = await answer(picture, as_of)
                    body = await asyncio.to_thread(msgspec.json.encode, result)
        finally:
            turn.n_waiting -= 1
        _ANSWERS.labels(resource, str(status)).inc()
        # Kubernetes' clients print it; https://www.rfc-editor.org/rfc/rfc7234#section-5.5
        headers = {"Warning": f'299 - "{as_of.warning}"'} if as_of.warning else None
        return web.Response(status=status, body=body, content_type=_JSON, headers=headers)


def _in_thread(answer: Callable[[Picture, AsOf], object]) -> Answerer:
    """An Answerer that calls `answer` in a thread."""
    return lambda picture, as_of: asyncio.to_thread(answer, picture, as_of)


def _found(picture: Picture, namespace: str, name: str) -> tuple[WorkloadView, int]:
    """As `find`; raises NotFoundError."""
    workload, others = find(picture, namespace, name)
    if workload is None:
        raise NotFoundError(
            f'no live pod that Ballast schedules in namespace "{namespace}" has the name or the'
            f' owner "{name}"; if the owner has no pods, its events (kubectl describe) say why: a'
            " refused request, a ResourceQuota, spec.suspend"
        )
    return workload, others


def _timer(for_s: float) -> Callable[[], bool]:
    """A function that tells whether `for_s` seconds have passed since now."""
    ends_s = time.monotonic() + for_s
    return lambda: time.monotonic() > ends_s


@web.middleware
async def _as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as a Kubernetes Status, so that every client shows the message."""
    try:
        return await handler(request)
    except NotFoundError as error:
        return _status(404, "NotFound", str(error))
    except (BadChangeError, msgspec.DecodeError) as error:
        return _status(422, "Invalid", str(error))
    except web.HTTPException as error:
        known = ", ".join(plural for plural, *_ in _RESOURCES)
        text = f"there are {known}" if error.status == 404 else error.text or error.reason
        return _status(error.status, error.reason.replace(" ", ""), text)
    except ConnectionError:
        raise
    except Exception:
        _log.exception("a question could not be answered", path=request.path)
        return _status(500, "InternalError", "this is a bug in ballast view; see its log")


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response(body, status=code)


def _constant(body: dict[str, Any]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


def _group() -> dict[str, Any]:
    version = {"groupVersion": API_VERSION, "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def _groups() -> dict[str, Any]:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def _resources() -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [
            {
                "name": plural,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": is_namespaced,
                "verbs": verbs,
            }
            for plural, kind, is_namespaced, verbs in _RESOURCES
        ],
    }


def _paths() -> dict[str, str]:
    """The kinds by the paths of their resources below the version."""
    return {
        f"namespaces/{{namespace}}/{plural}" if is_namespaced else plural: kind
        for plural, kind, is_namespaced, _ in _RESOURCES
    }


def _openapi_v2() -> dict[str, Any]:
    """No schema: kube-apiserver requests one, and accepts an empty one."""
    info = {"title": GROUP, "version": VERSION}
    return {"swagger": "2.0", "info": info, "paths": {}}
