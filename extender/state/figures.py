"""Reads the figures of queues into the integers that the policy computes with.

A malformed figure is reported in a sentence, and the last valid one stays in force.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from msgspec import UNSET

from extender.api.kinds import GpuFigures, HostFigures, MonthUse, PoolFigures, QueueStatus
from extender.api.months import PER_GPU_HOUR
from extender.api.units import MILLI_PER_GPU, UnitError, parse_cpu, parse_gpus, parse_memory
from extender.state.model import (
    UNBOUND,
    UNLIMITED,
    Amounts,
    Figures,
    MonthHours,
    PoolQuota,
    QueueView,
)


def read_quota(figures: PoolFigures, last: PoolQuota) -> tuple[PoolQuota, list[str]]:
    """The figures of one pool, those of `last` where malformed, and a sentence for each fault."""
    problems: list[str] = []
    quota = PoolQuota(
        gpu=_read_figures(figures.gpu, parse_gpus, last.gpu, ("gpu", problems)),
        cpu=_read_figures(figures.cpu, parse_cpu, last.cpu, ("cpu", problems)),
        memory=_read_figures(figures.memory, parse_memory, last.memory, ("memory", problems)),
        rank=figures.rank,
    )
    return quota, problems


def _read_figures(
    written: GpuFigures | HostFigures,
    parse: Callable[[float | str], int],
    last: Figures,
    wrong: tuple[str, list[str]],
) -> Figures:
    """The figures of one resource; faults are appended to the list in `wrong`, under its name."""
    resource, problems = wrong

    def read(field: str, value: float | str | None, known: int) -> int:
        try:
            return UNLIMITED if value is None else min(UNLIMITED, parse(value))
        except UnitError as error:
            problems.append(f"{resource}.{field}: {error}; {_kept(known)}")
            return known

    quota = read("quota", written.quota, last.quota)
    limit = read("limit", written.limit, last.limit)
    weight = written.over_quota_weight
    if weight < 0:
        problems.append(f"{resource}.overQuotaWeight: {weight} is not 0 or more")
        weight = last.weight
    if quota == UNLIMITED and limit == UNLIMITED:
        return UNBOUND
    return Figures(quota, limit, weight)


def with_budgets(
    quotas: Mapping[str, PoolQuota], listed: Iterable[PoolFigures], status: QueueStatus
) -> dict[str, PoolQuota]:
    """The figures of a project with its GPU-hour budgets and their use, from its status."""
    used = {use.name: use.month for use in status.node_pools}
    hours = {each.name: each.gpu.gpu_hours_per_month for each in reversed(list(listed))}
    found = {}
    for pool, quota in quotas.items():
        budget, month = hours.get(pool), used.get(pool, UNSET)
        of_month = None if budget is None else MonthHours(budget * PER_GPU_HOUR)
        if of_month is not None and isinstance(month, MonthUse):
            of_month = MonthHours(of_month.budget, month.milli_gpu_seconds, month.month)
        found[pool] = replace(quota, gpu=replace(quota.gpu, month=of_month))
    return found


def without_effect(figures: PoolFigures) -> list[str]:
    """A sentence for each figure of a department that has no effect there."""
    weighed = ("gpu", figures.gpu), ("cpu", figures.cpu), ("memory", figures.memory)
    problems = [
        f"{resource}.overQuotaWeight: has no effect, the weight of a department is its quota"
        for resource, written in weighed
        if written.over_quota_weight != 1
    ]
    if figures.gpu.gpu_hours_per_month is not None:
        problems.append("gpu.gpuHoursPerMonth: has no effect, only projects have budgets")
    if figures.rank:
        problems.append("rank: has no effect, departments have none")
    return problems


def _kept(figure: int) -> str:
    """Which figure is in force in place of a malformed one."""
    if figure in (0, UNLIMITED):
        return f"{'none' if figure else '0'} is in force until it is corrected"
    return "the last good one is in force"


def _weighed_by_quota(figures: PoolQuota) -> PoolQuota:
    """The figures with the quota as the over-quota weight."""
    gpu, cpu, memory = (
        replace(of, weight=of.quota if 0 < of.quota < UNLIMITED else 1) for of in figures.figures
    )
    return PoolQuota(gpu, cpu, memory, figures.rank)


def of_department(figures: PoolQuota) -> PoolQuota:
    """The figures of a department, weighted by quota. Departments without quota come last and share
    equally; with the demand-weighted policy each counts as if it had a quota of one GPU."""
    weighed = replace(_weighed_by_quota(figures), rank=0 if figures.gpu.quota else 1)
    if figures.gpu.quota:
        return weighed
    return replace(weighed, gpu=replace(weighed.gpu, weight=MILLI_PER_GPU))


def weigh_by_quota(view: QueueView, pools: set[str]) -> QueueView:
    """The project, weighted by quota in these pools, where over-quota weights are disabled."""
    figures = {
        pool: _weighed_by_quota(quota) if pool in pools else quota
        for pool, quota in view.pools.items()
    }
    return replace(view, pools=figures)


def with_past_use(view: QueueView, used: Mapping[str, Amounts]) -> QueueView:
    """The queue with its past use by node pool."""
    pools = dict(view.pools)
    for pool, amounts in used.items():
        quota = pools.get(pool, PoolQuota())
        gpu, cpu, memory = (
            replace(figures, usage_ppm=ppm)
            for figures, ppm in zip(quota.figures, amounts, strict=True)
        )
        pools[pool] = PoolQuota(gpu, cpu, memory, quota.rank)
    return replace(view, pools=pools)
