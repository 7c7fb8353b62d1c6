"""The columns of `ballast queue` and `ballast shares`."""

from typing import Final

from extender.api.units import format_age
from extender.cli.questions import forecasts
from extender.cli.terminal.show import Answer, Column, Listing


def _waited(item: Answer) -> str:
    return format_age(item["waitsSince"]) if item.get("waitsSince") else "-"


def _forecast(item: Answer) -> str:
    forecast = item.get("forecast")
    return forecasts.in_short(forecast) if forecast else "-"


def _queue_name(item: Answer) -> str:
    kind = "pod" if item.get("pods") == 1 and not item.get("isGroup") else "gpupodgroup.ballast.dev"
    named = item.get("workload", "").partition("/")[2]
    return f"{kind}/{named}" if named else f"gpuproject.ballast.dev/{item['project']}"


QUEUE: Final = Listing(
    (
        Column("POS", lambda item: item["position"] or "-"),
        Column("WORKLOAD", "workload"),
        Column("PROJECT", "project"),
        Column("USER", "user", is_sparse=True),
        Column("GPUS", lambda item: item.get("gpuMemory") or item["request"]),
        Column("PODS", "pods"),
        Column("KIND", "workKind"),
        Column("PRIORITY", "priority", is_wide=True),
        Column("WAITED", _waited),
        Column("REASON", "reason", style=lambda item: "red" if item.get("never") else ""),
        Column("FORECAST", _forecast),
        Column("MESSAGE", "message", is_wide=True, folds=True),
    ),
    _queue_name,
    "Nothing waits.",
)


def _share_queue(item: Answer) -> str:
    indent = "  " if item.get("parent") else ""
    return f"{indent}{item['queue'].removeprefix('department/')}"


def _share_name(item: Answer) -> str:
    kind, slash, named = item["queue"].rpartition("/")
    return f"gpu{kind}.ballast.dev/{named}" if slash else f"gpuproject.ballast.dev/{named}"


def _gpu_hours(item: Answer) -> str:
    """Used GPU-hours and the budget of the month."""
    budget = item.get("gpuHoursPerMonth")
    return "-" if budget is None else f"{item.get('gpuHoursUsed') or '?'}/{budget}"


SHARES: Final = Listing(
    (
        Column("QUEUE", _share_queue),
        Column("POOL", "nodePool"),
        Column("QUOTA", "quota"),
        Column("LIMIT", "limit"),
        Column("FAIR SHARE", "fairShare"),
        Column("HELD", "held"),
        Column("BORROWED", "borrowed"),
        Column("WAITING", "waiting"),
        Column("GPU-HOURS", _gpu_hours, is_sparse=True),
        Column("DEPARTMENT", lambda item: item.get("parent", "").removeprefix("department/") or "-",
               is_wide=True),
    ),
    _share_name,
    "There are no projects.",
)  # fmt: skip
