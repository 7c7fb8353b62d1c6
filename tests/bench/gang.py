"""A gang of 8 pods: from its creation to its last Binding, and from its first Binding to its last.

On a cluster of 200 free nodes, each gang is deleted before the next is created. For the stock
scheduler a gang is 8 pods without a group. Both are measured one after the other on the same
control plane and nodes; times are those at a watcher of all pods.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from extender.api.events import Event, Upserted
from extender.api.names import ANNOTATION_MIN_MEMBER, LABEL_POD_GROUP
from extender.api.objects import Pod
from extender.kube.client import Client
from extender.kube.errors import NotFound
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from tests.bench import cluster
from tests.bench.figures import Figure, percentile
from tests.bench.installed import installed
from tests.bench.throughput import make_queues
from tests.support.controlplane.cluster import ControlPlane

N_NODES: Final = 200
MEMBERS: Final = 8
N_GANGS: Final = 40
#: Seconds between two gangs.
PAUSE_S: Final = 0.5
TIMEOUT_S: Final = 60.0
SPREAD_BAR_S: Final = 0.3

#: Makes one pod of a gang from its name and that of the gang.
_Make = Callable[[str, str], dict[str, Any]]
#: For each gang, seconds from its creation to its last Binding, and from its first to its last.
_Result = list[tuple[float, float]]


async def measure(plane: ControlPlane) -> list[Figure]:
    """Figures of Ballast, with the bar and the stock scheduler as references."""
    stock = await _stock(plane)
    ours = await _ours(plane)
    figures: list[Figure] = []
    for percent in (50, 99):
        whole, theirs = (percentile([each[0] for each in of], percent) for of in (ours, stock))
        spread = percentile([each[1] for each in ours], percent)
        name = f"gang of {MEMBERS}, p{percent}"
        bar_s = SPREAD_BAR_S if percent == 50 else None
        figures.append(Figure(f"{name}: first to last Binding", round(spread, 3), "s", bar_s))
        whole_name = f"{name}: created to last Binding, beside the stock scheduler"
        figures.append(Figure(whole_name, round(whole, 3), "s", round(theirs, 3)))
    return figures


async def _stock(plane: ControlPlane) -> _Result:
    plane.reset()
    plane.make_namespace("bench")
    plane.start_kwok()
    cluster.seed_nodes(plane, N_NODES)
    plane.start_scheduler(None)
    owner = cluster.make_owner(plane, "bench")
    try:
        return await _time(plane, lambda name, _: cluster.whole_pod(name, "bench", owner))
    finally:
        plane.kill("kube-scheduler")


async def _ours(plane: ControlPlane) -> _Result:
    plane.reset()
    plane.make_namespace("bench")
    cluster.seed_ledgers(plane, cluster.seed_nodes(plane, N_NODES))
    await make_queues(plane)
    owner = cluster.make_owner(plane, "bench")

    def make(name: str, gang: str) -> dict[str, Any]:
        pod = cluster.whole_pod(name, "bench", owner)
        pod["metadata"]["labels"][LABEL_POD_GROUP] = gang
        pod["metadata"]["annotations"] = {ANNOTATION_MIN_MEMBER: str(MEMBERS)}
        return pod

    async with installed(plane, "bench"):
        return await _time(plane, make)


async def _time(plane: ControlPlane, make: _Make) -> _Result:
    bound: dict[str, float] = {}

    def note(event: Event) -> None:
        if isinstance(event, Upserted) and isinstance(event.obj, Pod) and event.obj.spec.node_name:
            bound.setdefault(event.obj.metadata.name, time.perf_counter())

    times: _Result = []
    async with await Client.connect(plane.kubeconfig) as client:
        watch = asyncio.create_task(Reflector(client, PODS, note, namespace="bench").run())
        for gang in (f"gang-{number}" for number in range(N_GANGS)):
            names = [f"{gang}-{member}" for member in range(MEMBERS)]
            began = time.perf_counter()
            pods = [client.create(PODS, make(name, gang), namespace="bench") for name in names]
            await asyncio.gather(*pods)
            async with asyncio.timeout(TIMEOUT_S):
                while not bound.keys() >= set(names):
                    await asyncio.sleep(0.01)
            seen = sorted(bound[name] for name in names)
            times.append((seen[-1] - began, seen[-1] - seen[0]))
            with suppress(NotFound):
                await asyncio.gather(
                    *(client.delete(PODS, name, "bench", grace_s=0) for name in names)
                )
            await asyncio.sleep(PAUSE_S)
        watch.cancel()
    return times
