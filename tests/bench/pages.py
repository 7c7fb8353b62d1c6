"""The pages of `ballast web` on a large cluster, in Chromium, as a tenant and as an administrator.

A real API server has 5,000 nodes, 10,000 running and 10,000 pending workloads. `ballast view` is
the aggregated API, and each user's pages use the user's own login. Nothing else runs, so the cost
of a page is the CPU time of the programs while it was loaded.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.bench import cluster
from tests.bench.cost import cpu_s
from tests.bench.figures import Figure
from tests.bench.installed import rss_mib
from tests.support.chromium import CHROMIUM, Browser, Loaded
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl, wait_for
from tests.support.controlplane.store import now
from tests.support.installation import Installation, Program

N_NODES: Final = 5_000
CARDS: Final = 8
#: Cards of each running workload; two fill a node.
CARDS_A_POD: Final = 4
N_PROJECTS: Final = 50
N_WAITING: Final = 10_000
N_EVICTIONS: Final = 2_000
N_DAYS: Final = 25
LOADS: Final = 4
#: How long a live page is open, to measure the cost of its refreshes.
FOLLOWED_S: Final = 30.0
#: The bar of the first contentful paint.
PAINT_MS: Final = 1000.0
READY_S: Final = 180.0
MINE: Final = "p-0"
TENANT_PAGES: Final = (
    "mine",
    f"project/{MINE}",
    "queue",
    f"workload/{MINE}/waits-0",
    "shares",
    "evictions",
)
LEAD_PAGES: Final = (
    "queue?all=1",
    "cluster",
    "whatif",
    "evictions?all=1",
    "usage",
    f"usage?project={MINE}",
)
_VIEW: Final = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.ballast.dev"


async def measure(plane: ControlPlane) -> list[Figure]:
    """The first contentful paint of each page, and the CPU time of the programs."""
    if CHROMIUM is None:
        print("no chromium: pages were not measured (apt install chromium)", file=sys.stderr)
        return []
    await asyncio.to_thread(_fill, plane)
    view = Installation(plane).view()
    try:
        await asyncio.to_thread(view.start)
        await asyncio.to_thread(wait_for, lambda: _is_available(plane), READY_S, "ballast view")
        await asyncio.to_thread(wait_for, lambda: _may_ask(plane, "ann"), READY_S, "role view")
        # Nothing renews the nodes' leases, and no node may be lost.
        plane.kill("kube-controller-manager")
        figures = [Figure("memory of view before the first page", rss_mib(view), "MiB")]
        for user, pages in (("ann", TENANT_PAGES), ("lead", LEAD_PAGES)):
            figures += await _measure_user(plane, view, user, pages)
        figures.append(Figure("memory of view after the last page", rss_mib(view), "MiB"))
    finally:
        view.end()
    return figures


async def _measure_user(
    plane: ControlPlane, view: Program, user: str, pages: tuple[str, ...]
) -> list[Figure]:
    figures: list[Figure] = []
    work = Path(tempfile.mkdtemp(prefix="ballast-bench-"))
    async with AsyncExitStack() as stack:
        url, pid = await stack.enter_async_context(_served(plane.kubeconfig_for(user)))
        browser = await stack.enter_async_context(Browser.open(work / "profile"))
        pids = {"web": pid, "view": view.pid, "kube-apiserver": plane.pids()["kube-apiserver"]}
        for page in pages:
            print(f"loading {page} as {user}", file=sys.stderr, flush=True)
            loads = [await _load(browser, url + page, pids) for _ in range(LOADS)]
            figures += _figures(f"{user}: {page}", loads)
        for page in pages:
            if page.startswith(("mine", "queue", "cluster")):
                figures.append(await _refresh(f"{user}: {page}", url + page, pids))
        figures.append(Figure(f"memory of web of {user}", _resident_mib(pid), "MiB"))
    return figures


@dataclass(slots=True, frozen=True)
class _Load:
    loaded: Loaded
    cpu_s: Mapping[str, float]


async def _load(browser: Browser, url: str, pids: Mapping[str, int]) -> _Load:
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    separator = "&" if "?" in url else "?"
    loaded = await browser.load(f"{url}{separator}live=0")
    if (await browser.evaluate("document.querySelector('h1').innerText")) == "No answer":
        raise RuntimeError(f"{url}: {await browser.text()}")
    return _Load(loaded, {name: cpu_s(pid) - before[name] for name, pid in pids.items()})


async def _refresh(name: str, url: str, pids: Mapping[str, int]) -> Figure:
    """CPU time of all programs per second while one live page is open."""
    before = sum(map(cpu_s, pids.values()))
    headers = {"Accept": "text/event-stream"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        answer.raise_for_status()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLLOWED_S):
                async for _ in answer.content.iter_any():
                    pass
    took = sum(map(cpu_s, pids.values())) - before
    return Figure(f"{name}, live: CPU of all", round(1000 * took / FOLLOWED_S, 1), "ms/s")


def _figures(name: str, loads: list[_Load]) -> list[Figure]:
    paints = [each.loaded.paint_ms for each in loads]
    first = loads[0].loaded
    cpu = {
        program: 1000 * statistics.median(each.cpu_s[program] for each in loads)
        for program in loads[0].cpu_s
    }
    return [
        Figure(f"{name}: painted, median", round(statistics.median(paints)), "ms", PAINT_MS),
        Figure("  slowest", round(max(paints)), "ms", PAINT_MS),
        Figure("  document", round(first.n_bytes / 1024), "KiB"),
        *(Figure(f"  CPU of {program}", round(ms), "ms") for program, ms in cpu.items()),
    ]


@asynccontextmanager
async def _served(kubeconfig: str) -> AsyncIterator[tuple[str, int]]:
    """The URL of a user's `ballast web`, and its process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "extender", "web", "-n", MINE, "--kubeconfig", kubeconfig,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout
    try:
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.terminate()
        await process.wait()


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def _is_available(plane: ControlPlane) -> bool:
    conditions = plane.admin.get(_VIEW).get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)


def _may_ask(plane: ControlPlane, user: str) -> bool:
    """Whether the rights of `ballast view` are aggregated into Kubernetes' role `view`."""
    attributes = {
        "namespace": MINE, "verb": "list", "group": "view.ballast.dev", "resource": "queues",
    }  # fmt: skip
    review = plane.admin.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        },
    )
    return bool(review["status"]["allowed"])


# -- content of the cluster --------------------------------------------------------------------


def _fill(plane: ControlPlane) -> None:
    """Write nodes, projects, workloads, evictions and GpuUsages directly to etcd."""
    plane.reset()
    root = "/apis/ballast.dev/v1alpha1"
    plane.admin.post(f"{root}/gpudepartments", cluster.department())
    projects = [f"p-{number}" for number in range(N_PROJECTS)]
    for name in projects:
        plane.make_namespace(name)
        quota = N_NODES * CARDS // N_PROJECTS
        plane.admin.post(f"{root}/gpuprojects", cluster.project(name, quota))
    nodes = cluster.seed_nodes(plane, N_NODES, CARDS)
    running = _seed_running(plane, nodes, projects)
    plane.store.put("pods", [_waiting(number, projects) for number in range(N_WAITING)])
    plane.store.put("events", [_eviction(pod, running[0]) for pod in running[:N_EVICTIONS]])
    month = f"{datetime.now(UTC):%Y-%m}"
    plane.store.put(
        "ballast.dev/gpuusages",
        [_usage(name, f"{month}-{day:02}") for name in projects for day in range(1, N_DAYS + 1)],
    )
    _bind(plane, "ann", "view", MINE)
    for role in ("view", "ballast-quota-admin", "ballast-ask-all"):
        _bind(plane, "lead", role)


def _bind(plane: ControlPlane, user: str, role: str, namespace: str = "") -> None:
    kind = ["rolebinding", "-n", namespace] if namespace else ["clusterrolebinding"]
    name, flags = f"{user}-{role}", (f"--clusterrole={role}", f"--user={user}")
    run_kubectl(plane, "create", kind[0], name, *flags, *kind[1:])


def _seed_running(
    plane: ControlPlane, nodes: list[str], projects: list[str]
) -> list[dict[str, Any]]:
    """Two workloads that fill each node; projects take turns."""
    ledgers, pods = [], []
    for number, node in enumerate(nodes):
        rows = []
        for first in range(0, CARDS, CARDS_A_POD):
            project = projects[number % len(projects)]
            milli = 1000 * CARDS_A_POD
            made = cluster.running_pod(
                f"runs-{number}-{first}", project, node, {"ballast.dev/gpu-milli": str(milli)}
            )
            _name_its_user(made)
            made["spec"] |= {"schedulerName": cluster.SCHEDULER, "priority": 50}
            pods.append(made)
            rows.append(cluster.row(made, range(first, first + CARDS_A_POD), 1000, project))
        ledgers.append(cluster.ledger(node, rows, CARDS))
    plane.store.put("ballast.dev/gpunodes", ledgers)
    plane.store.put("pods", pods)
    return pods


def _waiting(number: int, projects: list[str]) -> dict[str, Any]:
    """A gated pod of one to eight GPUs."""
    namespace = projects[number % len(projects)]
    name = f"waits-{number // len(projects)}"
    gpus = 1 + number // len(projects) % CARDS
    made = cluster.pod(name, namespace, {"cpu": "1", "ballast.dev/gpu-milli": str(1000 * gpus)})
    cluster.hold(made)
    _name_its_user(made)
    made["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "priority": 50}
    made["status"] = {"phase": "Pending"}
    return made


def _name_its_user(made: dict[str, Any]) -> None:
    made["metadata"]["labels"] |= {"ballast.dev/user": f"user-{hash(made['metadata']['name']) % 9}"}


def _eviction(victim: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The event of an eviction, as the controller writes it."""
    meta = victim["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod"} | {
        key: meta[key] for key in ("name", "namespace", "uid")
    }
    related = {"kind": "Pod"} | {
        key: other["metadata"][key] for key in ("name", "namespace", "uid")
    }
    is_same = meta["namespace"] == other["metadata"]["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.e", "namespace": meta["namespace"]},
        "involvedObject": about,
        **({"related": related} if is_same else {}),
        "reason": "Reclaimed",
        "message": "bench takes back 4 GPUs of its quota: this project is above its share",
        "type": "Warning",
        "reportingComponent": "ballast-controller",
        "reportingInstance": "bench",
        "action": "Evict",
        "eventTime": now().replace("Z", ".000000Z"),
    }


def _usage(project: str, day: str) -> dict[str, Any]:
    """The GpuUsage of a project with nine users on one day."""
    lines = [
        {"user": f"user-{user}", "nodePool": "default", "model": "A100",
         "held": [86_400_000] * 24, "lost": [0] * 24}
        for user in range(9)
    ]  # fmt: skip
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuUsage",
        "metadata": {
            "name": f"{day}.project.{project}",
            "labels": {"ballast.dev/month": day[:7], "ballast.dev/day": day},
        },
        "spec": {"account": "Project", "name": project, "day": day, "lines": lines},
    }
