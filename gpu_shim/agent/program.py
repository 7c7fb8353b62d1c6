"""Puts the agent together: its parts, and the tasks that run them."""

import asyncio
import fcntl
import os
import stat
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from extender.api.kinds import Device
from extender.kube.client import Client
from extender.kube.recorder import EventRecorder
from extender.kube.reflector import Reflector
from extender.kube.resources import GPU_NODES, NODE_POOLS
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Auditor
from gpu_shim.agent.cards import Cards
from gpu_shim.agent.cdi import CdiDevices
from gpu_shim.agent.cgroups import pod_of, pod_of_peer
from gpu_shim.agent.enforce import Enforcer, EvictionSettings, Sources
from gpu_shim.agent.follower import Follower
from gpu_shim.agent.health import Health, boot_id
from gpu_shim.agent.holders import Holders, Style
from gpu_shim.agent.inventory_file import read_inventory
from gpu_shim.agent.login import own_node_uid
from gpu_shim.agent.nri.adjust import Delivery, Node
from gpu_shim.agent.nri.plugin import NodePlugin
from gpu_shim.agent.nvml import Nvml, NvmlError
from gpu_shim.agent.observe import Figures, Parts, answering
from gpu_shim.agent.options import AgentOptions
from gpu_shim.agent.podresources import PodResources
from gpu_shim.agent.report import (
    CARDS_DELIVERABLE,
    CARDS_HEALTHY,
    CARDS_MAPPED,
    DRIVER_KNOWN,
    PODS_WITHIN_BOUNDS,
    RUNTIME_CONNECTED,
    NodeCondition,
    NodeReporter,
)
from gpu_shim.agent.restarts import Restarts
from gpu_shim.agent.waits import Waits
from gpu_shim.agent.watch import HealthWatch
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.native.build import build
from gpu_shim.policy.shares import Mode
from gpu_shim.protocol.pages import Library

#: The newest CUDA version whose entry points the libraries all know (native/names_cuda.txt), as
#: drivers count.
NEWEST_CUDA: Final = 13050
NVML_RETRY_S: Final = 5.0
LOCK_RETRY_S: Final = 0.2
#: Device files that every program needs, whatever its card.
_COMMON: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")

_log = structlog.get_logger("gpu_shim")


class Program:
    """One agent. `run` ends only by cancellation."""

    def __init__(self, options: AgentOptions, nvml: Nvml | None, found: Sequence[Device]) -> None:
        self._options = options
        if not (options.libraries / "libballast-pages.so").exists():
            build(options.libraries)
        library = Library(options.libraries / "libballast-pages.so")
        self.waits = Waits()
        self.arbiter = Arbiter(
            library,
            options.settings,
            is_timed=options.mode != "off",
            # Without a runtime, no program is in a pod of ours, even if this machine is itself a
            # pod.
            pod_of_peer=pod_of_peer if options.nri else None,
            observer=self.waits,
            context_mib=options.context_mib,
        )
        mode: Mode = "strict" if options.mode == "strict" else "fair"
        pods = options.state / "pods"
        self.agent = Agent(options.node, found, self.arbiter, options.libraries, pods, mode=mode)
        self.health = Health(options.state / "health.json", boot_id())
        self.health.recall()
        self.cards = Cards(self.agent, found, self.health, options.owner == "plugin")
        self.nvml = nvml
        self.cuda_version = nvml.cuda_version() if nvml is not None else 0
        self.plugin = self._plugin() if options.nri else None
        if self.plugin is not None:
            self.agent.is_running = self.plugin.is_running
        self.holders: Holders | None = None
        self.enforcer: Enforcer | None = None

    async def run(self) -> None:
        """Follow the node's GpuNode and apply it."""
        options = self._options
        async with await Client.connect(
            options.kubeconfig or None, user_agent="ballast-agent"
        ) as api:
            tasks = self._tasks(api)
            parts = Parts(self.agent, self.waits, self.health, self.plugin, self.enforcer)
            async with (
                answering((options.host, options.port), self.missing, Figures(parts)),
                asyncio.TaskGroup() as group,
            ):
                for task in tasks:
                    group.create_task(task)

    def missing(self) -> str:
        """What the agent waits for before it is ready; empty if it is ready."""
        if not self.agent.is_synced:
            return "the GpuNode of this node"
        if self.plugin is not None and not self.plugin.is_connected:
            return f"the container runtime at {self.plugin.socket}"
        if self.holders is not None and not self.holders.is_answered:
            return f"kubelet at {self._options.kubelet}"
        return ""

    def statements(self) -> Sequence[NodeCondition]:
        """The conditions of the node's GpuNode."""
        ill = self.health.sentences(device.uuid for device in self.agent.devices)
        said = [NodeCondition(CARDS_HEALTHY, ill, "CardUnhealthy")]
        if self.cuda_version:
            said.append(NodeCondition(DRIVER_KNOWN, unknown_driver(self.cuda_version)))
        if self.plugin is not None:
            lost = [] if self.plugin.is_connected else ["containers start without Ballast"]
            said.append(NodeCondition(RUNTIME_CONNECTED, lost))
            uuids = [device.uuid for device in self.agent.devices]
            said.append(NodeCondition(CARDS_DELIVERABLE, self.plugin.delivery.problems(uuids)))
        if self.holders is not None:
            said.append(NodeCondition(CARDS_MAPPED, self.holders.problems()))
        if self.enforcer is not None:
            beyond = sorted({self.enforcer.describe(each) for each in self.enforcer.findings})
            said.append(NodeCondition(PODS_WITHIN_BOUNDS, beyond))
        return said

    def _tasks(self, api: Client) -> list[Coroutine[Any, Any, Any]]:
        options = self._options
        is_by_pool = options.mode == "pool"
        follower = Follower(self.agent, is_by_pool, self.cards.begin)
        selector = f"metadata.name={options.node}"
        tasks: list[Coroutine[Any, Any, Any]] = [
            self.arbiter.run(),
            Reflector(api, GPU_NODES, follower.take, field_selector=selector).run(),
            NodeReporter(api, self.agent, self.statements).run(),
        ]
        if is_by_pool:
            tasks.append(Reflector(api, NODE_POOLS, follower.take).run())
        if options.owner == "plugin":
            kubelet = PodResources(options.kubelet)
            uid = own_node_uid(options.node)
            style = Style(options.node, options.namespace, options.holder_image, uid)
            self.holders = Holders(api, kubelet, self.cards, style)
            tasks.append(self.holders.run())
        if self.plugin is not None:
            tasks += [self.plugin.run(), self.plugin.lender.run()]
        if self.nvml is not None:
            tasks.append(HealthWatch(self.nvml, self.cards).run())
        if options.is_audited:
            events = EventRecorder(api, f"ballast-agent-{options.node}")
            auditor = Auditor(pod_of, options.context_mib)
            sources = Sources(self.nvml, self.plugin, auditor)
            spared = frozenset(options.spared_namespaces.split(","))
            eviction = EvictionSettings(options.is_evicting, options.evict_after_s, spared)
            restarts = Restarts(self.plugin, options.is_restarting) if self.plugin else None
            self.enforcer = Enforcer(api, self.agent, sources, eviction, events, restarts)
            tasks += [events.run(), self.enforcer.run()]
        return tasks

    def _plugin(self) -> NodePlugin:
        options = self._options
        nodes = dict[str, Sequence[Node]]()
        is_by_files = options.way == "files" or options.driver is not None
        if is_by_files and self.nvml is not None:
            nodes = {"": _device_files(_COMMON)}
            for device in self.agent.devices:
                number = self.nvml.minor(device.uuid)
                nodes[device.uuid] = _device_files([f"nvidia{number}"])
        delivery = Delivery(options.way, options.driver, nodes, CdiDevices(kind=options.cdi_kind))
        is_by_plugin = options.owner == "plugin"
        return NodePlugin(self.agent, delivery, Path(options.nri), is_by_plugin)


def unknown_driver(version: int) -> list[str]:
    """A sentence about a driver newer than the libraries."""
    if version <= NEWEST_CUDA:
        return []
    has, known = (f"{each // 1000}.{each % 1000 // 10}" for each in (version, NEWEST_CUDA))
    return [f"the driver has CUDA {has}, Ballast knows {known}: calls that are new are not held"]


def _device_files(names: Sequence[str]) -> Sequence[Node]:
    """The host's existing device files of these names."""
    found = []
    for name in names:
        try:
            about = Path("/dev", name).stat()
        except OSError:
            continue
        if stat.S_ISCHR(about.st_mode):
            number = about.st_rdev
            found.append(Node(f"/dev/{name}", os.major(number), os.minor(number)))
    return found


async def alone(options: AgentOptions) -> int:
    """Wait for the lock of this node's only agent, and return it; it ends with the process.

    Two agents would take over each other's sockets and change the same containers.
    """
    options.state.mkdir(parents=True, exist_ok=True)
    lock = os.open(options.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    has_warned = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if not has_warned:
                _log.warning("waiting for another agent to end", lock=str(options.state / "lock"))
            has_warned = True
            await asyncio.sleep(LOCK_RETRY_S)


async def cards_of(options: AgentOptions) -> tuple[Nvml | None, Sequence[Device]]:
    """The driver and its cards, or no driver and the cards in a file.

    A driver may be installed long after the node starts: until then the agent runs, and reports
    what it waits for.
    """
    if options.inventory is not None:
        devices = read_inventory(options.inventory)
        # A node with an inventory file may still have a driver; tests use that.
        return (await asyncio.to_thread(Nvml, options.nvml) if options.nvml else None), devices
    async with answering((options.host, options.port), lambda: "the driver"):
        return await _opened(options)


async def _opened(options: AgentOptions) -> tuple[Nvml, Sequence[Device]]:
    last = ""
    while True:
        try:
            nvml = await asyncio.to_thread(Nvml, options.nvml)
            return nvml, await asyncio.to_thread(nvml.devices)
        except NvmlError as error:
            if (why := str(error)) != last:
                _log.warning("waiting for the driver", node=options.node, why=why)
            last = why
            await asyncio.sleep(NVML_RETRY_S)
