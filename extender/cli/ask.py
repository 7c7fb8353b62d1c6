"""Requests of commands to an API server; a failure is one sentence on standard error."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import click

from extender.api.aliases import GROUP_LABELS
from extender.api.names import API_PATH, API_VERSION, VIEW_PATH
from extender.cli.terminal.flags import Scope, Where
from extender.cli.terminal.output import plain
from extender.kube.client import Client
from extender.kube.connection import namespace_of
from extender.kube.errors import KubeError, NotFound, RequestRefused, Unauthorized, Unavailable
from extender.kube.resources import segment
from extender.kube.transport import Call

#: Deadline of a request: an explanation takes a few dozen scheduling decisions.
DEADLINE_S: Final = 60.0
#: Objects in a page of a list, as in kubectl.
_PAGE: Final = "500"
#: Start of the message of a KubeError: the request and its status.
_REQUEST: Final = re.compile(r"^(GET|POST|PATCH|PUT|DELETE) \S+: \d+ \w+: ")

Answer = dict[str, Any]
T = TypeVar("T")


class NotThereError(click.ClickException):
    """The API server has no such object."""


def ask(where: Where, work: Callable[[Client], Awaitable[T]]) -> T:
    """The result of `work` with a client; raises ClickException if a request fails."""
    try:
        return asyncio.run(_ask(where, work))
    except Unavailable as error:
        raise click.ClickException(f"no answer: {plain(error.message)}") from None
    except NotFound as error:
        kind = click.ClickException if is_unserved(error) else NotThereError
        raise kind(plain(said(error))) from None
    except Unauthorized as error:
        why = "the API server refuses the credentials of the kubeconfig, which may have expired"
        raise click.ClickException(f"{why}: {plain(said(error))}") from None
    except KubeError as error:
        raise click.ClickException(plain(said(error))) from None


async def _ask(where: Where, work: Callable[[Client], Awaitable[T]]) -> T:
    connected = await Client.connect(
        where.kubeconfig or None,
        context=where.context or None,
        user_agent="kubectl-ballast",
        headers=where.headers,
    )
    async with connected as client:
        client.on_warning = _warn
        return await work(client)


def _warn(text: str) -> None:
    """Print a warning of the API server, as kubectl does; the same one once in a command."""
    context = click.get_current_context(silent=True)
    printed: set[str] = context.meta.setdefault("ballast.warnings", set()) if context else set()
    if text not in printed:
        printed.add(text)
        click.echo(f"Warning: {plain(text)}", err=True)


def answer_to(where: Where, call: Call) -> Answer:
    """The JSON answer of the API server; raises ClickException if the request fails."""
    return ask(where, lambda client: answered(client, call))


async def answered(client: Client, call: Call) -> Answer:
    """The JSON answer. Where Ballast's kinds are missing as well, the error is about those."""
    try:
        found: Answer = json.loads(await client.send(call))
    except NotFound as error:
        if is_unserved(error):
            await client.send(Call("GET", API_PATH, deadline_s=call.deadline_s))
        raise
    return found


def get_view(where: Where, path: str, query: Mapping[str, str] | None = None) -> Answer:
    """An answer of `ballast view`; raises ClickException if the request fails."""
    return answer_to(
        where, Call("GET", f"{VIEW_PATH}{path}", query=query or {}, deadline_s=DEADLINE_S)
    )


def space_of(scope: Scope, where: Where) -> str:
    """The namespace of the flag, else of the context; empty for all namespaces."""
    if scope.is_all:
        return ""
    return scope.namespace or namespace_of(where.kubeconfig, where.context)


async def listed(
    client: Client, path: str, *, selector: str = "", fields: str = ""
) -> list[Answer]:
    """The items of a list, page by page."""
    query = {"limit": _PAGE}
    query |= {"labelSelector": selector} if selector else {}
    query |= {"fieldSelector": fields} if fields else {}
    items: list[Answer] = []
    while True:
        page = json.loads(await client.send(Call("GET", path, query=query, deadline_s=DEADLINE_S)))
        items += page["items"]
        token = page["metadata"].get("continue")
        if not token:
            return items
        query["continue"] = token


async def listed_or_none(client: Client, path: str, **options: str) -> list[Answer] | None:
    """As `listed`; None if the user may not list the objects or the kind does not exist."""
    try:
        return await listed(client, path, **options)
    except (RequestRefused, NotFound):
        return None


def path_of(plural: str, namespace: str, root: str = "/api/v1", name: str = "") -> str:
    """The API path of a kind's objects in a namespace (all, if it is empty), or of one object.

    Raises UsageError for an invalid name.
    """
    try:
        parts = ["namespaces", segment(namespace)] if namespace else []
        parts += [plural, *([segment(name)] if name else [])]
    except RequestRefused as error:
        raise click.UsageError(error.message) from None
    return "/".join((root, *parts))


def named(*words: str) -> str:
    """The name in `NAME`, `KIND/NAME` or `KIND NAME`; raises UsageError."""
    kind, slash, name = "/".join(words).rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise click.UsageError(
            f"{' '.join(words)!r} is neither NAME nor KIND/NAME, such as job/train-7"
        )
    return name


async def keys_of(client: Client, namespace: str, selector: str) -> set[str]:
    """Keys (`namespace/name`) of the workloads that have a pod with these labels."""
    found = set()
    for pod in await listed(client, path_of("pods", namespace), selector=selector):
        found.add(key_of(pod))
    return found


def key_of(pod: Answer) -> str:
    """The key of the pod's workload: that of its group, else of the pod."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    group = next((labels[each] for each in GROUP_LABELS if labels.get(each)), "")
    return f"{meta['namespace']}/{group or meta['name']}"


def said(error: KubeError) -> str:
    """The API server's message without the request. For an unknown kind, the message says that
    Ballast, or the API of `ballast view`, is not installed."""
    message = _REQUEST.sub("", error.message)
    if not is_unserved(error):
        return message
    if VIEW_PATH in error.message:
        return (
            "this cluster does not answer questions: where Ballast runs, kubectl apply"
            " --server-side -k manifests/overlays/view installs what does"
        )
    if API_PATH in error.message:
        return f"Ballast is not installed in this cluster: it has no kinds of {API_VERSION}"
    return message


def is_unserved(error: KubeError) -> bool:
    """Whether the API server does not know the kind, or the API, of the request."""
    unknown = ("could not find the requested resource", "page not found")
    return any(each in error.message for each in unknown)
