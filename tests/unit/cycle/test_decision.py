"""A cycle's budget is CPU time of its stages, so a busy machine does not shorten cycles.

The time of each stage is measured, and stages run in order.
"""

import time
from collections.abc import Iterator

from prometheus_client import REGISTRY

from extender.cycle.decision import CycleBudget, StageClock
from extender.policy.decide import decide
from extender.policy.plan import ALL_STAGES, Settings, Stage
from tests.support.snapshots import Cluster


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_comes_before_the_first_stage_is_free() -> None:
    clock = Clock()
    budget = CycleBudget(1.0, clock)
    clock.now_s = 60.0
    assert not budget.is_spent()
    budget.start()
    assert not budget.is_spent()


def test_all_stages_share_one_budget() -> None:
    clock = Clock()
    budget = CycleBudget(1.0, clock)
    for now_s in (0.0, 0.9):
        clock.now_s = now_s
        budget.start()
        assert not budget.is_spent()
    clock.now_s = 1.1
    assert budget.is_spent()


def test_waiting_for_a_core_spends_nothing_and_computing_does() -> None:
    budget = CycleBudget(0.02)
    budget.start()
    time.sleep(0.1)
    assert not budget.is_spent()
    for _ in range(10_000_000):
        if budget.is_spent():
            break
    assert budget.is_spent()


def counted(stage: str, figure: str) -> float:
    """What the metric says now."""
    name = f"ballast_control_stage_duration_seconds_{figure}"
    return REGISTRY.get_sample_value(name, {"stage": stage}) or 0.0


def ticking(*times: float) -> Iterator[float]:
    yield from times


def test_each_stage_has_the_time_until_the_next_begins() -> None:
    stages = ("prepare", "allocate", "reclaim")
    before = {stage: counted(stage, "sum") for stage in stages}
    times = ticking(10.0, 11.0, 13.0, 17.0)
    clock = StageClock(lambda: next(times))
    clock.enter("allocate")
    clock.enter("reclaim")
    clock.stop()
    took = [counted(stage, "sum") - before[stage] for stage in stages]
    assert took == [1.0, 2.0, 4.0]


def test_a_cycle_enters_every_stage_once_in_order() -> None:
    cluster = Cluster()
    cluster.node("n0")
    cluster.project("p", quota=8)
    cluster.job("j", "p")
    entered: list[Stage] = []
    decide(cluster.snapshot(), Settings(enter=entered.append))
    assert tuple(entered) == ALL_STAGES


def test_a_cycle_enters_only_the_stages_that_it_is_to_run() -> None:
    entered: list[Stage] = []
    decide(Cluster().snapshot(), Settings(stages=("reclaim",), enter=entered.append))
    assert entered == ["reclaim"]
