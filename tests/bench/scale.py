"""A large cluster on a real control plane: at rest, and with 100 changes a second.

5,000 nodes, 40,000 pods that run on all of their GPUs, and 10,000 pending pods, in 1,000 projects.
A quarter of the changes deletes running pods, a quarter creates pods, and half annotates running
pods. A freed GPU goes to a pending pod. Meanwhile a project with its own nodes creates a pod a
second.
"""

import asyncio
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from extender.kube.client import Client
from extender.kube.errors import NotFound, Unavailable
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from tests.bench import cluster
from tests.bench.cost import Meter
from tests.bench.figures import Figure, percentile, show
from tests.bench.installed import OURS, per_second, rate, resident
from tests.bench.waits import Times
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.nodes import GpuNodes
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import Installation, Program

N_NODES: Final = 5_000
CARDS: Final = 8
N_PROJECTS: Final = 1_000
N_WAITING: Final = 10_000
BYSTANDER: Final = "bystander"
BYSTANDER_NODES: Final = 100
#: Interval of checks, and deadline, until the programs have written the conditions of 10,000
#: pending pods.
LOOK_S: Final = 20.0
SETTLES_S: Final = 900.0
#: Duration of each measurement.
RESTS_S: Final = 120.0
CHANGES_S: Final = 600.0
CHANGES_PER_S: Final = 100
#: Deadline after the last change until all GPUs are allocated again.
RECOVERS_S: Final = 120.0
#: The bars.
WRITES_PER_S: Final = 5.0
MEMORY_MIB: Final = 1024.0
CYCLE_S: Final = 1.0
_NODES: Final = GpuNodes(N_NODES)
_ROLE: Final = _NODES.prefix
_RELEASED: Final = "ballast_control_released_pods_total"
_CYCLES: Final = "ballast_control_cycle_duration_seconds_count decide"
_CYCLE_S: Final = "ballast_control_cycle_duration_seconds_sum"


async def measure(plane: ControlPlane) -> list[Figure]:
    """Writes, CPU time and memory at rest; cycles, starts and a bystander's waits under load."""
    await asyncio.to_thread(_fill, plane)
    installation = Installation(plane, by_token=True, lease_s=60.0)
    webhooks = installation.webhooks(Path(tempfile.mkdtemp(prefix="ballast-bench-")))
    programs = (installation.control, installation.serve, webhooks)
    try:
        await asyncio.to_thread(installation.start)
        await asyncio.to_thread(webhooks.start)
        settled_s = await _settle(plane, programs)
        before, meter = await _scrape(installation.control), _meter(plane, programs)
        await asyncio.sleep(RESTS_S)
        n_cycles = (await _scrape(installation.control))[_CYCLES] - before[_CYCLES]
        figures = [
            Figure("from start to rest", round(settled_s), "s"),
            Figure("  cycles, at rest", rate(60 * n_cycles, RESTS_S), "cycles/min"),
        ]
        figures += per_second("at rest", meter.read(), RESTS_S, WRITES_PER_S)
        figures += resident("at rest", programs, MEMORY_MIB)
        show(figures)
        figures += await _change(plane, programs)
        return figures + resident("after the changes", programs, MEMORY_MIB)
    finally:
        webhooks.kill()
        installation.stop()


async def _settle(plane: ControlPlane, programs: Sequence[Program]) -> float:
    """Seconds until the programs wrote less than `WRITES_PER_S` between two checks."""
    began = time.perf_counter()
    while time.perf_counter() - began < SETTLES_S:
        meter = _meter(plane, programs)
        await asyncio.sleep(LOOK_S)
        writes = meter.read().writes.items()
        if sum(len(at) for key, at in writes if key[0].startswith(OURS)) < WRITES_PER_S * LOOK_S:
            break
    return time.perf_counter() - began


async def _change(plane: ControlPlane, programs: Sequence[Program]) -> list[Figure]:
    control = programs[0]
    meter, before = _meter(plane, programs), await _scrape(control)
    async with await Client.connect(plane.kubeconfig) as client:
        churn, comers = _Churn(client), _Comers(client)
        watch = asyncio.create_task(
            Reflector(client, PODS, comers.times.note, namespace=BYSTANDER).run()
        )
        coming = asyncio.create_task(comers.come())
        took_s = await churn.run()
        cost, after = meter.read(), await _scrape(control)
        comers.is_over.set()
        await coming
        recovered_s = await _recover(control, before, churn.done["delete"])
        watch.cancel()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    started = grown[_RELEASED] - len(comers.times.created)
    n_cycles = grown[_CYCLES]
    parts = {part: s for name, s in grown.items() if (part := name.removeprefix(_CYCLE_S)) != name}
    # Reports are written beside the cycles.
    in_turn_s = sum(took for part, took in parts.items() if part.strip() != "report")
    waits = comers.times.waits(comers.times.created)
    what = f"{CHANGES_PER_S} changes a second"
    return [
        Figure(
            f"changes answered per second, {what}",
            rate(churn.done.total() - churn.done["failed"], took_s),
            "changes/s",
            CHANGES_PER_S,
        ),
        Figure("  pods deleted", rate(churn.done["delete"], took_s), "pods/s"),
        Figure("  pods started", rate(started, took_s), "pods/s", churn.done["delete"] / took_s),
        Figure("  until all freed GPUs were taken, after it", round(recovered_s, 1), "s"),
        Figure(f"mean time of a cycle, {what}", rate(in_turn_s, n_cycles), "s", CYCLE_S),
        *(Figure(f" {part}", rate(s, n_cycles), "s") for part, s in parts.items()),
        Figure("  cycles", n_cycles, "cycles"),
        *(
            Figure(f"a bystander's pod, created to bound, p{percent}", round(wait_s, 2), "s")
            for percent, wait_s in ((p, percentile(waits, p)) for p in (50, 99))
        ),
        *per_second(what, cost, took_s, None),
    ]


async def _recover(control: Program, before: Mapping[str, float], n_freed: int) -> float:
    """Seconds until as many pods were released as were deleted, at most `RECOVERS_S`."""
    began = time.perf_counter()
    while (took_s := time.perf_counter() - began) < RECOVERS_S:
        if (await _scrape(control))[_RELEASED] - before[_RELEASED] >= n_freed:
            break
        await asyncio.sleep(0.5)
    return took_s


@dataclass(slots=True)
class _Churn:
    """Makes the changes evenly over time; fewer if the API server is too slow."""

    client: Client
    done: Counter[str] = field(default_factory=Counter)
    _draw: random.Random = field(default_factory=lambda: random.Random(1))
    _runs: list[tuple[str, str]] = field(default_factory=list)

    async def run(self) -> float:
        """Make changes for `CHANGES_S`; returns the seconds until the last one was answered."""
        self._runs = [
            (_project(node), f"{name}-{card}")
            for node, name in enumerate(_NODES.names())
            for card in range(CARDS)
        ]
        self._draw.shuffle(self._runs)
        began = time.perf_counter()
        under_way: set[asyncio.Task[None]] = set()
        for number in range(int(CHANGES_S * CHANGES_PER_S)):
            since_s = time.perf_counter() - began
            if since_s >= CHANGES_S:
                break
            await asyncio.sleep(number / CHANGES_PER_S - since_s)
            if len(under_way) >= CHANGES_PER_S:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            under_way.add(asyncio.create_task(self._one(number)))
        await asyncio.gather(*under_way)
        return time.perf_counter() - began

    async def _one(self, number: int) -> None:
        try:
            await self._change(number)
        except (NotFound, Unavailable):
            self.done["failed"] += 1

    async def _change(self, number: int) -> None:
        match number % 4:
            case 0:
                namespace, name = self._runs.pop()
                await self.client.delete(PODS, name, namespace=namespace)
                self.done["delete"] += 1
            case 1:
                pod = _waiting(N_WAITING + number)
                await self.client.create(PODS, pod, namespace=pod["metadata"]["namespace"])
                self.done["create"] += 1
            case _:
                namespace, name = self._draw.choice(self._runs)
                body = {"metadata": {"annotations": {"bench.ballast.dev/seen": str(number)}}}
                await self.client.merge_patch(PODS, name, body, namespace=namespace)
                self.done["annotate"] += 1


@dataclass(slots=True)
class _Comers:
    """Creates the bystander's pods: one a second, on its own nodes."""

    client: Client
    times: Times = field(default_factory=Times)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def come(self) -> None:
        """Create pods until the load ends."""
        for number in range(BYSTANDER_NODES * CARDS):
            if self.is_over.is_set():
                break
            pod = _pod(f"comes-{number}", BYSTANDER, BYSTANDER)
            self.times.created[pod["metadata"]["name"]] = time.perf_counter()
            await self.client.create(PODS, pod, namespace=BYSTANDER)
            await asyncio.sleep(1.0)


# -- measurements -----------------------------------------------------------------------------


def _meter(plane: ControlPlane, programs: Sequence[Program]) -> Meter:
    return Meter({each.name: each.pid for each in programs} | plane.pids(), plane.audit_log)


async def _scrape(program: Program) -> dict[str, float]:
    """The sum of each metric's samples, by the sample's name and its label `part`, if any."""
    url = f"http://{LOOPBACK}:{program.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    sums: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            part = sample.labels.get("part")
            sums[f"{sample.name} {part}" if part else sample.name] += sample.value
    return sums


# -- content of the cluster --------------------------------------------------------------------


def _fill(plane: ControlPlane) -> None:
    """Write nodes, projects, rows and pods directly to etcd."""
    plane.kill("kube-scheduler")
    plane.reset()
    root = "/apis/ballast.dev/v1alpha1"
    plane.admin.post(f"{root}/gpudepartments", cluster.department())
    for name in (*map(_project, range(N_PROJECTS)), BYSTANDER):
        plane.make_namespace(name)
        quota = BYSTANDER_NODES * CARDS if name == BYSTANDER else N_NODES * CARDS // N_PROJECTS
        plane.admin.post(f"{root}/gpuprojects", cluster.project(name, quota))
    own = cluster.seed_nodes(plane, BYSTANDER_NODES, CARDS, BYSTANDER)
    cluster.seed_ledgers(plane, own, cards=CARDS)
    nodes = cluster.seed_nodes(plane, N_NODES, CARDS)
    ledgers, pods = [], []
    for number, node in enumerate(nodes):
        rows = []
        for card in range(CARDS):
            name = f"{node}-{card}"
            gpu = {"ballast.dev/gpu-milli": "1000"}
            made = cluster.running_pod(name, _project(number), node, gpu)
            made["spec"] |= {
                "schedulerName": cluster.SCHEDULER,
                "priority": 50,
                "nodeSelector": {cluster.ROLE: _ROLE},
            }
            pods.append(made)
            rows.append(cluster.row(made, [card], 1000, _project(number)))
        ledgers.append(cluster.ledger(node, rows, CARDS))
    plane.store.put("ballast.dev/gpunodes", ledgers)
    plane.store.put("pods", pods)
    for number in range(N_PROJECTS):
        of = [_waiting(number + N_PROJECTS * each) for each in range(N_WAITING // N_PROJECTS)]
        plane.admin.post_all(f"/api/v1/namespaces/{_project(number)}/pods", of)


def _project(number: int) -> str:
    return f"p-{number % N_PROJECTS}"


def _waiting(number: int) -> dict[str, Any]:
    """A pending pod for the nodes that all projects share."""
    return _pod(f"waits-{number}", _project(number), _ROLE)


def _pod(name: str, namespace: str, role: str) -> dict[str, Any]:
    made = cluster.pod(name, namespace, {"cpu": "100m", "ballast.dev/gpu-milli": "1000"})
    made["spec"]["nodeSelector"] = {cluster.ROLE: role}
    cluster.hold(made)
    return made
