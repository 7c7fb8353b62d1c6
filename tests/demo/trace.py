"""Reads the trace slice in examples/ and converts it to Kubernetes objects."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
#: Memory of one card by model, which the trace does not have. G1 to G3 stand for models that it
#: does not disclose, so their memory is assumed.
CARD_MIB: Final = {
    "P100": 16384,
    "T4": 15360,
    "V100M16": 16384,
    "V100M32": 32768,
    "A10": 24576,
    "G1": 16384,
    "G2": 24576,
    "G3": 81920,
}
PODS_PER_NODE: Final = 110
MILLI: Final = 1000

Object = dict[str, Any]


@dataclass(slots=True, frozen=True)
class TraceNode:
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(slots=True, frozen=True)
class Workload:
    """A pod of the trace, or a gang of `size` equal pods; each requests `milli` of `gpus` cards."""

    name: str
    at_ms: int
    project: str
    kind: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    size: int = 1
    is_gang: bool = False
    model: str = ""

    @property
    def total_milli(self) -> int:
        """Milli-GPU of all its pods."""
        return self.size * self.gpus * self.milli


def read_nodes(folder: Path = EXAMPLES) -> list[TraceNode]:
    """The slice's nodes."""
    return [
        TraceNode(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["gpu"]),
            row["model"],
        )
        for row in _read(folder / "openb-slice-nodes.csv")
    ]


def read_workloads(folder: Path = EXAMPLES) -> list[Workload]:
    """The slice's workloads by time of arrival; the lines of a gang become one workload."""
    groups: dict[str, list[Mapping[str, str]]] = {}
    for row in _read(folder / "openb-slice-pods.csv"):
        groups.setdefault(row["gang"] or row["name"].replace("openb-pod", "openb"), []).append(row)
    return [_workload(name, rows) for name, rows in groups.items()]


def node_object(node: TraceNode) -> Object:
    """A Node as kubelet, GPU feature discovery and the device plugin would write it, for kwok."""
    capacity = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": str(PODS_PER_NODE),
        "nvidia.com/gpu": str(node.gpus),
    }
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.count": str(node.gpus),
        "nvidia.com/gpu.memory": str(CARD_MIB[node.model]),
        "nvidia.com/gpu.product": node.model,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def workload_object(workload: Workload) -> tuple[str, Object]:
    """(path, object): a Deployment for inference, a Job for training.

    They are as users write them: a Job fails after seven failed pods, unless admission adds that
    evictions are not failures.
    """
    template = _template(workload)
    if workload.kind == "inference":
        selector = {"matchLabels": {"workload": workload.name}}
        spec = {"replicas": workload.size, "selector": selector, "template": template}
        return _owner("apps", "Deployment", workload, spec)
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "parallelism": workload.size,
        "completions": workload.size,
        "template": template,
    }
    return _owner("batch", "Job", workload, spec)


def _owner(group: str, kind: str, workload: Workload, spec: Object) -> tuple[str, Object]:
    path = f"/apis/{group}/v1/namespaces/{workload.project}/{kind.lower()}s"
    meta = {"name": workload.name, "namespace": workload.project}
    return path, {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec}


def _template(workload: Workload) -> Object:
    labels = {"workload": workload.name, "ballast.dev/workload-kind": workload.kind}
    annotations = {}
    resources: Object = {
        "requests": {"cpu": f"{workload.cpu_milli}m", "memory": f"{workload.memory_mib}Mi"}
    }
    if workload.model:
        annotations["nvidia.com/use-gputype"] = workload.model
    if workload.milli < MILLI:
        annotations["gpu-fraction"] = f"{workload.milli / MILLI:.3f}".rstrip("0")
    else:
        resources["limits"] = {"nvidia.com/gpu": str(workload.gpus)}
    if workload.is_gang:
        labels["ballast.dev/pod-group"] = workload.name
        annotations["ballast.dev/min-member"] = str(workload.size)
    container = {"name": "main", "image": "simulated", "resources": resources}
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"containers": [container]},
    }


def _workload(name: str, rows: list[Mapping[str, str]]) -> Workload:
    first = rows[0]
    return Workload(
        name=name,
        at_ms=int(first["at_ms"]),
        project=first["project"],
        kind=first["kind"],
        cpu_milli=int(first["cpu_milli"]),
        memory_mib=int(first["memory_mib"]),
        gpus=int(first["num_gpu"]),
        milli=int(first["gpu_milli"]),
        size=len(rows),
        is_gang=bool(first["gang"]),
    )


def _read(path: Path) -> Iterable[Mapping[str, str]]:
    with path.open(encoding="ascii", newline="") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))
