"""Conditions of projects about their GPU-hour budgets."""

from msgspec.structs import replace

from extender.api.kinds import GpuProject, MonthUse, PoolUse, QueueStatus
from extender.api.months import PER_GPU_HOUR
from extender.cycle.reports.budgets import month_uses, within_budget
from tests.support.builders import project

#: In November 2026.
NOW_S = 1_795_000_000
KEY = ("p", "default")


def budgeted() -> GpuProject:
    return project("p").quota(1, gpu_hours=10).build()


def told(of: GpuProject, used: dict[tuple[str, str], int] | None) -> tuple[str, str]:
    uses = month_uses(of, used, NOW_S)
    (found,) = within_budget(of, uses, [])
    return found.status, found.reason


def stored(month: str, milli_s: int) -> GpuProject:
    use = MonthUse(month=month, gpu_hours="11.0", milli_gpu_seconds=milli_s)
    return replace(budgeted(), status=QueueStatus(node_pools=[PoolUse(name="default", month=use)]))


def test_use_of_the_month_is_reported_in_hours_and_exactly() -> None:
    use = month_uses(budgeted(), {KEY: 5 * PER_GPU_HOUR + 400_000}, NOW_S)["default"]
    assert (use.month, use.gpu_hours) == ("2026-11", "5.1")
    assert use.milli_gpu_seconds == 5 * PER_GPU_HOUR + 400_000


def test_condition_says_whether_any_is_left() -> None:
    assert told(budgeted(), {}) == ("True", "WithinBudget")
    assert told(budgeted(), {KEY: 10 * PER_GPU_HOUR - 1}) == ("True", "WithinBudget")
    assert told(budgeted(), {KEY: 10 * PER_GPU_HOUR}) == ("False", "OverBudget")


def test_without_books_nothing_is_known_and_the_condition_says_so() -> None:
    assert month_uses(budgeted(), None, NOW_S) == {}
    assert told(budgeted(), None) == ("Unknown", "UsageUnknown")


def test_budget_of_no_hours_is_used_before_the_books_are_read() -> None:
    none = project("p").quota(1, gpu_hours=0).build()
    (found,) = within_budget(none, {}, [])
    assert (found.status, found.reason) == ("False", "OverBudget")
    assert found.message == "default: a budget of 0 GPU-hours, borrows nothing more"


def test_new_leader_keeps_what_the_last_one_wrote_of_this_month() -> None:
    of_now = stored("2026-11", 11 * PER_GPU_HOUR)
    assert month_uses(of_now, None, NOW_S)["default"].milli_gpu_seconds == 11 * PER_GPU_HOUR
    assert told(of_now, None) == ("False", "OverBudget")
    assert told(stored("2026-10", 11 * PER_GPU_HOUR), None) == ("Unknown", "UsageUnknown")


def test_message_names_pool_use_and_budget() -> None:
    uses = month_uses(budgeted(), {KEY: 12 * PER_GPU_HOUR}, NOW_S)
    (found,) = within_budget(budgeted(), uses, [])
    assert found.message == ("default: used 12.0 of 10 GPU-hours of 2026-11, borrows nothing more")


def test_project_without_a_budget_says_nothing() -> None:
    plain = project("p").quota(1).build()
    assert month_uses(plain, {KEY: 1}, NOW_S) == {}
    assert within_budget(plain, {}, []) == []
