"""Access control of requests, and the headers of every answer.

On a user's machine (`guard`):

The pages listen on loopback, where every program of the machine and, by DNS rebinding, every web
site can send requests. So a request must have the printed address as its Host, and its path must
begin with the random token of the printed URL. The token is in the path, not in a cookie: browsers
send cookies of one port to every other port of the host.

Behind a proxy that logs users in (`guard_behind_proxy`), each request brings its user's token for
the API server. A form must come from these pages, since the login is in a cookie.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Scripts, styles and pictures come from the pages' own address, and nothing is inline.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: For static files: their addresses change with their content.
KEPT: Final = {"Cache-Control": "private, max-age=31536000, immutable"}


def guard(token: str, hosts: Callable[[], frozenset[str]]) -> Middleware:
    """A middleware that admits only requests with this token and one of these Host headers."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host", "") not in hosts():
            return refuse(421, "This address is not the one that ballast web printed.")
        first = request.path.lstrip("/").partition("/")[0]
        if not hmac.compare_digest(first.encode(), token.encode()):
            return refuse(403, "Open the whole URL that ballast web printed; it has a token.")
        return await _with_headers(request, handler)

    return check


@web.middleware
async def guard_behind_proxy(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses forms from other sites, by the browser's Origin header."""
    origin = request.headers.get("Origin", "").partition("://")[2]
    if request.method != "GET" and origin != request.headers.get("Host", ""):
        return refuse(403, "This form does not come from the pages of ballast web.")
    return await _with_headers(request, handler)


async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        answer = await handler(request)
    except web.HTTPException as error:
        error.headers.update(HEADERS)
        raise
    if not answer.prepared:
        is_static = isinstance(answer, web.FileResponse)
        answer.headers.update(HEADERS | KEPT if is_static else HEADERS)
    return answer


def refuse(status: int, text: str) -> web.Response:
    """A refusal with one sentence."""
    return web.Response(status=status, text=f"{text}\n", headers=HEADERS)
