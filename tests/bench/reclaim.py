"""A mass reclaim: how long it takes, and how long pods of an unrelated project are pending.

One project without quota holds all GPUs of its nodes, and a second requests all of them within its
quota. Meanwhile a third, the bystander, creates pods for its own free nodes. For the stock
scheduler the pods of the second and third project have a higher priority, so that it preempts. Both
schedulers are measured one after the other, with the same control plane, nodes and pods. A pod's
time is from its creation until a watcher sees it bound.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from tests.bench import cluster
from tests.bench.figures import Figure, percentile
from tests.bench.waits import Times
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import Installation

CARDS: Final = 8
#: Seconds between two pods of the bystander, and how many it creates before the reclaim begins.
PERIOD_S: Final = 0.25
N_BEFORE: Final = 40
#: Nodes of the bystander: they have more GPUs than it creates pods.
BYSTANDER_NODES: Final = 125
TIMEOUT_S: Final = 240.0
#: Seconds and attempts for the reference: sometimes kube-scheduler does not bind one of its
#: preemptors before it looks at all pending pods again, which is after five minutes.
STOCK_TIMEOUT_S: Final = 90.0
STOCK_ATTEMPTS: Final = 4
#: Parallel creates.
WRITERS: Final = 16

HOLDER, TAKER, BYSTANDER = "holder", "taker", "bystander"
PRIORITY_CLASS: Final = "bench-high"

#: Adapts a pod to the measured scheduler.
_Finish = Callable[[dict[str, Any]], None]


@dataclass(slots=True, frozen=True)
class _Result:
    """Seconds until the last victim was gone and until the last preemptor was bound, and waits."""

    evicted_s: float
    bound_s: float
    before: list[float]
    meanwhile: list[float]


async def measure(plane: ControlPlane, n_victims: int) -> list[Figure]:
    """The figures of one reclaim; `n_victims` is a multiple of `CARDS`."""
    stock = await _stock_in_time(plane, n_victims)
    ours = await _ours(plane, n_victims)
    name = f"reclaim of {n_victims} pods"
    figures = [
        Figure(f"{name}: last one gone", *_beside(ours.evicted_s, "s", stock.evicted_s)),
        Figure(f"{name}: last of the others bound", *_beside(ours.bound_s, "s", stock.bound_s)),
    ]
    for percent in (50, 99):
        calm = percentile(ours.before, percent)
        during = percentile(ours.meanwhile, percent)
        what = f"{name}: a bystander's pod, created to bound, p{percent}"
        figures.append(Figure(f"{what}, beside no reclaim", *_beside(during, "s", calm)))
        theirs = percentile(stock.meanwhile, percent)
        figures.append(Figure(f"{what}, beside the stock scheduler", *_beside(during, "s", theirs)))
    return figures


def _beside(value: float, unit: str, reference: float) -> tuple[float, str, float]:
    return round(value, 2), unit, round(reference, 2)


async def _stock_in_time(plane: ControlPlane, n_victims: int) -> _Result:
    """The reference, measured anew while it does not end in time; raises TimeoutError at last."""
    for attempt in range(1, STOCK_ATTEMPTS):
        with suppress(TimeoutError):
            return await _stock(plane, n_victims)
        print(f"attempt {attempt}: the stock scheduler left pods pending", file=sys.stderr)
    return await _stock(plane, n_victims)


async def _stock(plane: ControlPlane, n_victims: int) -> _Result:
    holders, _ = _make_cluster(plane, n_victims)
    pods = [
        cluster.running_pod(f"{node}-{number}", HOLDER, node, {"nvidia.com/gpu": "1"})
        for node in holders
        for number in range(CARDS)
    ]
    plane.store.put("pods", pods)
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS},
        "value": 1000,
    }
    plane.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    plane.start_kwok()
    plane.start_scheduler(None)

    def finish(pod: dict[str, Any]) -> None:
        pod["spec"]["priorityClassName"] = PRIORITY_CLASS

    return await _run(plane, n_victims, {"nvidia.com/gpu": "1"}, finish, STOCK_TIMEOUT_S)


async def _ours(plane: ControlPlane, n_victims: int) -> _Result:
    holders, others = _make_cluster(plane, n_victims)
    cluster.seed_ledgers(plane, holders, CARDS, HOLDER, milli=1000, project=HOLDER, cards=CARDS)
    cluster.seed_ledgers(plane, others, cards=CARDS)
    path = "/apis/ballast.dev/v1alpha1"
    plane.admin.post(f"{path}/gpudepartments", cluster.department())
    for project, quota in ((HOLDER, 0), (TAKER, n_victims), (BYSTANDER, CARDS * len(others))):
        plane.admin.post(f"{path}/gpuprojects", cluster.project(project, quota))
    installation = Installation(plane, by_token=True)
    try:
        await asyncio.to_thread(installation.start)
        gpu = {"ballast.dev/gpu-milli": "1000"}
        return await _run(plane, n_victims, gpu, cluster.hold, TIMEOUT_S)
    finally:
        installation.stop()


def _make_cluster(plane: ControlPlane, n_victims: int) -> tuple[list[str], list[str]]:
    """The full nodes, and those of the bystander."""
    plane.kill("kube-scheduler")
    plane.reset()
    for namespace in (HOLDER, TAKER, BYSTANDER):
        plane.make_namespace(namespace)
    return (
        cluster.seed_nodes(plane, n_victims // CARDS, CARDS, HOLDER),
        cluster.seed_nodes(plane, BYSTANDER_NODES, CARDS, BYSTANDER),
    )


async def _run(
    plane: ControlPlane, n_victims: int, gpu: Mapping[str, str], finish: _Finish, timeout_s: float
) -> _Result:
    """Run the reclaim, after some of the bystander's pods have started without it.

    Raises TimeoutError if the pods of any step are not bound in `timeout_s`.
    """
    times = Times()
    takers = [f"{TAKER}-{number}" for number in range(n_victims)]
    async with await Client.connect(plane.kubeconfig) as client:
        create = _Creator(client, times, dict(gpu), finish)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(Reflector(client, PODS, times.note).run())
        ]
        before = [f"{BYSTANDER}-before-{number}" for number in range(N_BEFORE)]
        meanwhile: list[str] = []
        is_over = asyncio.Event()
        try:
            for name in before:
                await create.pod(name, BYSTANDER, BYSTANDER)
                await asyncio.sleep(PERIOD_S)
            await _until_bound(times, before, timeout_s)
            calm = times.waits(before)
            comers = asyncio.create_task(_come(create, meanwhile, is_over))
            tasks.append(comers)
            started = time.perf_counter()
            await create.pods(takers, TAKER, HOLDER)
            await _until_bound(times, takers, timeout_s)
            is_over.set()
            await comers
            await _until_bound(times, meanwhile, timeout_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    victims = [when for name, when in times.gone.items() if name.startswith(HOLDER)]
    last_bound = max(times.bound[name] for name in takers)
    return _Result(max(victims) - started, last_bound - started, calm, times.waits(meanwhile))


@dataclass(slots=True, frozen=True)
class _Creator:
    """Creates pods of one GPU for the nodes of a role, and records the times."""

    client: Client
    times: Times
    gpu: dict[str, str]
    finish: _Finish

    async def pod(self, name: str, namespace: str, role: str) -> None:
        """Create one pod; its time starts before the request."""
        pod = cluster.pod(name, namespace, {"cpu": "100m", "memory": "128Mi"} | self.gpu)
        pod["spec"]["nodeSelector"] = {cluster.ROLE: role}
        self.finish(pod)
        self.times.created[name] = time.perf_counter()
        await self.client.create(PODS, pod, namespace=namespace)

    async def pods(self, names: list[str], namespace: str, role: str) -> None:
        """Create pods, `WRITERS` at a time."""
        limit = asyncio.Semaphore(WRITERS)

        async def one(name: str) -> None:
            async with limit:
                await self.pod(name, namespace, role)

        await asyncio.gather(*(one(name) for name in names))


async def _come(create: _Creator, names: list[str], is_over: asyncio.Event) -> None:
    """Create the bystander's pods one after the other until the reclaim is over."""
    for number in range(CARDS * BYSTANDER_NODES - N_BEFORE):
        if is_over.is_set():
            break
        name = f"{BYSTANDER}-meanwhile-{number}"
        await create.pod(name, BYSTANDER, BYSTANDER)
        names.append(name)
        await asyncio.sleep(PERIOD_S)


async def _until_bound(times: Times, names: Sequence[str], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while not all(name in times.bound for name in names):
            await asyncio.sleep(0.1)
