"""The agent's health endpoints, and metrics of its cards and of every pod that shares one."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from gpu_shim.agent.agent import Agent
from gpu_shim.agent.enforce import Enforcer
from gpu_shim.agent.health import Health
from gpu_shim.agent.nri.plugin import NodePlugin
from gpu_shim.agent.tenants import live
from gpu_shim.agent.waits import Waits
from gpu_shim.protocol.pages import GateTally

_MIB: Final = 1 << 20
_SECOND: Final = 1_000_000_000

#: By name: help text, labels, whether it is a counter.
_POD: Final = ("namespace", "pod", "card")
_CARD: Final = ("card", "index")
FIGURES: Final[Mapping[str, tuple[str, tuple[str, ...], bool]]] = {
    "gpu_memory_used_bytes": ("Memory reserved by the pod's processes.", _POD, False),
    "gpu_memory_seen_bytes": (
        "Memory of the pod's processes, as the driver reports it.",
        _POD,
        False,
    ),
    "gpu_memory_cap_bytes": ("Memory that the pod may use.", _POD, False),
    "gpu_share_entitled_ratio": (
        "Part of the card's time that the pod is entitled to now.",
        _POD,
        False,
    ),
    "gpu_gate_wait_p99_seconds": (
        "99th percentile of the time that the pod with work waits for the card.",
        _POD,
        False,
    ),
    "gpu_gate_wait_longest_seconds": ("The longest wait of a launch of the pod.", _POD, False),
    "gpu_held_seconds": ("Time the pod held the card.", _POD, True),
    "gpu_due_seconds": ("GPU time that the pod was entitled to while it was busy.", _POD, True),
    "gpu_overrun_seconds": ("Time for which its work ran on after its leases ended.", _POD, True),
    "gpu_unknown_calls": ("Calls of entry points that the library does not know.", _POD, True),
    "gpu_pod_info": (
        "1; the pod holds the card or a part of it, by the ledger.",
        (*_POD, "index", "project"),
        False,
    ),
    "gpu_card_memory_bytes": ("Memory of the card that programs can have.", _CARD, False),
    "gpu_card_info": ("1; the model of the card.", (*_CARD, "model"), False),
    "gpu_card_healthy": ("1 if the card may be allocated to pods.", _CARD, False),
    "agent_info": ("1; the node, and how time is divided.", ("node", "mode"), False),
    "agent_card_errors": ("Critical errors of cards, by NVIDIA's number.", ("xid",), True),
    "agent_runtime_connected": ("1 if the agent is connected to the container runtime.", (), False),
    "agent_containers": ("Containers that got cards, or were refused.", ("outcome",), True),
    "agent_rejected_rows": ("Rows of the GpuNode that can't be served.", (), False),
    "agent_pods_beyond_bounds": ("Pods that exceed their share now.", ("reason",), False),
    "agent_restarts": (
        "Containers that were ended so that kubelet starts them with the library.",
        (),
        True,
    ),
    "agent_evictions": ("Pods that were evicted for exceeding their share.", (), True),
}

Sample = tuple[str, tuple[str, ...], float]


@dataclass(slots=True, frozen=True)
class Parts:
    """The sources of the metrics; a part that a node does not have is None."""

    agent: Agent
    waits: Waits = field(default_factory=Waits)
    health: Health | None = None
    plugin: NodePlugin | None = None
    enforcer: Enforcer | None = None


class Figures(Collector):
    """Collects all metrics when they are scraped."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        """One sample for each pod and card, and some of the agent itself."""
        found: dict[str, Metric] = {}
        for name, (text, labels, is_counter) in FIGURES.items():
            kind = CounterMetricFamily if is_counter else GaugeMetricFamily
            found[name] = kind(f"ballast_{name}", text, labels=labels)
        for source in (self._pods, self._rows, self._cards, self._own):
            for name, labels, value in source():
                found[name].add_metric(list(labels), value)  # type: ignore[attr-defined]
        return found.values()

    def _pods(self) -> Iterable[Sample]:
        agent, enforcer = self._parts.agent, self._parts.enforcer
        for tenant in agent.tenants.values():
            container = agent.arbiter.containers[tenant.uid]
            table = container.table
            tally = table.tally() if table else GateTally(0, 0, 0)
            for at, card in enumerate(container.cards):
                labels = (tenant.namespace, tenant.pod, card.uuid)
                key = (tenant.uid, card.uuid)
                yield "gpu_memory_used_bytes", labels, table.used_bytes(at) if table else 0
                yield "gpu_memory_cap_bytes", labels, card.cap_mib * _MIB
                yield "gpu_gate_wait_longest_seconds", labels, tally.longest_wait_ns / _SECOND
                p99_ns = self._parts.waits.p99_ns(key)
                yield "gpu_gate_wait_p99_seconds", labels, p99_ns / _SECOND
                yield "gpu_unknown_calls", labels, tally.n_unknown
                if enforcer is not None and key in enforcer.sources.auditor.seen:
                    seen = enforcer.sources.auditor.seen[key]
                    yield "gpu_memory_seen_bytes", labels, seen
                yield from self._time(tenant.uid, card.uuid, labels)

    def _time(self, uid: str, uuid: str, labels: tuple[str, ...]) -> Iterable[Sample]:
        account = self._parts.agent.arbiter.account(uid, uuid)
        if account is not None:
            yield "gpu_share_entitled_ratio", labels, float(account.share)
            yield "gpu_held_seconds", labels, account.held_ns / _SECOND
            yield "gpu_due_seconds", labels, float(account.due_ns / _SECOND)
            yield "gpu_overrun_seconds", labels, account.overrun_ns / _SECOND

    def _rows(self) -> Iterable[Sample]:
        """Pods that hold cards, including whole ones."""
        uuids = {device.index: device.uuid for device in self._parts.agent.devices}
        for row in live(self._parts.agent.rows):
            for card in row.cards:
                place = (uuids.get(card.index, ""), str(card.index))
                labels = (row.namespace, row.name, *place, row.project)
                yield "gpu_pod_info", labels, 1

    def _cards(self) -> Iterable[Sample]:
        for device in self._parts.agent.devices:
            labels = (device.uuid, str(device.index))
            yield "gpu_card_info", (*labels, device.model), 1
            yield "gpu_card_memory_bytes", labels, device.memory_mib * _MIB
            yield "gpu_card_healthy", labels, float(device.health == "Healthy")

    def _own(self) -> Iterable[Sample]:
        parts, agent = self._parts, self._parts.agent
        yield "agent_info", (agent.node, agent.mode if agent.arbiter.is_timed else "off"), 1
        yield "agent_rejected_rows", (), len(agent.rejected)
        if parts.health is not None:
            for number, n_seen in parts.health.n_xids.items():
                yield "agent_card_errors", (str(number),), n_seen
        if parts.plugin is not None:
            yield "agent_runtime_connected", (), float(parts.plugin.is_connected)
            yield "agent_containers", ("adjusted",), parts.plugin.n_adjusted
            yield "agent_containers", ("refused",), parts.plugin.n_refused
        if parts.enforcer is not None:
            yield "agent_evictions", (), parts.enforcer.n_evicted
            if parts.enforcer.restarts is not None:
                yield "agent_restarts", (), parts.enforcer.restarts.n_ended
            for reason, n_pods in parts.enforcer.count().items():
                yield "agent_pods_beyond_bounds", (reason,), n_pods


@contextlib.asynccontextmanager
async def answering(
    where: tuple[str, int], missing: Callable[[], str], figures: Figures | None = None
) -> AsyncIterator[None]:
    """Serve `/healthz`, `/readyz` and, with `figures`, `/metrics` at (host, port).

    `missing` returns what the agent waits for before it is ready, or the empty string.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        if why := missing():
            return web.Response(status=503, text=f"waiting for {why}\n")
        return web.Response(text="ok\n")

    async def metrics(_request: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    if figures is not None:
        registry = CollectorRegistry()
        registry.register(figures)
        app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, *where).start()
        yield
    finally:
        await runner.cleanup()
