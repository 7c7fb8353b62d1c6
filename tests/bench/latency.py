"""Latency of the extender's verbs, and start times of both programs, at 5,000 nodes, 10,000 pods.

Meanwhile new pending pods keep the controller in cycles. The reference of a latency is its bar.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import orjson

from extender.kube.client import Client
from extender.kube.resources import GPU_NODES, NODES, PODS
from tests.bench import cluster
from tests.bench.figures import Figure, percentile
from tests.bench.installed import rss_mib
from tests.bench.throughput import make_queues
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.ports import LOOPBACK
from tests.support.controlplane.process import Process
from tests.support.installation import Installation, Program

N_NODES = 5000
PODS_A_NODE = 2
N_CALLS = 400
N_BINDS = 200
N_STARTS = 3
FILTER_BAR_MS = 5.0
SERVE_READY_BAR_S = 2.0
CONTROL_READY_BAR_S = 10.0


async def measure(plane: ControlPlane) -> list[Figure]:
    """All figures of the large cluster."""
    for name in ("kube-scheduler", "kwok"):
        plane.kill(name)
    plane.reset()
    plane.make_namespace("bench")
    nodes = cluster.seed_nodes(plane, N_NODES)
    cluster.seed_ledgers(plane, nodes, PODS_A_NODE, "bench")
    await make_queues(plane)
    installation = Installation(plane, by_token=True)
    try:
        async with await Client.connect(plane.kubeconfig) as client:
            await _settle(client)
            figures = [
                await _ready(installation.serve, SERVE_READY_BAR_S),
                await _ready(installation.control, CONTROL_READY_BAR_S),
            ]
            owner = cluster.make_owner(plane, "bench")
            with _kept_busy(plane, owner):
                figures += await _verbs(client, installation.serve, nodes, owner)
        for program in (installation.serve, installation.control):
            figures.append(Figure(f"resident memory of {program.name}", rss_mib(program), "MiB"))
        return figures
    finally:
        installation.stop()


async def _ready(program: Program, bar_s: float) -> Figure:
    took: list[float] = []
    for _ in range(N_STARTS):
        program.kill()
        started = time.perf_counter()
        await asyncio.to_thread(program.start)
        took.append(time.perf_counter() - started)
    name = f"{program.name} ready after start, median of {N_STARTS}"
    return Figure(name, round(percentile(took, 50), 2), "s", bar_s)


@contextmanager
def _kept_busy(plane: ControlPlane, owner: str) -> Iterator[None]:
    """A separate process creates pods that cannot be placed, so that the controller has cycles."""
    argv = [sys.executable, "-m", "tests.bench.load", plane.kubeconfig, owner]
    load = Process("load", argv, plane.logs / "load.log")
    load.start()
    try:
        yield
    finally:
        load.kill()


async def _settle(client: Client) -> None:
    """Wait until the API server has cached the objects that were written to etcd."""
    await client.list_all(GPU_NODES)
    await client.list_all(PODS)
    await client.list_all(NODES)


async def _verbs(client: Client, serve: Program, nodes: list[str], owner: str) -> list[Figure]:
    url = f"http://{LOOPBACK}:{serve.port}"
    pods = [cluster.gated_pod(f"direct-{number}", "bench", 500, owner) for number in range(N_BINDS)]
    for pod in pods:
        del pod["spec"]["schedulingGates"]
    made = [await client.create(PODS, pod, namespace="bench") for pod in pods]
    async with aiohttp.ClientSession() as session:
        filters = {
            "one name": await _filter(session, url, pods[0], nodes[:1]),
            "5,000 names": await _filter(session, url, pods[0], nodes),
        }
        binds: list[float] = []
        for number, bound in enumerate(made):
            args = {
                "PodName": bound.metadata.name,
                "PodNamespace": "bench",
                "PodUID": bound.metadata.uid,
                "Node": nodes[number * 7 % len(nodes)],
            }
            took_ms, answer = await _post(session, f"{url}/bind", args)
            assert not answer.get("Error"), answer
            binds.append(took_ms)
    figures = []
    for what, took in filters.items():
        figures.append(Figure(f"filter p50, {what}", round(percentile(took, 50), 2), "ms"))
        figures.append(
            Figure(f"filter p99, {what}", round(percentile(took, 99), 2), "ms", FILTER_BAR_MS)
        )
    figures.append(Figure("bind p50, direct pod", round(percentile(binds, 50), 2), "ms"))
    figures.append(Figure("bind p99, direct pod", round(percentile(binds, 99), 2), "ms"))
    return figures


async def _filter(
    session: aiohttp.ClientSession, url: str, pod: dict[str, Any], names: list[str]
) -> list[float]:
    pod = pod | {"metadata": pod["metadata"] | {"uid": "00000000-0000-0000-0000-000000000001"}}
    body = {"Pod": pod, "Nodes": None, "NodeNames": names}
    took: list[float] = []
    for _ in range(N_CALLS):
        took_ms, answer = await _post(session, f"{url}/filter", body)
        assert not answer.get("Error"), answer
        took.append(took_ms)
        await asyncio.sleep(0.005)
    return took


async def _post(session: aiohttp.ClientSession, url: str, body: Any) -> tuple[float, Any]:
    data = orjson.dumps(body)
    started = time.perf_counter()
    async with session.post(url, data=data, headers={"Content-Type": "application/json"}) as answer:
        content = await answer.read()
    took_ms = 1000 * (time.perf_counter() - started)
    return took_ms, orjson.loads(content)
