"""`ballast view` as a process: watches as the controller does, and never writes to a workload.

It decides on snapshots of its own, so that no question slows a cycle. It takes no part in the
election, and does not know what only the leader's memory holds: deadlines of budgets, and what
queues held lately, which only breaks ties.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from extender.api.events import Event
from extender.cycle.keepers.job_sizes import JobReader
from extender.cycle.keepers.volumes import VolumeReader
from extender.cycle.past_use import PastUseKeeper
from extender.http.app import Observed, build_observation_app
from extender.http.server import Address, Listener
from extender.http.tls import TlsFiles
from extender.kube.anew import run_anew
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import MODEL, Resource
from extender.kube.served import served_devices
from extender.policy.plan import Settings
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.workloads.imagined import Wanted
from extender.view.answers import AsOf
from extender.view.forecaster import Forecaster
from extender.view.front_proxy import follow_ca, read_front_proxy
from extender.view.line import as_time
from extender.view.picture import Picture
from extender.view.registration import register, write_certificate
from extender.view.server import LIMITS, Questions

#: A picture answers questions for this long, so that a burst of them costs one decision.
FRESH_S: Final = 1.0
#: Where a decision takes more CPU time than this, lists are answered from one made ahead.
QUICK_S: Final = 0.2
#: The rest between two decisions made ahead, in seconds and in times of what one takes: a fifth of
#: a core at most.
REST_S: Final = 5.0
REST_TIMES: Final = 4.0
#: The rest between two looks at which claims of waiting pods and Jobs are to be read.
UNWATCHED_S: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class _Taken:
    """A picture, when it was taken (monotonic seconds), and what answers say of that."""

    at: float
    picture: Picture
    as_of: AsOf


@dataclass(slots=True, frozen=True)
class ViewOptions:
    """What the command line says."""

    listen: str
    metrics_listen: str
    kubeconfig: str = ""


class View(Observed):
    """The model of the cluster, and pictures of it."""

    def __init__(
        self, client: Client, options: ViewOptions, devices: Sequence[Resource[Any]] = ()
    ) -> None:
        """`devices` are kinds that the model has besides `MODEL`, where they are served."""
        self._settings = Settings()
        self.state = ClusterState()
        self._past_use = PastUseKeeper(self.state)
        self._volumes = VolumeReader(client, self.state)
        self._jobs = JobReader(client, self.state)
        self._newest = 0
        self._last: _Taken | None = None
        self._ahead: _Taken | None = None
        self._took_s = 0.0
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, resource, self._deliver, ends_on_restore=True)
            for resource in (*MODEL, *devices)
        ]

    @property
    def is_ready(self) -> bool:
        """Whether the model holds all there was at the start."""
        return all(self.state.has_synced(resource.kind) for resource in MODEL)

    def take(self) -> tuple[Picture, AsOf]:
        """The cluster as it is now, or was up to `FRESH_S` ago."""
        now = time.monotonic()
        if self._last is None or now - self._last.at > FRESH_S:
            if self._last is not None and self._last.picture.is_decided:
                before = self._last.picture
                self._past_use.step(before.plan, before.snapshot)
            now_s = int(time.time())
            picture = Picture(self.state.snapshot(now_s), self._settings)
            self._last = _Taken(now, picture, AsOf(as_time(now_s), str(self._newest)))
        return self._last.picture, self._last.as_of

    def take_decided(self) -> tuple[Picture, AsOf]:
        """The newest picture that was decided ahead, where a decision takes more than `QUICK_S`;
        else as `take`."""
        if self._ahead is None or self._took_s <= QUICK_S:
            return self.take()
        return self._ahead.picture, self._ahead.as_of

    async def decide_ahead(self) -> None:
        """Decide on the cluster of now, so that `take_decided` has it; answers go on without."""
        self.take()
        taken = self._last
        assert taken is not None
        try:
            self._took_s = await asyncio.to_thread(_decide, taken.picture)
            self._ahead = taken
        except Exception:
            self._ahead = None
            _log.exception("no decision could be made ahead")

    async def fill(self) -> None:
        """Return when the model has what watches and claims say, and a first decision is made."""
        await asyncio.gather(*(reflector.wait_synced() for reflector in self.reflectors))
        await self._volumes.keep()
        await self.decide_ahead()

    async def read_unwatched(self) -> None:
        """Read the claims of pods that wait, and the Jobs of gangs that are short of pods, until
        cancelled; they are not watched."""
        while True:
            await self._volumes.keep()
            await self._jobs.keep()
            await asyncio.sleep(UNWATCHED_S)

    async def run(self) -> None:
        """Decide ahead until cancelled."""
        while True:
            await self.decide_ahead()
            await asyncio.sleep(max(REST_S, REST_TIMES * self._took_s))

    def imagine(self, wanted: Wanted) -> WorkloadView | None:
        """The workload as it would be if it were submitted now."""
        return self.state.imagine(wanted)

    def published(self, key: str) -> str:
        """What the condition `ballast.dev/Placed` of the workload's first waiting pod says."""
        workload = self.state.workloads().get(key)
        pods = workload.pods if workload else ()
        return next((message for pod in pods if (message := self.state.placed_reason(pod))), "")

    def _deliver(self, event: Event) -> None:
        self.state.apply(event)
        version = getattr(getattr(event, "obj", None), "metadata", None)
        if version is not None and version.resource_version.isdigit():
            self._newest = max(self._newest, int(version.resource_version))


def _decide(picture: Picture) -> float:
    """CPU seconds that deciding on the picture took; blocks."""
    began_s = time.thread_time()
    assert picture.plan
    return time.thread_time() - began_s


async def run(options: ViewOptions) -> None:
    """Watch and answer until cancelled. Raises ListenError, TlsError or a KubeError when it cannot
    start as asked."""

    async def serve() -> None:
        connected = await Client.connect(options.kubeconfig or None, user_agent="ballast-view")
        async with connected as client:
            await _serve(client, options)

    await run_anew(serve)


async def _serve(client: Client, options: ViewOptions) -> None:
    view = View(client, options, await served_devices(client))
    async with AsyncExitStack() as stack:
        observed = Listener(build_observation_app(view), Address.parse(options.metrics_listen))
        await stack.enter_async_context(observed)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy = await read_front_proxy(client)
        certificate, key = write_certificate(folder)
        trusted = certificate.read_bytes()
        ca = folder / "front-proxy.crt"
        ca.write_text(proxy.ca, encoding="utf-8")
        forecaster = Forecaster(lambda: view.take_decided()[0])
        listener = Listener(
            Questions(view, forecaster).app(),
            Address.parse(options.listen),
            TlsFiles(str(certificate), str(key), str(ca)),
            proxy.names or None,
            LIMITS,
        )
        await stack.enter_async_context(listener)
        async with asyncio.TaskGroup() as tasks:
            for reflector in view.reflectors:
                tasks.create_task(reflector.run())
            await view.fill()
            gc.freeze()
            await register(client, trusted)
            _log.info("answering", nodes=len(view.state.gpu_nodes))
            tasks.create_task(listener.run())
            tasks.create_task(follow_ca(client, ca))
            tasks.create_task(view.run())
            tasks.create_task(view.read_unwatched())
            tasks.create_task(forecaster.run())
