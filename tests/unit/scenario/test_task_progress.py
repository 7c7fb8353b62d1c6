"""The cost of stopping a task that saves its state every half hour."""

from hypothesis import given
from hypothesis import strategies as st

from extender.scenario.longrun.work import TaskProgress

MINUTE = 60
EVERY_S = 30 * MINUTE
RESTART_S = MINUTE


def of(run_s: int) -> TaskProgress:
    return TaskProgress(run_s, EVERY_S, RESTART_S)


def start(work: TaskProgress, now_s: int) -> int:
    end_s = work.start(now_s)
    assert end_s is not None
    return end_s


def test_a_job_that_is_left_alone_ends_after_its_run_time() -> None:
    work = of(5000)
    assert work.start(100) == 5100
    assert work.finish(5100) == 0
    assert work.held_s == 5000


def test_a_stopped_job_goes_on_from_its_last_checkpoint() -> None:
    work = of(120 * MINUTE)
    work.start(0)
    assert work.stop(75 * MINUTE) == 15 * MINUTE
    # 60 minutes are saved, 60 are left, and loading takes one.
    assert work.start(1000 * MINUTE) == (1000 + 1 + 60) * MINUTE


def test_a_job_stopped_before_its_first_checkpoint_starts_over() -> None:
    work = of(120 * MINUTE)
    work.start(0)
    assert work.stop(29 * MINUTE) == 29 * MINUTE
    assert work.start(0) == 121 * MINUTE


def test_loading_is_no_work() -> None:
    work = of(120 * MINUTE)
    work.start(0)
    work.stop(0)
    work.start(0)
    assert work.stop(30 * MINUTE) == 30 * MINUTE
    assert work.saved_s == 0
    work.start(0)
    assert work.stop(31 * MINUTE) == MINUTE
    assert work.saved_s == EVERY_S


@given(st.integers(1, 20_000), st.lists(st.integers(0, 8000), max_size=8))
def test_what_was_held_is_work_and_what_was_lost(run_s: int, stops_after_s: list[int]) -> None:
    work, now_s, lost_s = of(run_s), 0, 0
    end_s = start(work, now_s)
    for after_s in stops_after_s:
        if now_s + after_s >= end_s:
            break
        now_s += after_s
        lost_s += work.stop(now_s)
        end_s = start(work, now_s)
    lost_s += work.finish(end_s)
    assert work.held_s - run_s == lost_s
    assert work.held_s == end_s
    assert 0 <= lost_s <= work.n_stops * (EVERY_S + RESTART_S)
