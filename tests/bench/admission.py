"""Time that the webhook adds to a create of a pod: 1, 50 and 500 at a time, and in a burst.

There is one replica. Creates with and without it take turns, so that other load of the machine
affects both. Every pod shares a card, so every pod is reviewed; a pod without its gate was not, and
counts as failed. The time of a create includes its wait in the client, which is one process on this
machine.

`python -m tests.bench.admission [CREATES_AT_A_TIME ...]` measures this alone.
"""

import asyncio
import base64
import os
import re
import ssl
import sys
import tempfile
import time
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import yaml

from tests.bench import cluster
from tests.bench.figures import Figure, percentile, show
from tests.bench.installed import rss_mib
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import Installation, Program, install
from tests.support.webhook_config import webhooks_in_force

#: Creates at a time -> bar for the increase of p99, in ms; None: no bar.
BARS_MS: dict[int, float | None] = {1: None, 50: 250.0, 500: 1000.0}
#: Creates at a time -> creates of one turn.
N_CREATES = {1: 200, 50: 1000, 500: 2000}
TURNS = 2
N_BURST = 10_000
#: Parallel creates of the burst; the others wait in the client.
BURST_AT_ONCE = 1000
NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Number of figures for each number of creates at a time.
N_FIGURES = 10


@dataclass(slots=True)
class Took:
    """Times of creates in ms, and how many failed or were not changed as expected."""

    ms: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    wall_s: float = 0.0


async def measure(plane: ControlPlane, at_a_time: tuple[int, ...] = tuple(BARS_MS)) -> list[Figure]:
    """All figures; `at_a_time` are keys of `BARS_MS`."""
    for name in ("kube-scheduler", "kwok"):
        plane.kill(name)
    plane.reset()
    plane.make_namespace(NAMESPACE)
    for kind, body in (
        ("gpudepartments", cluster.department()),
        ("gpuprojects", cluster.project(NAMESPACE)),
    ):
        plane.admin.post(f"/apis/ballast.dev/v1alpha1/{kind}", body)
    folder = Path(tempfile.mkdtemp(prefix="ballast-bench-"))
    webhooks = Installation(plane, by_token=True).webhooks(folder)
    webhooks.start()
    try:
        figures: list[Figure] = []
        for number in at_a_time:
            figures += await _compare(plane, webhooks, folder, number)
            for figure in figures[-N_FIGURES:]:
                print(f"{figure.name}: {figure.value:g} {figure.unit}", flush=True)
        with _installed(plane, webhooks, folder):
            figures += await _burst(plane, webhooks)
        return figures
    finally:
        webhooks.kill()


async def _compare(
    plane: ControlPlane, webhooks: Program, folder: Path, at_a_time: int
) -> list[Figure]:
    without, with_webhook = Took(), Took()
    cpu_s, opened, all_s = 0.0, 0, [0.0, 0.0]
    for turn in range(TURNS):
        _empty(plane)
        all_s[0] -= _cpu_of_all_s(plane, webhooks)
        await _create(plane, without, at_a_time, N_CREATES[at_a_time], f"a{turn}", gated=False)
        all_s[0] += _cpu_of_all_s(plane, webhooks)
        _empty(plane)
        with _installed(plane, webhooks, folder):
            before, had = _cpu_s(webhooks), _n_connections(webhooks, folder)
            all_s[1] -= _cpu_of_all_s(plane, webhooks)
            count = N_CREATES[at_a_time]
            await _create(plane, with_webhook, at_a_time, count, f"b{turn}", gated=True)
            all_s[1] += _cpu_of_all_s(plane, webhooks)
            cpu_s += _cpu_s(webhooks) - before
            opened += _n_connections(webhooks, folder) - had
    figures = []
    what = f"{at_a_time} at a time"
    for percent in (50, 99):
        base = percentile(without.ms, percent)
        added = percentile(with_webhook.ms, percent) - base
        bar = BARS_MS[at_a_time] if percent == 99 else None
        figures.append(Figure(f"pod create p{percent} without webhook, {what}", _1(base), "ms"))
        figures.append(Figure(f"added by the webhook, p{percent}, {what}", _1(added), "ms", bar))
    n_made = len(with_webhook.ms)
    rates = [_1(len(took.ms) / took.wall_s) for took in (with_webhook, without)]
    figures.append(Figure(f"creates per second, {what}", rates[0], "/s", rates[1]))
    figures.append(Figure(f"creates that failed, {what}", len(with_webhook.failed), "", 0))
    for title, took_s in (
        ("CPU of all programs without webhook", all_s[0]),
        ("CPU of all programs with it", all_s[1]),
        ("CPU of the webhook", cpu_s),
    ):
        figures.append(Figure(f"{title}, {what}", _1(1000 * took_s / n_made), "ms a create"))
    figures.append(Figure(f"TLS handshakes, {what}", round(opened / n_made, 3), "a create"))
    if with_webhook.failed:
        print("\n".join(_told(webhooks, folder)))
    for line in with_webhook.failed[:3]:
        print(f"failed: {line}")
    return figures


async def _burst(plane: ControlPlane, webhooks: Program) -> list[Figure]:
    _empty(plane)
    took = Took()
    before = _cpu_s(webhooks)
    await _create(plane, took, BURST_AT_ONCE, N_BURST, "burst", gated=True)
    cpu_ms = 1000 * (_cpu_s(webhooks) - before) / N_BURST
    for line in took.failed[:3]:
        print(f"failed: {line}")
    return [
        Figure(f"creates that failed, {N_BURST:,} in one burst", len(took.failed), "", 0),
        Figure(f"creates per second, {N_BURST:,} in one burst", _1(N_BURST / took.wall_s), "/s"),
        Figure("CPU of the webhook, in the burst", _1(cpu_ms), "ms a create"),
        Figure("resident memory of the webhook after it", rss_mib(webhooks), "MiB"),
    ]


async def _create(
    plane: ControlPlane, took: Took, at_a_time: int, count: int, prefix: str, *, gated: bool
) -> None:
    """Creates `count` pods, `at_a_time` in parallel."""
    server, trust = _login(plane.kubeconfig)
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        numbers = iter(range(count))

        async def one_after_another() -> None:
            for number in numbers:
                await _create_one(session, f"{server}{PODS}", f"{prefix}-{number}", took, gated)

        started = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(at_a_time)))
        took.wall_s += time.perf_counter() - started


async def _create_one(
    session: aiohttp.ClientSession, url: str, name: str, took: Took, gated: bool
) -> None:
    body = orjson.dumps(_pod(name))
    started = time.perf_counter()
    try:
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as it:
            content = await it.read()
            status = it.status
    except aiohttp.ClientError as error:
        took.failed.append(f"{name}: {error}")
        return
    took.ms.append(1000 * (time.perf_counter() - started))
    if status != 201 or (b"ballast.dev/admission" in content) is not gated:
        took.failed.append(f"{name}: {status} {content[:300]!r}")


def _pod(name: str) -> dict[str, Any]:
    """A pod of realistic size, as for a training script."""
    variables = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(12)]
    container = {
        "name": "main",
        "image": "registry.example.com/team/train:1.2.3",
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": variables,
        "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "train", "team": "vision"},
            "annotations": {"gpu-fraction": "0.5"},
        },
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def _installed(
    plane: ControlPlane, webhooks: Program, folder: Path
) -> AbstractContextManager[None]:
    """Context in which the API server calls the shipped webhooks; none are called after it."""
    ca = (folder / "ca.crt").read_bytes()
    return webhooks_in_force(plane.admin, webhooks.port, ca, NAMESPACE)


def _empty(plane: ControlPlane) -> None:
    run_kubectl(plane, "delete", f"--raw={PODS}?gracePeriodSeconds=0&propagationPolicy=Background")


def _login(kubeconfig: str) -> tuple[str, ssl.SSLContext]:
    """The API server's address, and the TLS context of the kubeconfig's user."""
    document = yaml.safe_load(Path(kubeconfig).read_text())
    where, who = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(where["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as pair:
        for part in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(who[part]) + b"\n")
        pair.flush()
        context.load_cert_chain(pair.name)
    return str(where["server"]), context


def _cpu_of_all_s(plane: ControlPlane, webhooks: Program) -> float:
    """CPU seconds of the control plane, the webhook, and this process, which makes the load."""
    pids = [*plane.pids().values(), webhooks.pid, os.getpid()]
    return sum(map(_cpu_of_s, pids))


def _cpu_s(program: Program) -> float:
    return _cpu_of_s(program.pid)


def _cpu_of_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _told(program: Program, folder: Path) -> list[str]:
    """The webhook's metrics of reviews and connections."""
    text = _metrics(program, folder)
    return [line for line in text.splitlines() if re.match(r"ballast_webhook_\w+_total", line)]


def _n_connections(program: Program, folder: Path) -> int:
    """Connections that were opened so far, including the one of this request."""
    text = _metrics(program, folder)
    found = re.search(r'_connections_total\{outcome="served"\} (\S+)', text)
    return int(float(found[1])) if found else 0


def _metrics(program: Program, folder: Path) -> str:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    url = f"https://{LOOPBACK}:{program.port}/metrics"
    with urllib.request.urlopen(url, context=context, timeout=30) as answer:
        found: str = answer.read().decode()
    return found


def _1(value: float) -> float:
    return round(value, 1)


def main() -> None:
    """Measure this alone."""
    chosen = tuple(map(int, sys.argv[1:])) or tuple(BARS_MS)
    with ControlPlane() as plane:
        install(plane)
        plane.mark_baseline()
        show(asyncio.run(measure(plane, chosen)))


if __name__ == "__main__":
    main()
