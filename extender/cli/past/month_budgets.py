"""How much of their current GPU-hour budgets projects have used, for `ballast report usage`."""

from collections.abc import Iterable, Iterator

from extender.api.kinds import GpuProject, GpuUsageSpec
from extender.api.months import PER_GPU_HOUR, format_gpu_hours
from extender.cli.terminal.output import plain
from extender.usage.record import PROJECT


def budget_lines(records: Iterable[GpuUsageSpec], projects: Iterable[GpuProject]) -> Iterator[str]:
    """A sentence for each budget: its usage according to the records of a month."""
    held: dict[tuple[str, str], int] = {}
    for record in records:
        for line in record.lines if record.account == PROJECT else ():
            key = record.name, line.node_pool
            held[key] = held.get(key, 0) + sum(line.held)
    for project in sorted(projects, key=lambda each: each.metadata.name):
        for figures in project.spec.node_pools:
            budget = figures.gpu.gpu_hours_per_month
            if budget is None:
                continue
            name = project.metadata.name
            used = held.get((name, figures.name), 0)
            part = f" ({100 * used // (budget * PER_GPU_HOUR)} %)" if budget else ""
            yield plain(
                f"{name} has used {format_gpu_hours(used)} of its {budget} GPU-hours in node pool"
                f" {figures.name}{part}"
            )
