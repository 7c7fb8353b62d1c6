"""Memory of `control` with 100,000 pods, decoded by a reflector and stored in the model.

It is measured in a separate process, which reads pages as an API server would send them, in the
sizes that the client requests. 30,000 pods request GPUs; some pods of each kind have 100 KB of
labels, affinity or annotations of a tenant.
"""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import create_autospec

from extender.api.events import Synced
from extender.api.objects import Node, Pod
from extender.kube.client import Client
from extender.kube.reflector import Reflector
from extender.kube.resources import PODS
from extender.kube.wire import Page, decode_page
from extender.policy.decide import decide
from extender.state.cluster import ClusterState
from tests.bench.figures import Figure

N_PODS: Final = 100_000
N_GPU_PODS: Final = 30_000
N_NODES: Final = 5_000
#: One pod in this many has 100 KB, in each of `_BURDENS` in turn.
EVERY: Final = 100
#: The bar for resident memory, in MiB.
BAR_MIB: Final = 400

_LARGE: Final = 100_000
_MIB: Final = 2**20
#: Largest page that the client accepts, in bytes.
_PAGE: Final = 8 * _MIB
_BURDENS: Final = ("labels", "annotations", "affinity", "nodeSelector", "tolerations")


def measure() -> list[Figure]:
    """Resident memory after all pods are delivered, and its peak."""
    done = subprocess.run(
        [sys.executable, "-m", __name__], check=True, capture_output=True, text=True
    )
    rss, peak, bare = json.loads(done.stdout)
    name = f"memory of control: {N_PODS:,} pods, {N_GPU_PODS:,} of them with GPUs"
    return [
        Figure(f"{name}, peak", peak, "MiB", BAR_MIB),
        Figure("  at rest", rss, "MiB"),
        Figure("  of it the program itself", bare, "MiB"),
    ]


def pages() -> Iterator[bytes]:
    """Pages of all pods, as an API server lists them."""
    items: list[bytes] = []
    for number in range(N_PODS):
        items.append(json.dumps(_pod(number)).encode())
        if len(items) == 500 or sum(map(len, items)) > _PAGE:
            yield _page(items)
            items = []
    yield _page(items)


def _page(items: list[bytes]) -> bytes:
    return b'{"metadata":{"resourceVersion":"900000"},"items":[' + b",".join(items) + b"]}"


def _pod(number: int) -> dict[str, Any]:
    job = number // 8
    has_gpu = number % 10 < 10 * N_GPU_PODS // N_PODS
    amounts = {"cpu": "8", "memory": "64Gi"}
    if has_gpu:
        amounts["ballast.dev/gpu-milli"] = "1000"
    meta: dict[str, Any] = {
        "name": f"training-job-{job}-{number:06}",
        "generateName": f"training-job-{job}-",
        "namespace": f"team-{job % 50}",
        "uid": f"6b2f0c7e-93d1-4c5e-8f10-{number:012}",
        "resourceVersion": str(500_000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "job-name": f"training-job-{job}",
            "batch.kubernetes.io/job-name": f"training-job-{job}",
            "batch.kubernetes.io/controller-uid": f"0f2f0c7e-93d1-4c5e-8f10-{job:012}",
            "app.kubernetes.io/name": f"app-{job % 200}",
        },
        "annotations": {"ballast.dev/plan": f"7000000001 node-{number % N_NODES:04}"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": f"training-job-{job}",
                "uid": f"0f2f0c7e-93d1-4c5e-8f10-{job:012}",
                "controller": True,
            }
        ],
    }
    if has_gpu:
        meta["annotations"]["ballast.dev/cards"] = "0:1000:81920"
    else:
        del meta["annotations"]
    spec: dict[str, Any] = {
        "nodeName": f"node-{number % N_NODES:04}",
        "schedulerName": "ballast-scheduler",
        "priority": 50,
        "containers": [
            {
                "name": "main",
                "image": "registry.example/training:1",
                "env": [{"name": f"SETTING_{n}", "value": "x" * 40} for n in range(20)],
                "resources": {"requests": amounts, "limits": amounts},
            }
        ],
    }
    if number % EVERY < 2:
        _burden(_BURDENS[number // EVERY % len(_BURDENS)], number, meta, spec)
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": spec, "status": status}


def _burden(kind: str, number: int, meta: dict[str, Any], spec: dict[str, Any]) -> None:
    """Add 100 KB that differ from pod to pod."""
    texts = [f"{number:06}-{at:05}-" + "x" * 50 for at in range(_LARGE // 80)]
    if kind in ("labels", "annotations"):
        meta.setdefault(kind, {}).update({f"x/{text[:12]}": text for text in texts})
    elif kind == "nodeSelector":
        spec[kind] = {f"x/{text[:12]}": text for text in texts}
    elif kind == "tolerations":
        spec[kind] = [{"key": text, "operator": "Exists"} for text in texts]
    else:
        wanted = [{"key": "host", "operator": "In", "values": texts}]
        terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {t[:12]: t for t in texts}}}
        spec[kind] = {"nodeAffinity": {required: terms}, "podAffinity": {required: [term]}}


def _fill() -> None:
    """Deliver all pods to a controller's reflector and print the figures in MiB."""
    bare = _rss()
    state = ClusterState()
    client = create_autospec(Client, instance=True)
    client.pages, client.lines = _decoded, _silent
    reflector = Reflector(client, PODS, state.apply)
    asyncio.run(_list(reflector))
    state.apply(Synced(Node))
    decide(state.snapshot(1_000_000))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps([_rss(), peak, bare]))


async def _decoded(*_: object, **__: object) -> AsyncGenerator[Page[Pod], None]:
    """Stands in for `Client.pages`, but decodes prepared bytes."""
    for body in pages():
        yield decode_page(PODS, body)


async def _silent(*_: object) -> AsyncGenerator[bytes, None]:
    """A watch without events."""
    await asyncio.Event().wait()
    yield b""


async def _list(reflector: Reflector[Pod]) -> None:
    """Run the reflector until it has delivered its first list."""
    task = asyncio.create_task(reflector.run())
    await reflector.wait_synced()
    task.cancel()
    await asyncio.wait([task])


def _rss() -> int:
    """Resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // _MIB


if __name__ == "__main__":
    _fill()
