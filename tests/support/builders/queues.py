"""Departments and projects."""

from __future__ import annotations

from typing import Literal, Self

from msgspec.structs import replace

from extender.api import names
from extender.api.kinds import (
    GpuDepartment,
    GpuDepartmentSpec,
    GpuFigures,
    GpuProject,
    GpuProjectSpec,
    HostFigures,
    KindSelector,
    PoolFigures,
)
from extender.api.objects import (
    Quantity,
)
from tests.support.builders.metadata import Builder

WorkloadKind = Literal["training", "interactive", "build", "inference"]

NOT_COUNTED = HostFigures()


class QueueBuilder(Builder):
    """Quotas, limits and weights per node pool, of a department or project."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._pools: list[PoolFigures] = []

    def quota(
        self,
        gpus: Quantity,
        *,
        pool: str = names.DEFAULT_POOL,
        limit: Quantity | None = None,
        weight: int = 1,
        rank: int = 0,
        gpu_hours: int | None = None,
        cpu: HostFigures = NOT_COUNTED,
        memory: HostFigures = NOT_COUNTED,
    ) -> Self:
        gpu = GpuFigures(
            quota=gpus, limit=limit, gpu_hours_per_month=gpu_hours, over_quota_weight=weight
        )
        figures = PoolFigures(name=pool, gpu=gpu, cpu=cpu, memory=memory, rank=rank)
        self._pools.append(figures)
        return self


class DepartmentBuilder(QueueBuilder):
    """A department without quota."""

    def build(self) -> GpuDepartment:
        return GpuDepartment(
            metadata=self._meta, spec=GpuDepartmentSpec(node_pools=list(self._pools))
        )


class ProjectBuilder(QueueBuilder):
    """A project of department `science` with the namespace of its own name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._spec = GpuProjectSpec(department="science", namespaces=[name])

    def of(self, department: str) -> Self:
        self._spec = replace(self._spec, department=department)
        return self

    def namespaces(self, *namespaces: str) -> Self:
        self._spec = replace(self._spec, namespaces=list(namespaces))
        return self

    def default_pools(self, *pools: str) -> Self:
        self._spec = replace(self._spec, default_node_pools=list(pools))
        return self

    def places(self, kind: WorkloadKind, **on: str) -> Self:
        """Pods of this workload kind must run on nodes with these labels."""
        selectors = [*self._spec.node_affinity, KindSelector(workload_kind=kind, match_labels=on)]
        self._spec = replace(self._spec, node_affinity=selectors)
        return self

    def build(self) -> GpuProject:
        return GpuProject(
            metadata=self._meta, spec=replace(self._spec, node_pools=list(self._pools))
        )


def department(name: str) -> DepartmentBuilder:
    """A department."""
    return DepartmentBuilder(name)


def project(name: str) -> ProjectBuilder:
    """A project."""
    return ProjectBuilder(name)
