"""Budgets of projects, and the usage of the month from their status."""

from msgspec.structs import replace

from extender.api.kinds import GpuNodePool, GpuProject, MonthUse, PoolUse, QueueStatus
from extender.api.months import PER_GPU_HOUR
from extender.state.model import MonthHours
from extender.state.queues import Queues
from tests.support.builders import department, pool, project

NOV_S = 1_795_000_000


def used(told: GpuProject, milli_s: int, month: str = "2026-11") -> GpuProject:
    use = MonthUse(month=month, gpu_hours="", milli_gpu_seconds=milli_s)
    status = QueueStatus(node_pools=[PoolUse(name="default", month=use)])
    return replace(told, status=status)


def month_of(queues: Queues, name: str = "p") -> MonthHours | None:
    return queues.project_views[name].pools["default"].gpu.month


def test_budget_without_a_status_is_of_no_known_month() -> None:
    queues = Queues()
    queues.set_project(project("p").quota(1, gpu_hours=10).build())
    month = month_of(queues)
    assert month == MonthHours(10 * PER_GPU_HOUR)
    assert not month.is_known_at(NOV_S)
    assert not month.is_spent_at(NOV_S)


def test_change_of_the_status_alone_is_taken() -> None:
    queues = Queues()
    built = project("p").quota(1, gpu_hours=10).build()
    queues.set_project(built)
    queues.set_project(used(built, 10 * PER_GPU_HOUR))
    month = month_of(queues)
    assert month is not None
    assert month.is_spent_at(NOV_S)
    assert not month.is_spent_at(NOV_S + 40 * 86_400)
    queues.set_project(used(built, 10 * PER_GPU_HOUR - 1))
    again = month_of(queues)
    assert again is not None
    assert not again.is_spent_at(NOV_S)


def test_budget_that_is_taken_away_is_gone() -> None:
    queues = Queues()
    queues.set_project(used(project("p").quota(1, gpu_hours=10).build(), 1))
    queues.set_project(project("p").quota(1).build())
    assert month_of(queues) is None


def test_budget_holds_where_weights_are_off() -> None:
    queues = Queues()
    queues.set_pool(replace_weights())
    queues.set_project(used(project("p").quota(1, gpu_hours=10).build(), 5))
    month = queues.views()["p"].pools["default"].gpu.month
    assert month == MonthHours(10 * PER_GPU_HOUR, 5, "2026-11")


def replace_weights() -> GpuNodePool:
    built = pool("default").build()
    return replace(built, spec=replace(built.spec, over_quota_weights="Disabled"))


def test_budget_of_a_department_has_no_effect_and_is_reported() -> None:
    queues = Queues()
    queues.set_department(department("d").quota(8, gpu_hours=10).build())
    assert queues.department_views["department/d"].pools["default"].gpu.month is None
    (problem,) = (each for each in queues.problems() if each.fault == "InvalidFigures")
    assert "gpuHoursPerMonth: has no effect" in problem.text
