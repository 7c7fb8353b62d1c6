"""Pods bound per second: Ballast with fractions, the stock scheduler with whole GPUs.

All pods exist before the start. Ballast's pods have passed its webhooks and the controller is
frozen; the stock scheduler's pods have no gate and kube-scheduler is frozen. The time is from the
moment at which the frozen program resumes until the last pod has a node. For Ballast it includes
reading the pods, the plan and the removal of all gates, for the stock scheduler only scheduling.
Both are measured one after the other on the same control plane and nodes. CPU time is of all
processes except the benchmark. CPU time and writes are counted until the last pod runs; otherwise
the slower scheduler would be charged for more of the kubelets' work.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from extender.api.events import Event, Upserted
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from tests.bench import cluster
from tests.bench.cost import Cost, Meter
from tests.bench.figures import Figure
from tests.bench.installed import installed
from tests.support.controlplane.cluster import ControlPlane

N_PODS = 2000
TIMEOUT_S = 120.0
#: Duration of the Lease: longer than the creation of all pods.
FROZEN_S = 180.0
BOUND = "spec.nodeName!="
RUNNING = "status.phase=Running"


@dataclass(slots=True, frozen=True)
class _Result:
    """Seconds until the last pod was bound and until the last one ran, and the cost."""

    took_s: float
    ran_s: float
    cost: Cost


async def measure(plane: ControlPlane, n_nodes: int, n_pods: int = N_PODS) -> list[Figure]:
    """The figures for one size of cluster."""
    stock = await _stock(plane, n_nodes, n_pods)
    ours = await _ours(plane, n_nodes, n_pods)
    name = f"{n_nodes} nodes, {n_pods} pods"
    rates = [round(n_pods / each.took_s, 1) for each in (ours, stock)]
    cpu_ms = [round(each.cost.total_cpu_s * 1000 / n_pods, 2) for each in (ours, stock)]
    running = [round(n_pods / each.ran_s, 1) for each in (ours, stock)]
    writes = [round(each.cost.n_writes / n_pods, 2) for each in (ours, stock)]
    return [
        Figure(f"pods bound per second, {name}", rates[0], "pods/s", rates[1]),
        Figure(f"pods running per second, {name}", running[0], "pods/s", running[1]),
        Figure(f"CPU per pod over all processes, {name}", cpu_ms[0], "ms", cpu_ms[1]),
        *_by_process(ours.cost, stock.cost, n_pods),
        Figure(f"writes per pod, {name}", writes[0], "writes", writes[1]),
        *_by_writer(ours.cost, n_pods),
    ]


def _by_writer(cost: Cost, n_pods: int) -> list[Figure]:
    """Writes per pod by kind, and the times of the first and the last."""
    figures: list[Figure] = []
    for (user, resource), answered_s in sorted(cost.writes.items(), key=lambda each: each[1][0]):
        if len(answered_s) >= n_pods / 50:
            n_writes = round(len(answered_s) / n_pods, 2)
            figures.append(Figure(f"  {user}: {resource}", n_writes, "writes"))
            figures.append(Figure("    the first answered after", round(answered_s[0], 2), "s"))
            figures.append(Figure("    the last answered after", round(answered_s[-1], 2), "s"))
    return figures


def _by_process(ours: Cost, stock: Cost, n_pods: int) -> list[Figure]:
    return [
        Figure(
            f"  {process}",
            round(spent * 1000 / n_pods, 2),
            "ms",
            round(stock.cpu_s.get(process, 0.0) * 1000 / n_pods, 2),
        )
        for process, spent in ours.cpu_s.items()
    ]


async def _stock(plane: ControlPlane, n_nodes: int, n_pods: int) -> _Result:
    plane.reset()
    plane.make_namespace("bench")
    plane.start_kwok()
    cluster.seed_nodes(plane, n_nodes)
    plane.start_scheduler(None)
    plane.freeze("kube-scheduler")
    try:
        owner = cluster.make_owner(plane, "bench")
        pods = [cluster.whole_pod(f"p-{number}", "bench", owner) for number in range(n_pods)]
        await asyncio.to_thread(plane.admin.post_all, "/api/v1/namespaces/bench/pods", pods)
        return await _time(plane, {}, n_pods, lambda: plane.thaw("kube-scheduler"))
    finally:
        plane.kill("kube-scheduler")


async def _ours(plane: ControlPlane, n_nodes: int, n_pods: int) -> _Result:
    plane.reset()
    plane.make_namespace("bench")
    nodes = cluster.seed_nodes(plane, n_nodes)
    cluster.seed_ledgers(plane, nodes)
    await make_queues(plane)
    async with installed(plane, "bench", lease_s=FROZEN_S) as programs:
        programs.control.freeze()
        milli = cluster.FRACTIONS
        owner = cluster.make_owner(plane, "bench")
        pods = [
            cluster.user_pod(f"p-{number}", "bench", milli[number % len(milli)], owner)
            for number in range(n_pods)
        ]
        await asyncio.to_thread(plane.admin.post_all, "/api/v1/namespaces/bench/pods", pods)
        return await _time(plane, programs.pids(), n_pods, programs.control.thaw)


async def _time(
    plane: ControlPlane, programs: Mapping[str, int], n_pods: int, begin: Callable[[], None]
) -> _Result:
    """Measure from `begin` to the last Binding; `programs` are the processes besides the
    plane's."""
    async with await Client.connect(plane.kubeconfig) as client:
        watch = asyncio.create_task(count_pods(client, n_pods, BOUND))
        meter = Meter({**programs, **plane.pids()}, plane.audit_log)
        started = time.perf_counter()
        begin()
        took_s = await asyncio.wait_for(watch, TIMEOUT_S) - started
        last_ran = await asyncio.wait_for(count_pods(client, n_pods, RUNNING), TIMEOUT_S)
        return _Result(took_s, last_ran - started, meter.read())


async def make_queues(plane: ControlPlane) -> None:
    """Create the department and the project, so that the benchmark's pods may run."""
    path = "/apis/ballast.dev/v1alpha1"
    post = plane.admin.post
    await asyncio.to_thread(post, f"{path}/gpudepartments", cluster.department())
    await asyncio.to_thread(post, f"{path}/gpuprojects", cluster.project("bench"))


async def count_pods(client: Client, wanted: int, field_selector: str) -> float:
    """The time at which `wanted` pods of the benchmark's namespace match the selector."""
    seen: set[str] = set()
    is_done = asyncio.Event()

    def note(event: Event) -> None:
        if isinstance(event, Upserted):
            seen.add(event.obj.metadata.uid)
            if len(seen) >= wanted:
                is_done.set()

    reflector = Reflector(client, PODS, note, namespace="bench", field_selector=field_selector)
    following = asyncio.create_task(reflector.run())
    try:
        await is_done.wait()
        return time.perf_counter()
    finally:
        following.cancel()
