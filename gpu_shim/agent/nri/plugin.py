"""Adjusts the containers of this node when they are created, according to the node's GpuNode.

A pod without our annotation and without a row is not changed. If a pod has the annotation but no
row yet, its container waits briefly (the row is written long before the pod is bound) and is then
refused: kubelet tries again. So no container of ours starts unprotected while we are connected;
those that started before are reported by the runtime when we connect.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from extender.api.demand import FRACTION_CONTAINER
from extender.api.names import ANNOTATION_CARDS
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.lending import Lender, limit_of
from gpu_shim.agent.nri.adjust import Delivery, deliver, is_protected, protect
from gpu_shim.agent.nri.frames import FramingError
from gpu_shim.agent.nri.session import NriSession, Refusal, RegistrationError
from gpu_shim.agent.proto import nri_pb2 as pb
from gpu_shim.agent.tenants import is_whole

NAME: Final = "ballast"
#: Plugins are called in the order of their indices; ours late, so that it sees the changes of
#: others.
INDEX: Final = "90"
#: The longest wait for a pod's row: the runtime is blocked meanwhile.
PATIENCE_S: Final = 0.5
#: Short, because containers that a runtime creates before it reconnects start unprotected.
RETRY_S: Final = 0.2

_EVENTS: Final = (
    pb.CREATE_CONTAINER,
    pb.STOP_CONTAINER,
    pb.REMOVE_CONTAINER,
    pb.REMOVE_POD_SANDBOX,
)
_ENDED: Final = (pb.CONTAINER_STOPPED, pb.CONTAINER_UNKNOWN)

_log = structlog.get_logger("gpu_shim.nri")


@dataclass(slots=True, frozen=True)
class RunningContainer:
    """A running container; `pod` is its pod's uid.

    `pid` is its first process if it ran before us and the runtime reports the number, else 0.
    """

    id: str
    pod: str
    name: str
    is_protected: bool
    pid: int = 0


@dataclass(slots=True)
class NodePlugin:
    """Serves one container runtime, across reconnections. `pods` is (namespace, name) by uid.

    With `is_by_plugin` NVIDIA's device plugin delivers whole cards. `on_create` is called for each
    container that starts with its adjustment.
    """

    agent: Agent
    delivery: Delivery
    socket: Path
    is_by_plugin: bool = False
    patience_s: float = PATIENCE_S
    runtime: str = ""
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    containers: dict[str, RunningContainer] = field(default_factory=dict)
    n_refused: int = 0
    n_adjusted: int = 0
    #: Whether the runtime has listed the running containers.
    is_listed: bool = False
    on_create: Callable[[RunningContainer], None] = lambda _container: None
    lender: Lender = field(init=False)
    _syncing: "tuple[dict[str, tuple[str, str]], dict[str, RunningContainer]] | None" = None

    def __post_init__(self) -> None:
        self.lender = Lender(self.agent)

    @property
    def is_connected(self) -> bool:
        """Whether a runtime calls us before it creates containers."""
        return bool(self.runtime)

    async def run(self) -> None:
        """Serve until cancelled; the runtime may restart, be late or send invalid data."""
        last = ""
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self.socket))
                await NriSession(reader, writer, self).run(NAME, INDEX)
                why = "the runtime hung up"
            except (OSError, FramingError, RegistrationError) as error:
                why = str(error) or type(error).__name__
            if why != last or self.is_connected:
                _log.warning("not connected to the runtime", socket=str(self.socket), why=why)
            last, self.runtime = why, ""
            await asyncio.sleep(RETRY_S)

    def is_running(self, uid: str) -> bool:
        """Whether a pod may have containers; true until the runtime has listed its containers."""
        return not self.is_listed or any(seen.pod == uid for seen in self.containers.values())

    def unprotected(self) -> list[RunningContainer]:
        """Containers of pods that share cards and were started without the libraries."""
        return [
            seen
            for seen in self.containers.values()
            if seen.pod in self.agent.tenants and not seen.is_protected
        ]

    # -- calls of the runtime ------------------------------------------------------------------

    async def configure(self, request: pb.ConfigureRequest) -> pb.ConfigureResponse:
        """Subscribes to the events that we need."""
        self.runtime = f"{request.runtime_name} {request.runtime_version}".strip() or "unnamed"
        # A list that the former connection did not complete.
        self._syncing = None
        _log.info("connected to the runtime", runtime=self.runtime)
        return pb.ConfigureResponse(events=sum(1 << (event - 1) for event in _EVENTS))

    async def synchronize(self, request: pb.SynchronizeRequest) -> pb.SynchronizeResponse:
        """Record the running containers, which may arrive in several parts."""
        pods, containers = self._syncing or ({}, {})
        pods |= {pod.uid: (pod.namespace, pod.name) for pod in request.pods}
        self.lender.limits |= {pod.uid: limit_of(pod.annotations) for pod in request.pods}
        of_sandbox = {pod.id: pod for pod in request.pods}
        for container in request.containers:
            pod = of_sandbox.get(container.pod_sandbox_id)
            if pod is not None and container.state not in _ENDED:
                containers[container.id] = self._seen(pod, container)
        if request.more:
            self._syncing = pods, containers
        else:
            self.pods, self.containers, self._syncing = pods, containers, None
            self.is_listed = self.lender.is_listed = True
            self.agent.sweep()
        return pb.SynchronizeResponse(more=request.more)

    async def create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        """The container's adjustment; raises Refusal if its pod's row is missing or rejected."""
        pod, container = request.pod, request.container
        self.pods[pod.uid] = (pod.namespace, pod.name)
        self.lender.limits[pod.uid] = limit_of(pod.annotations)
        row = self.agent.row(pod.uid)
        if row is None and ANNOTATION_CARDS not in pod.annotations:
            return pb.CreateContainerResponse()
        if row is not None and is_whole(row) and self.is_by_plugin:
            return pb.CreateContainerResponse()
        try:
            adjust = await self._adjust(pod, container)
        except Refusal as error:
            self.n_refused += 1
            _log.warning("refused a container", pod=f"{pod.namespace}/{pod.name}", why=str(error))
            raise
        self.n_adjusted += 1
        made = RunningContainer(container.id, pod.uid, container.name, is_protected=True)
        self.containers[container.id] = made
        self.on_create(made)
        return pb.CreateContainerResponse(adjust=adjust)

    async def stopped(self, request: pb.ContainerRequest) -> pb.StopContainerResponse:
        """A container is stopping: it no longer has to be protected."""
        self.containers.pop(request.container.id, None)
        return pb.StopContainerResponse()

    async def removed(self, request: pb.ContainerRequest) -> pb.Empty:
        """A container was removed, or a whole pod if none is named."""
        if request.HasField("container"):
            self.containers.pop(request.container.id, None)
        else:
            uid = request.pod.uid
            self.pods.pop(uid, None)
            self.lender.limits.pop(uid, None)
            self.containers = {
                key: seen for key, seen in self.containers.items() if seen.pod != uid
            }
        self.agent.sweep()
        return pb.Empty()

    # -- adjustments ---------------------------------------------------------------------------

    async def _adjust(self, pod: pb.PodSandbox, container: pb.Container) -> pb.ContainerAdjustment:
        uid = pod.uid
        if not await self.agent.knows(uid, self.patience_s):
            why = self.agent.rejected.get(uid, "this node's GpuNode has no row for it")
            raise Refusal(f"{pod.namespace}/{pod.name}: {why}")
        if not self._is_for_cards(pod, container):
            return deliver((), self.delivery, container)
        tenant = self.agent.tenants.get(uid)
        if tenant is None:
            return deliver(self.agent.whole[uid], self.delivery, container)
        if why := self.lender.shortage(uid):
            raise Refusal(f"{pod.namespace}/{pod.name}: {why}")
        made = protect(self.agent.home(uid), container)
        uuids = [card.uuid for card in tenant.cards]
        made.MergeFrom(deliver(uuids, self.delivery, container))
        return made

    def _is_for_cards(self, pod: pb.PodSandbox, container: pb.Container) -> bool:
        """Whether the container is to get the pod's cards; all are if the pod names none."""
        named = pod.annotations.get(FRACTION_CONTAINER, "")
        return not named or container.name == named

    def _seen(self, pod: pb.PodSandbox, container: pb.Container) -> RunningContainer:
        is_safe = is_protected(container, self.agent.state)
        return RunningContainer(
            container.id,
            pod.uid,
            container.name,
            is_safe or not self._is_for_cards(pod, container),
            container.pid,
        )
