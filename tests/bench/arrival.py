"""A burst of pods that users create while all of Ballast is installed.

Writers create 600 pods of one whole GPU as fast as the API server answers, on a cluster with 800
free GPUs: first with the stock scheduler and without Ballast, then with its policies, webhooks,
`control` and `serve`. Control plane and pods are the same, except for what the webhook adds.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from tests.bench import cluster
from tests.bench.cost import Cost, Meter
from tests.bench.figures import Figure, percentile
from tests.bench.installed import installed
from tests.bench.throughput import make_queues
from tests.bench.waits import Times
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import install

N_NODES: Final = 100
CARDS: Final = 8
N_PODS: Final = 600
N_WRITERS: Final = 16
#: The bar, relative to the stock scheduler's rate.
RATE_BAR: Final = 0.8
TIMEOUT_S: Final = 300.0


@dataclass(slots=True, frozen=True)
class _Result:
    """Seconds until the last create was answered, seconds from each create to its Binding, and the
    cost until the last Binding."""

    arrived_s: float
    waits_s: list[float]
    cost: Cost


async def measure(plane: ControlPlane) -> list[Figure]:
    """Figures of Ballast and of the stock scheduler."""
    stock = await _stock(plane)
    ours = await _ours(plane)
    what = f"{N_PODS} pods by {N_WRITERS} writers"
    rates = [round(N_PODS / each.arrived_s, 1) for each in (ours, stock)]
    figures = [
        Figure(f"creates per second, {what}", rates[0], "/s", rates[1]),
        Figure("  the bar", RATE_BAR, "of stock"),
    ]
    for percent in (50, 99):
        waits = [round(percentile(each.waits_s, percent), 2) for each in (ours, stock)]
        figures.append(Figure(f"created to bound, p{percent}, {what}", waits[0], "s", waits[1]))
    cpu_ms = [round(1000 * each.cost.total_cpu_s / N_PODS, 1) for each in (ours, stock)]
    figures.append(Figure(f"CPU per pod, creation included, {what}", cpu_ms[0], "ms", cpu_ms[1]))
    for program, spent_s in ours.cost.cpu_s.items():
        theirs = round(1000 * stock.cost.cpu_s.get(program, 0.0) / N_PODS, 2)
        figures.append(Figure(f"  {program}", round(1000 * spent_s / N_PODS, 2), "ms", theirs))
    return figures


async def _stock(plane: ControlPlane) -> _Result:
    plane.reset()
    plane.make_namespace("bench")
    plane.start_kwok()
    cluster.seed_nodes(plane, N_NODES, CARDS)
    plane.start_scheduler(None)
    try:
        return await _create(plane, {})
    finally:
        plane.kill("kube-scheduler")


async def _ours(plane: ControlPlane) -> _Result:
    plane.reset()
    install(plane, "policies", "flow-control")
    plane.make_namespace("bench")
    nodes = cluster.seed_nodes(plane, N_NODES, CARDS)
    cluster.seed_ledgers(plane, nodes, cards=CARDS)
    await make_queues(plane)
    async with installed(plane, "bench") as programs:
        return await _create(plane, programs.pids())


async def _create(plane: ControlPlane, programs: Mapping[str, int]) -> _Result:
    """Create the pods and wait until all are bound; `programs` are the processes besides the
    plane's."""
    times, numbers = Times(), iter(range(N_PODS))
    owner = cluster.make_owner(plane, "bench")
    async with await Client.connect(plane.kubeconfig) as client:
        watch = asyncio.create_task(Reflector(client, PODS, times.note, namespace="bench").run())
        meter = Meter({**programs, **plane.pids()}, plane.audit_log)
        began = time.perf_counter()

        async def write() -> None:
            for number in numbers:
                name = f"p-{number}"
                times.created[name] = time.perf_counter()
                pod = cluster.whole_pod(name, "bench", owner)
                await client.create(PODS, pod, namespace="bench")

        await asyncio.gather(*(write() for _ in range(N_WRITERS)))
        arrived_s = time.perf_counter() - began
        async with asyncio.timeout(TIMEOUT_S):
            while len(times.bound) < N_PODS:
                await asyncio.sleep(0.02)
        watch.cancel()
        return _Result(arrived_s, times.waits(times.created), meter.read())
