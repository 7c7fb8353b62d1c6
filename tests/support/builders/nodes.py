"""Nodes, their pools and topologies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from msgspec.structs import replace

from extender.api import names
from extender.api.kinds import (
    GpuNodePool,
    GpuNodePoolSpec,
    GpuTopology,
    GpuTopologySpec,
    Placement,
    PlacementRule,
    TimeBasedFairShare,
    TopologyLevel,
)
from extender.api.objects import (
    Condition,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Quantity,
    Taint,
)
from tests.support.builders.metadata import Builder

#: Default memory of a card in MiB.
CARD_MIB = 16_000


class NodeBuilder(Builder):
    """A Ready node with 64 CPUs, 256 GiB and 110 pod slots."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._spec = NodeSpec()
        self._ready: str | None = "True"
        self._resources: dict[str, Quantity] = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        self._allocatable: dict[str, Quantity] = {}

    def host(self, cpu: Quantity, memory: Quantity, pods: Quantity = "110") -> Self:
        self._resources.update(cpu=cpu, memory=memory, pods=pods)
        return self

    def gpus(self, count: int, mib: int = CARD_MIB, model: str = "") -> Self:
        """Adds cards, with the labels of GPU feature discovery."""
        self.labels({names.LABEL_GPU_COUNT: str(count), names.LABEL_GPU_MEMORY: str(mib)})
        return self.labels({names.LABEL_GPU_MODEL: model}) if model else self

    def plugin(self, capacity: int, allocatable: int) -> Self:
        """Whole cards as the device plugin counts them."""
        self._resources[names.NVIDIA_GPU] = capacity
        self._allocatable[names.NVIDIA_GPU] = allocatable
        return self

    def instances(self, resource: str, count: int) -> Self:
        """Adds MIG instances of one profile, as the device plugin counts them."""
        self._resources[resource] = count
        return self.labels({names.LABEL_MIG_STRATEGY: "mixed"})

    def gpu_milli(self, milli: int) -> Self:
        self._resources[names.GPU_MILLI] = milli
        return self

    def ready(self, status: str | None) -> Self:
        self._ready = status
        return self

    def cordoned(self) -> Self:
        self._spec = replace(self._spec, unschedulable=True)
        return self

    def taint(self, key: str, effect: str = "NoSchedule", value: str = "") -> Self:
        taints = [*(self._spec.taints or ()), Taint(key, effect, value)]
        self._spec = replace(self._spec, taints=taints)
        return self

    def build(self) -> Node:
        ready = [Condition(type="Ready", status=self._ready)] if self._ready else None
        resources = dict(self._resources)
        return Node(
            self._meta, self._spec, NodeStatus(resources, resources | self._allocatable, ready)
        )


class PoolBuilder(Builder):
    """A node pool that selects by label."""

    def __init__(self, name: str, selector: Mapping[str, str]) -> None:
        super().__init__(name)
        self._spec = GpuNodePoolSpec(node_selector=dict(selector))

    def spread(self) -> Self:
        self._spec = replace(self._spec, placement=Placement(gpu="Spread"))
        return self

    def placed(self, rule: PlacementRule) -> Self:
        self._spec = replace(self._spec, placement=Placement(gpu=rule))
        return self

    def remembers(self, half_life_s: int, weight_percent: int = 100) -> Self:
        """Enables time-based fair share."""
        rule = TimeBasedFairShare(weight_percent=weight_percent, half_life_seconds=half_life_s)
        self._spec = replace(self._spec, time_based_fair_share=rule)
        return self

    def without_weights(self) -> Self:
        self._spec = replace(self._spec, over_quota_weights="Disabled")
        return self

    def without_preemption(self) -> Self:
        self._spec = replace(self._spec, preemption="Disabled")
        return self

    def build(self) -> GpuNodePool:
        return GpuNodePool(metadata=self._meta, spec=self._spec)


def node(name: str) -> NodeBuilder:
    """A Ready node."""
    return NodeBuilder(name)


def pool(name: str, **selector: str) -> PoolBuilder:
    """A node pool."""
    return PoolBuilder(name, selector)


def topology(name: str, *levels: str) -> GpuTopology:
    """A topology with these node labels as levels, the widest first."""
    spec = GpuTopologySpec(levels=[TopologyLevel(node_label=label) for label in levels])
    return GpuTopology(metadata=ObjectMeta(name=name, uid=f"uid-topology-{name}"), spec=spec)
