"""What projects say of their budgets of GPU-hours: what is used of them, and whether any is left.

What is written here is what decisions read: the status outlives the leader, and `ballast view` has
it too. Until a new leader has read the usage books, what an earlier one wrote of this month stays.
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
    """By node pool with a budget, what the project has used this month; not what is not known."""
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
    """The condition that tells whether the project may borrow; none for one without a budget."""
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
    """GPU-hours of a month by node pool; of a pool that is listed twice the first counts."""
    return {
        figures.name: figures.gpu.gpu_hours_per_month
        for figures in reversed(project.spec.node_pools)
        if figures.gpu.gpu_hours_per_month is not None
    }
