"""Simulated GPU nodes, as GPU feature discovery, the device plugin and kubelet would write them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """A number of equal nodes. `memory_mib` is the memory of a card, `memory` that of a node."""

    count: int
    gpus: int = 8
    model: str = "A100"
    memory_mib: int = 81920
    cpu: str = "96"
    memory: str = "512Gi"
    prefix: str = "gpu-node"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The nodes' names, `<prefix>-0000` and up."""
        return [f"{self.prefix}-{ix:04d}" for ix in range(self.count)]

    def manifests(self) -> list[dict[str, Any]]:
        """The Node objects; kwok makes them Ready."""
        return [self._manifest(name) for name in self.names()]

    def ready_manifests(self, since: str) -> list[dict[str, Any]]:
        """The Node objects as Ready nodes, for `Store.put`."""
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": since,
            "lastTransitionTime": since,
        }
        manifests = self.manifests()
        for each in manifests:
            each["status"] |= {"conditions": [condition], "phase": "Running"}
        return manifests

    def _manifest(self, name: str) -> dict[str, Any]:
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        capacity = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        if self.gpus:
            labels |= {
                "nvidia.com/gpu.count": str(self.gpus),
                "nvidia.com/gpu.memory": str(self.memory_mib),
                "nvidia.com/gpu.product": self.model,
            }
            capacity["nvidia.com/gpu"] = str(self.gpus)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels | dict(self.labels),
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "status": {"capacity": capacity, "allocatable": capacity},
        }
