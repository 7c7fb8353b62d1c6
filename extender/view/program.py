"""`ballast view` as a process: watches as the controller does, and never writes to a workload.

It decides on snapshots of its own, so that no question slows a cycle. It takes no part in the
election, and does not know what only the leader's memory holds: deadlines of budgets, and what
queues held lately, which only breaks ties.
"""

import asyncio
import gc
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from extender.api.events import Event
from extender.cycle.past_use import PastUseKeeper
from extender.http.app import build_observation_app
from extender.http.server import Address, Listener
from extender.http.tls import TlsFiles
from extender.kube.anew import run_anew
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import MODEL
from extender.policy.plan import Settings
from extender.state.cluster import ClusterState
from extender.view.answers import AsOf
from extender.view.forecaster import Forecaster
from extender.view.front_proxy import read_front_proxy
from extender.view.line import as_time
from extender.view.picture import Picture
from extender.view.registration import register, write_certificate
from extender.view.server import Questions

#: A picture answers questions for this long, so that a burst of them costs one decision.
FRESH_S: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class ViewOptions:
    """What the command line says."""

    listen: str
    metrics_listen: str
    kubeconfig: str = ""


class View:
    """The model of the cluster, and pictures of it."""

    def __init__(self, client: Client, options: ViewOptions) -> None:
        self._settings = Settings()
        self.state = ClusterState()
        self._past_use = PastUseKeeper(self.state)
        self._newest = 0
        self._last: tuple[float, Picture, AsOf] | None = None
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, resource, self._deliver, ends_on_restore=True) for resource in MODEL
        ]

    @property
    def is_ready(self) -> bool:
        """Whether the model holds all there was at the start."""
        return all(self.state.has_synced(resource.kind) for resource in MODEL)

    def note_sizes(self) -> None:
        """There are no gauges of its size."""

    def take(self) -> tuple[Picture, AsOf]:
        """The cluster as it is now, or was up to `FRESH_S` ago."""
        now = time.monotonic()
        if self._last is None or now - self._last[0] > FRESH_S:
            if self._last is not None and self._last[1].is_decided:
                before = self._last[1]
                self._past_use.step(before.plan, before.snapshot)
            now_s = int(time.time())
            picture = Picture(self.state.snapshot(now_s), self._settings)
            self._last = now, picture, AsOf(as_time(now_s), str(self._newest))
        return self._last[1], self._last[2]

    def published(self, key: str) -> str:
        """What the condition `ballast.dev/Placed` of the workload's first waiting pod says."""
        workload = self.state.workloads().get(key)
        pods = workload.pods if workload else ()
        return next((told for pod in pods if (told := self.state.told_of(pod))), "")

    def _deliver(self, event: Event) -> None:
        self.state.apply(event)
        version = getattr(getattr(event, "obj", None), "metadata", None)
        if version is not None and version.resource_version.isdigit():
            self._newest = max(self._newest, int(version.resource_version))


async def run(options: ViewOptions) -> None:
    """Watch and answer until cancelled. Raises ListenError, TlsError or a KubeError when it cannot
    start as asked."""

    async def serve() -> None:
        connected = await Client.connect(options.kubeconfig or None, user_agent="ballast-view")
        async with connected as client:
            await _serve(client, options)

    await run_anew(serve)


async def _serve(client: Client, options: ViewOptions) -> None:
    view = View(client, options)
    async with AsyncExitStack() as stack:
        observed = Listener(build_observation_app(view), Address.parse(options.metrics_listen))
        await observed.open()
        stack.push_async_callback(observed.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy = await read_front_proxy(client)
        certificate, key = write_certificate(folder)
        trusted = certificate.read_bytes()
        ca = folder / "front-proxy.crt"
        ca.write_text(proxy.ca, encoding="utf-8")
        forecaster = Forecaster(lambda: view.take()[0])
        listener = Listener(
            Questions(view, forecaster).app(),
            Address.parse(options.listen),
            TlsFiles(str(certificate), str(key), str(ca)),
            proxy.names or None,
        )
        await listener.open()
        stack.push_async_callback(listener.close)
        async with asyncio.TaskGroup() as tasks:
            for reflector in view.reflectors:
                tasks.create_task(reflector.run())
            await asyncio.gather(*(reflector.wait_synced() for reflector in view.reflectors))
            gc.freeze()
            await register(client, trusted)
            _log.info("answering", nodes=len(view.state.gpu_nodes))
            tasks.create_task(listener.run())
            tasks.create_task(forecaster.run())
