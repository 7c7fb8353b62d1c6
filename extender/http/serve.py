"""`ballast serve`: the extender as one process next to kube-scheduler.

It watches GpuNodes, node pools, projects and departments but no pods, so it is ready in a second or
two. Any number of replicas may run, because they share only the ledger.
"""

import asyncio
import gc
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import structlog

from extender.api.events import Event
from extender.http.app import build_app, build_observation_app
from extender.http.bind import Binder
from extender.http.book import Book
from extender.http.claim import ClaimMemory
from extender.http.direct import DirectPlacer
from extender.http.handlers import Verbs
from extender.http.live import LiveReader
from extender.http.server import Address, Listener, ListenError, check_reach
from extender.http.shares import ShareSeater
from extender.http.tls import DEFAULT_CLIENTS, TlsFiles
from extender.kube.anew import run_anew
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import DEPARTMENTS, GPU_NODES, NODE_POOLS, PROJECTS
from extender.ledger.writer import Ledger

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The command line. Empty `kubeconfig`: $KUBECONFIG or the pod's service account.

    `tls_cert`, `tls_key` and `client_ca` go together, and are required unless `listen` is loopback.
    `metrics_listen` is a separate port for health and metrics, without TLS; empty: none.
    """

    listen: str = "127.0.0.1:8888"
    kubeconfig: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""
    allowed_clients: tuple[str, ...] = DEFAULT_CLIENTS
    metrics_listen: str = ""

    def tls_files(self) -> TlsFiles | None:
        """The TLS files, or None without any; raises ListenError if only some are given."""
        given = (self.tls_cert, self.tls_key, self.client_ca)
        if not any(given):
            return None
        if not all(given):
            raise ListenError("TLS needs a certificate, its key and a client CA; give all three")
        return TlsFiles(*given)


class Extender:
    """All parts of `serve`, on one client."""

    def __init__(self, client: Client, options: ServeOptions) -> None:
        address, tls = Address.parse(options.listen), options.tls_files()
        check_reach(address, tls)
        self.book = Book()
        memory = ClaimMemory()
        live = LiveReader(client, self.book)
        ledger = Ledger(client, self.book.node)
        placer = DirectPlacer(self.book, live, ledger)
        seater = ShareSeater(self.book, live, ledger)
        self.binder = Binder(self.book, memory, live, client, placer, seater)
        self.verbs = Verbs(self.book, memory, live, self.binder)
        self._reflectors: list[Reflector[Any]] = [
            Reflector(client, resource, self._deliver, ends_on_restore=True)
            for resource in (GPU_NODES, NODE_POOLS, PROJECTS, DEPARTMENTS)
        ]
        self._listeners = [
            Listener(build_app(self.verbs), address, tls, frozenset(options.allowed_clients))
        ]
        if options.metrics_listen:
            observed = Address.parse(options.metrics_listen)
            self._listeners.append(Listener(build_observation_app(self.verbs), observed))

    @property
    def ports(self) -> list[int]:
        """The ports of the verbs, and of health and metrics if separate; 0 before they are open."""
        return [listener.port for listener in self._listeners]

    async def run(self) -> None:
        """Watch and answer until cancelled; then finish the calls in flight."""
        async with AsyncExitStack() as stack:
            for listener in self._listeners:
                await stack.enter_async_context(listener)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            for listener in self._listeners:
                group.create_task(listener.run())

    def _deliver(self, event: Event) -> None:
        was_synced = self.book.is_synced
        self.book.apply(event)
        if self.book.is_synced and not was_synced:
            # The listed objects stay, so the collector need not walk them during a filter call.
            gc.freeze()
            _log.info("caches are filled", gpu_nodes=len(self.book))


async def run(options: ServeOptions) -> None:
    """Serve until cancelled, then finish the binds in flight.

    Raises ListenError, TlsError or Misconfigured if it cannot start with these options.
    """

    async def serve() -> None:
        connected = await Client.connect(options.kubeconfig or None, user_agent="ballast-serve")
        async with connected as client:
            await Extender(client, options).run()

    await run_anew(serve)
