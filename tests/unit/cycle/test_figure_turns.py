"""Statuses of queues: conditions at once, figures in turns."""

from typing import Any

from msgspec.structs import replace

from extender.api.kinds import MonthUse, PoolUse, QueueStatus, QueueSummary
from extender.api.objects import Condition
from extender.cycle.reports.figure_turns import MOST_FIGURES, NewStatus, due

BEFORE = QueueStatus(
    gpu=QueueSummary(quota="4", allocated="1"),
    node_pools=[PoolUse(name="default", quota="4", fair_share="4", allocated="1")],
    conditions=[Condition(type="Valid", status="True")],
)
FIGURES = replace(BEFORE, gpu=replace(BEFORE.gpu, allocated="2", pending_pods=3))


def pool(**changed: Any) -> QueueStatus:
    return replace(FIGURES, node_pools=[replace(BEFORE.node_pools[0], **changed)])


def test_figures_of_many_queues_take_turns_the_longest_written_ago_first() -> None:
    new = [NewStatus(at, FIGURES, BEFORE, float(at)) for at in reversed(range(1_000))]
    assert [each.target for each in due(new, 2.0)] == list(range(20))
    assert len(due(new, float("inf"))) == MOST_FIGURES


def test_what_programs_act_on_waits_for_no_turn() -> None:
    month = MonthUse(month="2026-11", gpu_hours="1.0", milli_gpu_seconds=1)
    stated = {
        "new": NewStatus("new", FIGURES, None),
        "condition": NewStatus("condition", replace(FIGURES, conditions=[]), BEFORE),
        "spec": NewStatus("spec", replace(FIGURES, observed_generation=2), BEFORE),
        "quota": NewStatus("quota", pool(quota="5"), BEFORE),
        "month": NewStatus("month", pool(month=month), BEFORE),
    }
    figures = [NewStatus("figures", FIGURES, BEFORE)] * 100
    assert [each.target for each in due([*figures, *stated.values()], 0.0)] == list(stated)


def test_another_fair_share_comes_before_other_figures() -> None:
    """The extender admits pods without a gate by it."""
    new = [NewStatus("figures", FIGURES, BEFORE)] * 10
    new.append(NewStatus("share", pool(fair_share="3"), BEFORE, written_at=9.0))
    assert due(new, 0.1)[0].target == "share"
