"""Sums of a month from the records."""

from extender.api.kinds import GpuUsageSpec, UsageLine
from extender.usage.month_use import MonthUse

#: 2026-10-15 12:00 UTC.
OCTOBER_S = 1_792_065_600


def record(day: str, name: str = "a", account: str = "Project", **pools: int) -> GpuUsageSpec:
    lines = [
        UsageLine(user=user, node_pool=pool, model="x", held=[held, *[0] * 23])
        for pool, held in pools.items()
        for user in ("ann", "bo")
    ]
    return GpuUsageSpec(account=account, name=name, day=day, lines=lines)  # type: ignore[arg-type]


def test_days_users_and_pools_are_summed_up_and_other_months_are_not() -> None:
    month = MonthUse()
    month.note(record("2026-10-01", x=10, y=1))
    month.note(record("2026-10-02", x=5))
    month.note(record("2026-09-30", x=100))
    month.note(record("2026-10-01", account="NodePool", x=1000))
    assert month.used(OCTOBER_S) == {("a", "x"): 30, ("a", "y"): 2}


def test_record_that_was_written_again_counts_once() -> None:
    month = MonthUse()
    month.note(record("2026-10-01", x=10))
    month.note(record("2026-10-01", x=12))
    assert month.used(OCTOBER_S) == {("a", "x"): 24}


def test_new_month_begins_at_nothing() -> None:
    month = MonthUse()
    month.note(record("2026-09-30", x=10))
    assert month.used(OCTOBER_S) == {}
    month.forget_before("2026-10")
    assert month.used(OCTOBER_S - 30 * 86_400) == {}
