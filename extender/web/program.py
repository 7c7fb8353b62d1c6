"""`ballast web`: serves the pages on loopback, until Ctrl-C or the end of the pod."""

import asyncio
import secrets
import webbrowser
from contextlib import AsyncExitStack
from dataclasses import dataclass

import click

from extender.http.app import Observed, build_observation_app
from extender.http.server import Address, AddressError, Listener
from extender.kube.borrowed import check_no_credentials
from extender.kube.client import Client
from extender.kube.connection import Connection, Source, namespace_of
from extender.web.answering import LIMITS
from extender.web.guard import guard, guard_behind_proxy
from extender.web.identity import each_user, one_user
from extender.web.pages import Pages
from extender.web.questions import ApiServer

_AGENT = "ballast-web"
#: Random bytes of the token in the printed URL.
TOKEN_BYTES = 24
#: OAuth2 Proxy's login, which then redirects to the path in `rd`.
_LOGIN = "/oauth2/start"


@dataclass(slots=True, frozen=True)
class WebOptions:
    """The command's options of the same names."""

    listen: str = "127.0.0.1:0"
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    opens_browser: bool = False
    is_behind_proxy: bool = False
    metrics_listen: str = ""


class _Running(Observed):
    """The state for health and metrics: the program is ready at once."""

    is_ready = True


async def run(options: WebOptions) -> None:
    """Serve until cancelled; raises ListenError and Misconfigured."""
    address = Address.parse(options.listen)
    if not address.is_loopback:
        raise AddressError(
            f"{options.listen} can be reached from other hosts, and requires no login: listen on"
            " 127.0.0.1, behind a proxy in the same pod where others are to reach it"
        )
    if options.is_behind_proxy:
        await _serve_each_user(options, address)
    else:
        await _serve_one_user(options, address)


async def _serve_one_user(options: WebOptions, address: Address) -> None:
    namespace = options.namespace or namespace_of(options.kubeconfig, options.context)
    connected = await Client.connect(
        options.kubeconfig or None, context=options.context or None, user_agent=_AGENT
    )
    async with connected as client:
        root = f"/{secrets.token_urlsafe(TOKEN_BYTES)}"
        hosts: frozenset[str] = frozenset()
        pages = Pages(one_user(ApiServer(client)), namespace, root, guard(root[1:], lambda: hosts))
        async with Listener(pages.app(), address, limits=LIMITS) as listener:
            host = f"[{address.host}]" if ":" in address.host else address.host
            shown = f"{host}:{listener.port}"
            hosts = frozenset((shown, f"localhost:{listener.port}"))
            url = f"http://{shown}{root}/"
            click.echo(url)
            click.echo("The URL has the rights of your kubeconfig. Ctrl-C ends it.", err=True)
            if options.opens_browser:
                webbrowser.open(url)
            await asyncio.Event().wait()


async def _serve_each_user(options: WebOptions, address: Address) -> None:
    async with AsyncExitStack() as stack:
        connection = await Connection.open(Source(options.kubeconfig, options.context, _AGENT))
        stack.push_async_callback(connection.close)
        await check_no_credentials(connection)
        if options.metrics_listen:
            where = Address.parse(options.metrics_listen)
            await stack.enter_async_context(Listener(build_observation_app(_Running()), where))
        asker = each_user(connection)
        pages = Pages(asker, options.namespace, "", guard_behind_proxy, login=_LOGIN)
        listener = Listener(pages.app(), address, limits=LIMITS)
        await stack.enter_async_context(listener)
        click.echo(f"http://{address.host}:{listener.port}/")
        await asyncio.Event().wait()
