"""The identity of a request: the only user, or the request's own user."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from extender.kube.borrowed import BorrowedConnection, is_token
from extender.kube.client import Client
from extender.kube.connection import Connection
from extender.web.questions import ApiServer, NoAnswerError, Questions

#: Raises NoAnswerError if the request has no identity.
Asker = Callable[[web.Request], Questions]

_BEARER: Final = "bearer "
#: Headers with the token; the first that is present counts.
_HEADERS: Final = ("Authorization", "X-Forwarded-Access-Token")


def one_user(questions: Questions) -> Asker:
    """Every request has the identity of the kubeconfig's user."""
    return lambda _request: questions


def each_user(connection: Connection) -> Asker:
    """Every request uses the token that the proxy passes on.

    The API server validates the token. Names and groups in headers are not read, and no header of
    the request reaches the API server.
    """

    def asker(request: web.Request) -> Questions:
        token = _token_of(request)
        if not is_token(token):
            raise NoAnswerError("You are not logged in: the proxy passed on no token.", 401)
        return ApiServer(Client(BorrowedConnection(connection, token)))

    return asker


def _token_of(request: web.Request) -> str:
    for name in _HEADERS:
        text = request.headers.get(name, "").strip()
        if text.lower().startswith(_BEARER):
            return text[len(_BEARER) :].strip()
        if text and name != "Authorization":
            return text
    return ""
