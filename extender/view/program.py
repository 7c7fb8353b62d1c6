"""`ballast view` as a process: watches as the controller does, and never writes to a workload.

It decides on its own snapshots, so that questions do not slow down a cycle. It takes no part in the
election, and lacks the leader's in-memory state: deadlines of budgets, and recent allocations of
queues, which only break ties.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from extender.api.events import Event, Upserted
from extender.api.versions import version_number
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
from extender.kube.served import served_devices, watch_for_devices
from extender.policy.plan import Settings
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.workloads.imagined import Wanted
from extender.view.answers import AsOf
from extender.view.forecaster import Forecaster
from extender.view.front_proxy import follow_ca, read_front_proxy
from extender.view.leader import LeaderWatch
from extender.view.line import as_time
from extender.view.picture import Picture
from extender.view.registration import keep_registered, register, write_certificate
from extender.view.server import LIMITS, Questions

#: A picture is used for this long, so that a burst of questions costs one decision.
FRESH_S: Final = 1.0
#: If a decision takes more CPU time than this, lists are answered from one made ahead.
QUICK_S: Final = 0.2
#: The pause between two decisions made ahead, in seconds and as a multiple of a decision's time: at
#: most a fifth of a core.
REST_S: Final = 5.0
REST_TIMES: Final = 4.0
#: The pause between two checks for claims of pending pods, and Jobs, to read.
UNWATCHED_S: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class _Taken:
    """A picture, when it was taken (monotonic seconds), and its time in answers."""

    at: float
    picture: Picture
    as_of: AsOf


@dataclass(slots=True, frozen=True)
class ViewOptions:
    """The options of the command line."""

    listen: str
    metrics_listen: str
    namespace: str
    kubeconfig: str = ""


class View(Observed):
    """The model of the cluster, and pictures of it."""

    def __init__(
        self, client: Client, options: ViewOptions, devices: Sequence[Resource[Any]] = ()
    ) -> None:
        """`devices` are the served kinds in addition to `MODEL`."""
        self._settings = Settings()
        self._client = client
        self._has_devices = bool(devices)
        self.state = ClusterState()
        self._past_use = PastUseKeeper(self.state)
        self._volumes = VolumeReader(client, self.state)
        self._jobs = JobReader(client, self.state)
        self.leader = LeaderWatch(client, options.namespace)
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
        """Whether the model holds everything that existed at the start."""
        return all(self.state.has_synced(resource.kind) for resource in MODEL)

    def watches(self) -> Iterator[Coroutine[Any, Any, NoReturn]]:
        """What keeps the model current; one that raises NewlyServed or Restored says that the
        program has to start anew."""
        for reflector in self.reflectors:
            yield reflector.run()
        if not self._has_devices:
            yield watch_for_devices(self._client)

    def take(self) -> tuple[Picture, AsOf]:
        """The current cluster, or one up to `FRESH_S` old."""
        now = time.monotonic()
        if self._last is None or now - self._last.at > FRESH_S:
            if self._last is not None and self._last.picture.is_decided:
                before = self._last.picture
                self._past_use.step(before.plan, before.snapshot)
            now_s = int(time.time())
            picture = Picture(self.state.snapshot(now_s), self._settings)
            as_of = AsOf(as_time(now_s), str(self._newest), self.leader.warning)
            self._last = _Taken(now, picture, as_of)
        return self._last.picture, self._last.as_of

    def take_decided(self) -> tuple[Picture, AsOf]:
        """The newest picture decided ahead if decisions take more than `QUICK_S`; else `take`."""
        if self._ahead is None or self._took_s <= QUICK_S:
            return self.take()
        return self._ahead.picture, self._ahead.as_of

    async def decide_ahead(self) -> None:
        """Decide on the current cluster for `take_decided`; on an error, continue without it."""
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
        """Return once watches and claims have been read, and a first decision was made."""
        await asyncio.gather(*(reflector.wait_synced() for reflector in self.reflectors))
        await self._volumes.keep()
        await self.decide_ahead()

    async def read_unwatched(self) -> None:
        """Read the claims of pending pods, and the Jobs of incomplete gangs, until cancelled; they
        are not watched."""
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
        """The workload as if it were submitted now."""
        return self.state.imagine(wanted)

    def published(self, key: str) -> str:
        """The message of the condition `ballast.dev/Placed` of the workload's first pending pod."""
        workload = self.state.workloads().get(key)
        pods = workload.pods if workload else ()
        return next((message for pod in pods if (message := self.state.placed_reason(pod))), "")

    def _deliver(self, event: Event) -> None:
        self.state.apply(event)
        if isinstance(event, Upserted):
            version = event.obj.metadata.resource_version
            self._newest = max(self._newest, version_number(version))


def _decide(picture: Picture) -> float:
    """Decide on the picture; returns the CPU seconds that it took. Blocks."""
    began_s = time.thread_time()
    assert picture.plan
    return time.thread_time() - began_s


async def run(options: ViewOptions) -> None:
    """Watch and answer until cancelled. At the start, raises ListenError, TlsError or KubeError."""

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
            for watch in view.watches():
                tasks.create_task(watch)
            await view.fill()
            gc.freeze()
            await register(client, trusted)
            _log.info("answering", nodes=len(view.state.gpu_nodes))
            tasks.create_task(listener.run())
            tasks.create_task(keep_registered(client, trusted))
            tasks.create_task(follow_ca(client, ca))
            tasks.create_task(view.leader.follow())
            tasks.create_task(view.run())
            tasks.create_task(view.read_unwatched())
            tasks.create_task(forecaster.run())
