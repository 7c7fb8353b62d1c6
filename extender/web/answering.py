"""Formats of a page: HTML, JSON, or an event stream that sends it again when it changes.

The request's Accept header selects the format. JSON has the answers as the API server gave them.
The slow part of a page comes last in its HTML, and the rest is sent before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec
from aiohttp import web
from markupsafe import Markup

from extender.cli.questions import forecasts
from extender.http.connections import USUAL
from extender.view.answers import AsOf
from extender.web.guard import HEADERS
from extender.web.questions import NoAnswerError

_HERE: Final = Path(__file__).parent
#: Interval and number of a stream's updates; the browser then opens a new one.
EVERY_S: Final = 5.0
ROUNDS: Final = 120
#: Time limit of a response: a stream's whole life, and some rounds.
LIMITS: Final = replace(USUAL, request_s=(ROUNDS + 12) * EVERY_S)
#: Limit on open streams; a page without one stays as it is until it is reloaded.
MOST_STREAMS: Final = 64
#: Makes proxies pass on data without buffering.
_UNBUFFERED: Final = {"X-Accel-Buffering": "no"}
#: Marks the place of a page's `later` part.
LATER: Final = Markup("<!-- later -->")


@dataclass(slots=True, frozen=True)
class Content:
    """The content of a page: `values` for its template, `data` for programs.

    `command` is the equivalent command line. `later` computes the part that replaces `LATER`; its
    `data` is that of the whole page.
    """

    template: str
    command: str
    values: dict[str, Any] = field(default_factory=dict)
    data: object = None
    as_of: AsOf | None = None
    status: int = 200
    later: "Page | None" = None


Page = Callable[[web.Request], Awaitable[Content]]


class Answering:
    """Renders pages. `everywhere` are values for every template."""

    def __init__(self, filters: dict[str, Any], everywhere: dict[str, Any]) -> None:
        self._everywhere = everywhere
        self._n_streams = 0
        self._closing = asyncio.Event()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(filters)
        self._templates.filters["when"] = forecasts.when
        self._templates.filters["how_sure"] = forecasts.how_sure

    async def close(self, _app: web.Application) -> None:
        """End every stream."""
        self._closing.set()

    def answer(self, page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler for the page."""

        async def handler(request: web.Request) -> web.StreamResponse:
            accepted = request.headers.get("Accept", "")
            if request.method == "GET" and accepted.startswith("text/event-stream"):
                return await self._stream(request, page)
            content = await _content_of(request, page)
            if "application/json" in accepted and "text/html" not in accepted:
                if content.later:
                    content = await _content_of(request, content.later)
                body = msgspec.json.encode(content.data)
                return web.Response(
                    body=body, content_type="application/json", status=content.status
                )
            if content.later:
                return await self._in_two(request, content, content.later)
            text = self._html(request, content)
            return web.Response(text=text, content_type="text/html", status=content.status)

        return handler

    async def _in_two(
        self, request: web.Request, content: Content, later: Page
    ) -> web.StreamResponse:
        """Sends the fast part first, so that it can be read while the slow part is computed."""
        first, _, last = self._html(request, content).partition(LATER)
        answer = web.StreamResponse(headers=HEADERS | _UNBUFFERED)
        answer.content_type, answer.charset = "text/html", "utf-8"
        await answer.prepare(request)
        await answer.write(first.encode())
        part = self._html(request, await _content_of(request, later, "later.html"))
        await answer.write(f"{part}{last}".encode())
        return answer

    async def _stream(self, request: web.Request, page: Page) -> web.StreamResponse:
        """Server-sent events: the page, whenever it differs from the last one sent.

        The stream ends with the user's token: the browser reconnects, with a new token if the proxy
        has one by then.
        """
        if self._n_streams >= MOST_STREAMS:
            return web.Response(status=503, text="too many streams are open\n")
        answer = web.StreamResponse(headers=HEADERS | _UNBUFFERED)
        answer.content_type = "text/event-stream"
        self._n_streams += 1
        try:
            await answer.prepare(request)
            last = ""
            for _ in range(ROUNDS):
                content = await _content_of(request, page)
                is_ended = content.status == 401
                text = self._html(request, content)
                if text != last and not (is_ended and last):
                    lines = "".join(f"data: {line}\n" for line in text.splitlines())
                    await answer.write(f"{lines}\n".encode())
                    last = text
                if is_ended or await self._is_closing():
                    break
        except ConnectionError:
            pass  # the page was left
        finally:
            self._n_streams -= 1
        return answer

    async def _is_closing(self) -> bool:
        try:
            await asyncio.wait_for(self._closing.wait(), EVERY_S)
        except TimeoutError:
            return False
        return True

    def _html(self, request: web.Request, content: Content) -> str:
        values = self._everywhere | {
            "page": content.template.removesuffix(".html"),
            "query": request.query,
            "sort": request.query.get("sort", ""),
            "command": content.command,
            "as_of": content.as_of,
            "later": LATER,
        }
        return self._templates.get_template(content.template).render(**values | content.values)


async def _content_of(request: web.Request, page: Page, refused: str = "refused.html") -> Content:
    """The page's content, or the reason why there is none, by the template `refused`."""
    try:
        return await page(request)
    except NoAnswerError as error:
        data = {"message": str(error), "code": error.status}
        values = {"message": str(error), "status": error.status, "path": request.path_qs}
        return Content(refused, "", values, data, status=error.status)
