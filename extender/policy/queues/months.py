"""Monthly budgets of GPU-hours: how much a project may hold once its budget is used.

Until the month ends, a project that has used its budget may hold the larger of its quota and its
current allocation. So a budget evicts no running pod, but above the quota no new pod starts when
one ends.
"""

from extender.api.months import PER_GPU_HOUR, format_gpu_hours
from extender.api.units import count_gpus
from extender.state.model import Figures, MonthHours


def bound_of(figures: Figures, allocated_milli: int, now_s: int) -> int | None:
    """The most that the project may hold, in milli-GPU; None if no budget lowers its limit."""
    if figures.month is None or not figures.month.is_spent_at(now_s):
        return None
    bound = max(figures.quota, allocated_milli)
    return bound if bound < figures.limit else None


def spent_sentence(month: MonthHours, quota_milli: int) -> str:
    """The predicate of the message for a project that may not hold more."""
    if not month.budget:
        quota = count_gpus(quota_milli)
        return f"has a budget of 0 GPU-hours, so it borrows nothing above its quota of {quota}"
    return (
        f"has used {format_gpu_hours(month.used)} of its {month.budget // PER_GPU_HOUR} GPU-hours"
        f" of {month.month}, so it borrows nothing above its quota of {count_gpus(quota_milli)}"
        " until the month ends"
    )
