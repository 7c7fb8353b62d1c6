"""What the agent shows: health, and figures of every pod that shares a card."""

from collections.abc import Iterable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from gpu_shim.agent.agent import Agent

_LABELS: Final = ("namespace", "pod", "card")
_MIB: Final = 1 << 20
_SECOND: Final = 1_000_000_000


class Figures(Collector):
    """Reads all figures when they are asked for."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        """One sample for each pod and card."""
        gauges = {
            "memory_used_bytes": "Memory reserved by the pod's processes.",
            "memory_cap_bytes": "Memory the pod may have.",
            "share_entitled_ratio": "Part of the card's time the pod is due now.",
            "gate_wait_longest_seconds": "The longest any launch of its processes waited.",
        }
        counters = {
            "held_seconds": "Time the pod held the card.",
            "due_seconds": "Time the pod was due while it was busy.",
            "overrun_seconds": "Time its work went on after its leases.",
        }
        found: dict[str, Metric] = {
            name: GaugeMetricFamily(f"ballast_gpu_{name}", text, labels=_LABELS)
            for name, text in gauges.items()
        } | {
            name: CounterMetricFamily(f"ballast_gpu_{name}", text, labels=_LABELS)
            for name, text in counters.items()
        }
        for labels, values in self._samples():
            for name, value in values.items():
                found[name].add_metric(labels, value)  # type: ignore[attr-defined]
        return found.values()

    def _samples(self) -> Iterable[tuple[list[str], dict[str, float]]]:
        arbiter = self._agent.arbiter
        for tenant in self._agent.tenants.values():
            table = arbiter.containers[tenant.uid].table
            waits = [use.longest_wait_ns for use in table.uses()] if table else []
            for at, card in enumerate(tenant.cards):
                account = arbiter.account(tenant.uid, card.uuid)
                values = {
                    "memory_used_bytes": table.used_bytes(at) if table else 0,
                    "memory_cap_bytes": card.cap_mib * _MIB,
                    "gate_wait_longest_seconds": max(waits, default=0) / _SECOND,
                }
                if account is not None:
                    values |= {
                        "share_entitled_ratio": float(account.share),
                        "held_seconds": account.held_ns / _SECOND,
                        "due_seconds": float(account.due_ns / _SECOND),
                        "overrun_seconds": account.overrun_ns / _SECOND,
                    }
                yield [tenant.namespace, tenant.pod, card.uuid], values


def build_app(agent: Agent) -> web.Application:
    """`/healthz`, `/readyz` and `/metrics`."""
    registry = CollectorRegistry()
    registry.register(Figures(agent))

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        if agent.is_synced:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="waiting for the GpuNode of this node\n")

    async def metrics(_request: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
