"""Queues of a scenario file: quotas, limits, weights and past use."""

from typing import Final

from msgspec import UNSET, UnsetType

from extender.scenario.model.values import (
    Amount,
    Kind,
    Limit,
    Name,
    Natural,
    Rank,
    Seconds,
    Written,
)

#: Queues of this priority have rank 0; higher priorities are served first.
USUAL_PRIORITY: Final = 100


class Figures(Written, frozen=True, kw_only=True):
    """A queue's figures for one resource; absent ones have the resource's defaults."""

    quota: Limit | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    weight: Amount | UnsetType = UNSET


class GpuFigures(Figures, frozen=True, kw_only=True):
    """A queue's figures for GPUs; `gpu_hours_per_month` is a project's budget in each node pool."""

    gpu_hours_per_month: Natural | None = None
    gpu_hours_used: Amount = 0


class QueuePool(Written, frozen=True, kw_only=True):
    """A queue's figures in one node pool; the queue's own are the defaults."""

    gpu: GpuFigures = GpuFigures()
    cpu: Figures = Figures()
    memory: Figures = Figures()


class Usage(Written, frozen=True, kw_only=True):
    """A queue's past use, decayed, as a part of the cluster's capacity."""

    gpu: Amount = 0
    cpu: Amount = 0
    memory: Amount = 0


class Queue(Written, frozen=True, kw_only=True):
    """A department, a project, or a level in between."""

    name: Name
    parent: str | None = None
    priority: Rank = USUAL_PRIORITY
    gpu: GpuFigures = GpuFigures()
    cpu: Figures = Figures()
    memory: Figures = Figures()
    usage: Usage = Usage()
    reclaim_min_runtime: Seconds | UnsetType = UNSET
    preempt_min_runtime: Seconds | UnsetType = UNSET
    node_pools: list[str] = []
    pools: dict[str, QueuePool] = {}
    node_types: dict[Kind, dict[str, list[str]]] = {}
