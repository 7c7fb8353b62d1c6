"""`ballast web`: the pages on loopback, until Ctrl-C."""

import asyncio
import secrets
import webbrowser
from dataclasses import dataclass

import click

from extender.http.server import Address, Listener, ListenError
from extender.kube.client import Client
from extender.kube.connection import namespace_of
from extender.web.pages import Pages, Reader
from extender.web.questions import ApiServer


@dataclass(slots=True, frozen=True)
class WebOptions:
    """As the command's options of the same names."""

    listen: str = "127.0.0.1:0"
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    opens_browser: bool = False


async def run(options: WebOptions) -> None:
    """Answer until cancelled; raises ListenError and Misconfigured."""
    address = Address.parse(options.listen)
    if not address.is_loopback:
        raise ListenError(
            f"{options.listen} can be reached from other hosts, and the pages have the rights of"
            " your kubeconfig: listen on 127.0.0.1"
        )
    namespace = options.namespace or namespace_of(options.kubeconfig, options.context)
    connected = await Client.connect(
        options.kubeconfig or None, context=options.context or None, user_agent="ballast-web"
    )
    async with connected as client:
        token = secrets.token_urlsafe(24)
        hosts: frozenset[str] = frozenset()
        pages = Pages(ApiServer(client), Reader(namespace, options.context), token, lambda: hosts)
        listener = Listener(pages.app(), address)
        await listener.open()
        try:
            host = f"[{address.host}]" if ":" in address.host else address.host
            shown = f"{host}:{listener.port}"
            hosts = frozenset((shown, f"localhost:{listener.port}"))
            url = f"http://{shown}/{token}/"
            click.echo(url)
            click.echo("The URL has the rights of your kubeconfig. Ctrl-C ends it.", err=True)
            if options.opens_browser:
                webbrowser.open(url)
            await asyncio.Event().wait()
        finally:
            await listener.close()
