"""Pods per second from held to bound: ours with fractions, the stock scheduler with whole GPUs.

Both start with all pods created and held by a gate. The clock runs from the moment the gates may
fall (ours: the controller, frozen until then, goes on; stock: the first gate is removed by 64
writers) until the last pod has a node: ours includes reading the pods and the plan. Same control
plane, same nodes, one after the other.
"""

import asyncio
import time
from typing import Any

from extender.api.events import Event, Upserted
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from tests.bench import cluster
from tests.bench.figures import Figure
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import Installation

N_PODS = 2000
TIMEOUT_S = 120.0
#: A Lease that outlives the making of all pods.
FROZEN_S = 90.0
#: Patches under way at once, as in the controller.
WRITERS = 64


async def measure(plane: ControlPlane, n_nodes: int) -> list[Figure]:
    """The figures for one size of cluster."""
    stock = await _stock(plane, n_nodes)
    ours = await _ours(plane, n_nodes)
    name = f"pods bound per second, {n_nodes} nodes, {N_PODS} pods"
    return [Figure(name, round(ours, 1), "pods/s", round(stock, 1))]


async def _stock(plane: ControlPlane, n_nodes: int) -> float:
    plane.reset()
    plane.make_namespace("bench")
    plane.start_kwok()
    plane.start_scheduler(None)
    cluster.seed_nodes(plane, n_nodes)
    pods = [cluster.held_pod(f"p-{number}", "bench") for number in range(N_PODS)]
    await asyncio.to_thread(plane.admin.post_all, "/api/v1/namespaces/bench/pods", pods)
    async with await Client.connect(plane.kubeconfig) as client:
        watch = asyncio.create_task(count_bound(client, N_PODS))
        started = time.perf_counter()
        await _remove_gates(client)
        return N_PODS / (await asyncio.wait_for(watch, TIMEOUT_S) - started)


async def _ours(plane: ControlPlane, n_nodes: int) -> float:
    plane.kill("kube-scheduler")
    plane.reset()
    plane.make_namespace("bench")
    nodes = cluster.seed_nodes(plane, n_nodes)
    cluster.seed_ledgers(plane, nodes)
    await make_queues(plane)
    installation = Installation(plane, lease_s=FROZEN_S)
    try:
        await asyncio.to_thread(installation.start)
        installation.control.freeze()
        milli = cluster.FRACTIONS
        owner = cluster.make_owner(plane, "bench")
        pods = [
            cluster.gated_pod(f"p-{number}", "bench", milli[number % len(milli)], owner)
            for number in range(N_PODS)
        ]
        await asyncio.to_thread(plane.admin.post_all, "/api/v1/namespaces/bench/pods", pods)
        async with await Client.connect(plane.kubeconfig) as client:
            watch = asyncio.create_task(count_bound(client, N_PODS))
            started = time.perf_counter()
            installation.control.thaw()
            return N_PODS / (await asyncio.wait_for(watch, TIMEOUT_S) - started)
    finally:
        installation.stop()


async def make_queues(plane: ControlPlane) -> None:
    """The department and the project: from now on the benchmark's pods may run."""
    path = "/apis/ballast.dev/v1alpha1"
    post = plane.admin.post
    await asyncio.to_thread(post, f"{path}/gpudepartments", cluster.department())
    await asyncio.to_thread(post, f"{path}/gpuprojects", cluster.project("bench"))


async def count_bound(client: Client, wanted: int) -> float:
    """When the last of `wanted` pods of the benchmark's namespace got its node."""
    seen: set[str] = set()
    is_done = asyncio.Event()

    def note(event: Event) -> None:
        if isinstance(event, Upserted):
            seen.add(event.obj.metadata.uid)
            if len(seen) >= wanted:
                is_done.set()

    reflector = Reflector(client, PODS, note, namespace="bench", field_selector="spec.nodeName!=")
    following = asyncio.create_task(reflector.run())
    try:
        await is_done.wait()
        return time.perf_counter()
    finally:
        following.cancel()


async def _remove_gates(client: Client) -> None:
    limit = asyncio.Semaphore(WRITERS)
    patch: dict[str, Any] = {"spec": {"schedulingGates": None}}

    async def one(number: int) -> None:
        async with limit:
            await client.merge_patch(PODS, f"p-{number}", patch, namespace="bench")

    await asyncio.gather(*(one(number) for number in range(N_PODS)))
