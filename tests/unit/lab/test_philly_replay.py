"""Small replays end to end: decisions over a few jobs, with times that can be verified."""

import pytest

from extender.lab.philly.cluster import pod_sizes
from extender.lab.philly.rules import RULES, ReplayPace
from tests.unit.lab.philly_jobs import HOUR, job, replay, trace, waits_h


def test_a_job_runs_at_once_where_there_is_room() -> None:
    found = replay(trace([job("a", 0, 2, 8)], a=1), "fifo-skip")
    assert [record.completion_s for record in found.records] == [2 * HOUR]
    assert waits_h(found) == [0]


def test_a_job_waits_until_another_ends() -> None:
    found = replay(trace([job("a", 0, 2, 8), job("a", 1, 1, 1)], a=1), "fifo-skip")
    assert waits_h(found) == [0, 1]


def test_first_come_first_served_with_skip_lets_small_jobs_pass() -> None:
    jobs = [job("a", 0, 4, 4), job("a", 1, 1, 8), job("a", 2, 1, 4)]
    assert waits_h(replay(trace(jobs, a=1), "fifo-skip")) == [0, 3, 0]


def test_the_oracle_serves_the_shortest_first() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 1, 3, 8), job("a", 2, 1, 8)]
    assert waits_h(replay(trace(jobs, a=1), "sjf")) == [0, 4, 2]


def test_a_private_partition_is_not_lent() -> None:
    jobs = [job("a", 0, 2, 8), job("a", 0, 2, 8), job("b", 1, 1, 8)]
    assert waits_h(replay(trace(jobs, a=1, b=1), "private")) == [0, 2, 0]
    assert waits_h(replay(trace(jobs, a=1, b=1), "fifo-skip")) == [0, 0, 1]


def test_a_job_of_more_than_a_node_takes_whole_nodes_and_a_remainder() -> None:
    assert pod_sizes(20) == [8, 8, 4]
    assert pod_sizes(16) == [8, 8]
    assert pod_sizes(3) == [3]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    jobs = [job("a", 0, 2, 1), job("a", 1, 1, 16)]
    assert waits_h(replay(trace(jobs, a=2), "fifo-skip")) == [0, 1]


def test_reclaim_stops_what_is_over_quota_and_it_comes_back_from_its_checkpoint() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1.25, 1, 8)]
    found = replay(trace(jobs, a=1, b=1), "fairshare+reclaim")
    assert [(stop.beneficiary, stop.is_move) for stop in found.stops] == [("philly/00002-b", False)]
    stopped = next(record for record in found.records if record.work.n_stops)
    # 75 minutes of work, 60 of them saved; an hour of waiting; a minute to load.
    lost_s = stopped.work.held_s - stopped.job.run_s
    assert lost_s == 15 * 60 + 60
    assert stopped.wait_s == HOUR
    assert found.meter.lost_gpu_s == 8 * lost_s
    assert [record.wait_s for record in found.records if not record.work.n_stops] == [0, 0]


def test_what_has_just_saved_its_work_is_stopped_where_the_pool_says_how_often() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0.6, 4, 8), job("b", 1.6, 1, 8)]
    for checkpoint_s, ran_s in ((0, 60 * 60), (1800, 96 * 60)):
        pace = ReplayPace(0, checkpoint_s=checkpoint_s)
        found = replay(trace(jobs, a=1, b=1), "fairshare+reclaim", pace)
        assert [stop.ran_s for stop in found.stops] == [ran_s]


def test_a_job_is_safe_for_the_time_that_was_asked_for() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1, 1, 8)]
    found = replay(
        trace(jobs, a=1, b=1), "fairshare+reclaim", ReplayPace(0, min_runtime_s=2 * HOUR)
    )
    assert [stop.ran_s for stop in found.stops] == [2 * HOUR]
    assert waits_h(found)[2] == 1


def test_a_job_waits_as_long_as_was_asked_for_before_others_are_stopped() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1, 1, 8)]
    found = replay(
        trace(jobs, a=1, b=1), "fairshare+reclaim", ReplayPace(0, preemption_delay_s=600)
    )
    assert waits_h(found)[2] == 600 / HOUR


def test_a_job_of_a_queue_in_which_others_wait_in_vain_brings_no_cycle_of_its_own() -> None:
    jobs = [job("a", 0, 4, 8), job("b", 0, 4, 8), job("a", 1, 1, 8)]
    few = replay(trace(jobs, a=1, b=1), "fairshare+reclaim", ReplayPace(0, preemption_delay_s=600))
    more = [*jobs, job("a", 1.1, 1, 8), job("a", 1.2, 1, 8)]
    found = replay(
        trace(more, a=1, b=1), "fairshare+reclaim", ReplayPace(0, preemption_delay_s=600)
    )
    # One cycle for each of the two that runs later, and none for its patience.
    assert found.n_cycles - few.n_cycles <= 3


def test_above_its_quota_a_tenant_takes_only_what_it_lacks_beyond_the_band() -> None:
    jobs = [job("a", 0, 4, 1) for _ in range(32)] + [job("b", 1, 1, 1) for _ in range(16)]
    of = trace(jobs, a=1, b=1, c=2)
    assert len(replay(of, "fairshare+reclaim").stops) == 16
    # A quarter of its share of 16 is left to the tenants that have it.
    assert len(replay(of, "fairshare+reclaim", ReplayPace(0, reclaim_band_percent=25)).stops) == 12


def test_without_reclaim_nobody_is_stopped() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1, 1, 8)]
    found = replay(trace(jobs, a=1, b=1), "fairshare")
    assert not found.stops
    assert waits_h(found) == [0, 0, 3]


def test_a_cycle_waits_for_its_period_after_the_last_one() -> None:
    jobs = [job("a", 0, 1, 1), job("a", 10 / HOUR, 1, 1), job("a", 1000 / HOUR, 1, 1)]
    found = replay(trace(jobs, a=1), "fifo-skip", ReplayPace(cycle_s=60))
    assert [record.wait_s for record in found.records] == [0, 50, 0]


def test_cycles_that_can_change_nothing_are_left_out() -> None:
    jobs = [job("a", 0, 2, 8), *(job("a", 1, 1, 8) for _ in range(20))]
    found = replay(trace(jobs, a=1), "fifo-skip")
    assert found.n_cycles == 21


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_the_same_trace_has_the_same_outcome(rule: str) -> None:
    of = trace(
        [
            job("ab"[number % 2], number * number % 7 / 3, 1 + number % 3, 1 + number * 5 % 8)
            for number in range(40)
        ],
        a=2,
        b=1,
    )
    first, second = replay(of, rule), replay(of, rule)
    assert waits_h(first) == waits_h(second)
    assert first.stops == second.stops
    assert first.meter == second.meter
    assert all(record.work.held_s >= record.job.run_s for record in first.records)
