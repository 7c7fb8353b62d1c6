"""One replica of `ballast control`: a model of the cluster that is kept warm, leading or not."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from extender.api.events import Event, Removed
from extender.api.kinds import GpuNode, GpuProject
from extender.api.names import SYSTEM_NAMESPACE
from extender.api.objects import Pod
from extender.cycle import metrics
from extender.cycle.keepers.namespaces import NamespaceKeeper
from extender.kube.client import Client
from extender.kube.recorder import EventRecorder
from extender.kube.reflector import Reflector
from extender.kube.resources import MODEL, NAMESPACES
from extender.kube.served import served_devices
from extender.state.cluster import ClusterState
from extender.usage.books import PERIOD_S
from extender.usage.meter import UsageMeter

#: A decision that takes longer than this hangs: its budget is a second of CPU time.
DECIDES_WITHIN_S: Final = 120.0


@dataclass(slots=True, frozen=True)
class ControlOptions:
    """How the controller runs. Times in seconds; `identity` must be unique to this process."""

    identity: str
    kubeconfig: str = ""
    namespace: str = SYSTEM_NAMESPACE
    lease_duration_s: float = 15.0
    bind_timeout_s: float = 30.0
    #: Longest time between two cycles, since time alone can require a repair or a new decision.
    tick_s: float = 2.0
    #: Shortest time between two cycles, so that bursts become one batch.
    gap_s: float = 0.02
    #: CPU time for decisions in one cycle; what is left over comes first in the next.
    cycle_budget_s: float = 1.0
    #: Time between two writes of the usage books.
    usage_period_s: float = PERIOD_S


class Replica:
    """Watches and writes: the model, the clients, and the events that wake the leader."""

    def __init__(self, reader: Client, writer: Client, options: ControlOptions) -> None:
        self._reader = reader
        self._writer = writer
        self._options = options
        self.state = ClusterState()
        self.meter = UsageMeter(self.state.user_of)
        self._wake = asyncio.Event()
        self._is_hurried = False
        self._recorder = EventRecorder(writer, options.identity)
        self.reflector_of: dict[type, Reflector[Any]] = {
            resource.kind: Reflector(reader, resource, self.deliver, ends_on_restore=True)
            for resource in MODEL
        }
        self._reflectors = list(self.reflector_of.values())
        #: When the decision under way began, on the monotonic clock.
        self.deciding_since: float | None = None
        self._namespaces = NamespaceKeeper(self._hurry)
        self._reflectors.append(Reflector(reader, NAMESPACES, self._namespaces.deliver))

    @property
    def is_ready(self) -> bool:
        """Whether the initial lists have been delivered in full."""
        return all(self.state.has_synced(resource.kind) for resource in MODEL)

    def is_alive(self) -> bool:
        """Whether decisions come to an end. A process with a hanging decision still renews its
        Lease, so no other replica would take over."""
        since = self.deciding_since
        return since is None or time.monotonic() - since < DECIDES_WITHIN_S

    def note_sizes(self) -> None:
        """Update the gauges of the model's size."""
        metrics.CACHE_SIZE.labels("nodes").set(len(self.state.gpu_nodes))
        metrics.CACHE_SIZE.labels("workloads").set(len(self.state.workloads()))

    async def find_devices(self) -> bool:
        """Watch devices of dynamic resource allocation too, if the API server serves them; returns
        whether it does."""
        devices = await served_devices(self._reader)
        self._reflectors += [
            Reflector(self._reader, resource, self.deliver, ends_on_restore=True)
            for resource in devices
        ]
        return bool(devices)

    async def read_live(self) -> None:
        """Read ledgers and pods live: a watch may lag, above all after the process was frozen.

        Raises an ExceptionGroup of KubeErrors if the API server does not answer.
        """
        async with asyncio.TaskGroup() as group:
            for kind in (GpuNode, Pod):
                group.create_task(self.reflector_of[kind].catch_up())

    def deliver(self, event: Event) -> None:
        """Take in an event of the watches."""
        self.state.apply(event)
        if isinstance(event, Removed) and event.kind is GpuProject:
            metrics.forget_project(event.name)
        self._wake.set()
        self.meter.observe(event, int(time.time()))

    @property
    def options(self) -> ControlOptions:
        """The options of this process."""
        return self._options

    @property
    def client(self) -> Client:
        """The client for fenced writes."""
        return self._writer

    @property
    def namespaces(self) -> NamespaceKeeper:
        """The keeper of the label on projects' namespaces."""
        return self._namespaces

    @property
    def recorder(self) -> EventRecorder:
        """The recorder of events."""
        return self._recorder

    async def wait_for_change(self, version: object, timeout_s: float) -> None:
        """Return when the model is no longer at `version`, when a namespace's label has changed, or
        after `timeout_s`.

        Checking the model after events takes at most a third of one core: a gang of 10,000 pods is
        rebuilt whenever one of its pods changes.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_hurried:
                    started_s = time.thread_time()
                    if self.state.version() != version:
                        break
                    rest_s = max(self._options.gap_s, 2 * (time.thread_time() - started_s))
                    self._wake.clear()
                    await self._wake.wait()
                    await asyncio.sleep(rest_s)
        self._is_hurried = False

    def _hurry(self) -> None:
        self._is_hurried = True
        self._wake.set()
