"""Measured use of cards, from the metrics of node agents through the API server's proxy."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from extender.api.names import NODE_NAMESPACE
from extender.cli.ask import listed_or_none
from extender.kube.client import Client
from extender.kube.errors import KubeError
from extender.kube.transport import Call
from gpu_shim.top import MetricsPage, figures, view

_SELECTOR: Final = "app.kubernetes.io/component=gpu-shim"
#: Port of an agent's metrics.
_PORT: Final = 8890
#: The most agents that are asked, which bounds the load of the API server.
MOST_AGENTS: Final = 256
_AT_ONCE: Final = 32
_DEADLINE_S: Final = 3.0
#: Time between two requests to an agent: busy time is a difference of counters.
_BETWEEN_S: Final = 1.0


@dataclass(slots=True)
class Use:
    """Use of a card or by a pod; `busy` is a fraction of time, None without time slicing."""

    used_mib: int = 0
    busy: float | None = None


@dataclass(slots=True)
class Seen:
    """Measured use by card (node, index) and by pod (namespace, name)."""

    cards: dict[tuple[str, int], Use] = field(default_factory=dict)
    pods: dict[tuple[str, str], Use] = field(default_factory=lambda: defaultdict(Use))


async def uses(client: Client, nodes: Collection[str]) -> Seen:
    """Measured use on these nodes; agents that cannot be reached are left out."""
    seen = Seen()
    path = f"/api/v1/namespaces/{NODE_NAMESPACE}/pods"
    agents = await listed_or_none(client, path, selector=_SELECTOR) or ()
    paths = [
        f"{path}/{each['metadata']['name']}:{_PORT}/proxy/metrics"
        for each in agents
        if each["spec"].get("nodeName") in nodes
    ][:MOST_AGENTS]
    before = await _pages(client, paths)
    if not before:
        return seen
    began = time.monotonic()
    await asyncio.sleep(_BETWEEN_S)
    after = await _pages(client, list(before))
    took_s = time.monotonic() - began
    for at, page in after.items():
        add_use(seen, before[at], page, took_s)
    return seen


def add_use(seen: Seen, before: MetricsPage, after: MetricsPage, took_s: float) -> None:
    """Add what an agent has seen between two readings of its metrics, `took_s` apart."""
    shown = view(before, after, took_s)
    for card in shown.cards:
        seen.cards[shown.node, card.index] = Use(card.used_mib, card.held)
    for pod in shown.pods:
        namespace, _, name = pod.pod.partition("/")
        use = seen.pods[namespace, name]
        use.used_mib += pod.used_mib
        if pod.held is not None:
            use.busy = max(use.busy or 0.0, pod.held)


async def _pages(client: Client, paths: list[str]) -> dict[str, MetricsPage]:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def page(path: str) -> MetricsPage | None:
        async with turns:
            try:
                found = await client.send(Call("GET", path, deadline_s=_DEADLINE_S))
                return figures(found.decode())
            except (KubeError, ValueError, KeyError):
                return None

    pages = await asyncio.gather(*map(page, paths))
    return {path: each for path, each in zip(paths, pages, strict=True) if each is not None}
