"""An extender in this process, with a real client but no API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from extender.api.events import Synced, Upserted
from extender.http.book import WATCHED
from extender.http.serve import Extender, ServeOptions
from extender.kube.client import Client
from tests.support.controlplane.ports import free_ports


def unreachable_kubeconfig(folder: Path) -> str:
    """A kubeconfig for an API server on a port without a listener."""
    (port,) = free_ports(1)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "nowhere",
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
        "clusters": [{"name": "nowhere", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {"token": "none"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@dataclass
class Running:
    """An extender that answers, and a session to ask it with."""

    extender: Extender
    session: aiohttp.ClientSession
    url: str
    stop: Callable[[], object]

    def know(self, *objects: object) -> None:
        """Deliver objects as the reflectors would."""
        for each in objects:
            self.extender.book.apply(Upserted(each))

    def be_synced(self) -> None:
        """As after the first complete lists."""
        for kind in WATCHED:
            self.extender.book.apply(Synced(kind))

    async def post(self, verb: str, body: Any, **headers: str) -> tuple[int, Any]:
        """The code and the decoded body of an answer; bytes are sent as they are."""
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        named = {"Content-Type": "application/json"} | {
            key.replace("_", "-"): value for key, value in headers.items()
        }
        async with self.session.post(f"{self.url}/{verb}", headers=named, **sent) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def running(kubeconfig: str, options: ServeOptions | None = None) -> AsyncIterator[Running]:
    """An extender on a free port of loopback, stopped as SIGTERM would stop it."""
    chosen = options or ServeOptions(listen="127.0.0.1:0")
    async with await Client.connect(kubeconfig) as client:
        extender = Extender(client, chosen)
        work = asyncio.create_task(extender.run())
        try:
            while not work.done() and not all(extender.ports):
                await asyncio.sleep(0.001)
            if work.done():
                await work
            async with aiohttp.ClientSession() as session:
                yield Running(
                    extender, session, f"http://127.0.0.1:{extender.ports[0]}", work.cancel
                )
        finally:
            work.cancel()
            await asyncio.wait({work})
