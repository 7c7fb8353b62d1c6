"""The status of projects' GPU-hour budgets: what is used, and whether any is left.

Decisions read what is written here, because the status outlives the leader and `ballast view` has
it too. Until a new leader has read the usage books, the status of this month stays as it was.
"""

from collections.abc import Mapping, Sequence

from extender.api.kinds import GpuProject, MonthUse
from extender.api.months import PER_GPU_HOUR, format_gpu_hours, month_of
from extender.api.objects import Condition
from extender.api.reasons import Reason
from extender.cycle.reports.conditions import WITHIN_BUDGET, condition

#: By project and node pool, in milli-GPU-seconds; None: not known.
Used = Mapping[tuple[str, str], int] | None


def month_uses(project: GpuProject, used: Used, now_s: int) -> dict[str, MonthUse]:
    """What the project has used this month, by node pool with a budget; unknown use is left out."""
    month, name = month_of(now_s), project.metadata.name
    stored = {use.name: use.month for use in project.status.node_pools}
    found = {}
    for pool in _budgets(project):
        before = stored.get(pool)
        if used is not None:
            milli_s = used.get((name, pool), 0)
            found[pool] = MonthUse(
                month=month, gpu_hours=format_gpu_hours(milli_s), milli_gpu_seconds=milli_s
            )
        elif isinstance(before, MonthUse) and before.month == month:
            found[pool] = before
    return found


def within_budget(
    project: GpuProject, uses: Mapping[str, MonthUse], before: Sequence[Condition]
) -> list[Condition]:
    """Whether the project may borrow, as a condition; none for a project without a budget."""
    budgets = _budgets(project)
    if not budgets:
        return []
    known = {pool: use for pool, use in uses.items() if pool in budgets}
    spent = {pool: "a budget of 0 GPU-hours" for pool, hours in budgets.items() if not hours}
    for pool, use in known.items():
        hours = budgets[pool]
        if hours and use.milli_gpu_seconds >= hours * PER_GPU_HOUR:
            spent[pool] = f"used {use.gpu_hours} of {hours} GPU-hours of {use.month}"
    if spent:
        sentence = "; ".join(f"{pool}: {why}, borrows nothing more" for pool, why in spent.items())
        return [condition(WITHIN_BUDGET, False, Reason.OVER_BUDGET, sentence, before)]
    if len(known) < len(budgets):
        return [condition(WITHIN_BUDGET, None, Reason.USAGE_UNKNOWN, "", before)]
    return [condition(WITHIN_BUDGET, True, Reason.WITHIN_BUDGET, "", before)]


def _budgets(project: GpuProject) -> dict[str, int]:
    """GPU-hours per month by node pool; if a pool is listed twice, the first entry counts."""
    return {
        figures.name: figures.gpu.gpu_hours_per_month
        for figures in reversed(project.spec.node_pools)
        if figures.gpu.gpu_hours_per_month is not None
    }
