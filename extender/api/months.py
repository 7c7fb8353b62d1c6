"""Calendar months in UTC: the periods of GPU-hour budgets."""

from datetime import UTC, datetime
from typing import Final

#: Milli-GPU-seconds in a GPU-hour.
PER_GPU_HOUR: Final = 3_600_000


def month_of(unix_s: int) -> str:
    """The month of this time, such as 2026-10."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m")


def format_gpu_hours(milli_s: int) -> str:
    """Milli-GPU-seconds as GPU-hours with one decimal, rounded down."""
    tenths = milli_s * 10 // PER_GPU_HOUR
    return f"{tenths // 10}.{tenths % 10}"
