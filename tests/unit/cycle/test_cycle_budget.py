"""A cycle's budget is CPU time of its stages, so a busy machine does not shorten cycles."""

import time

from extender.cycle.cycle_budget import CycleBudget


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
