"""The figures of tiny replays, computed by hand."""

from pathlib import Path

import pytest

from extender.lab.philly.figures import (
    count_ping_pongs,
    count_repeats,
    jain_index,
    percentile,
    summarise,
)
from extender.lab.philly.replay import Stop
from extender.lab.philly.rules import ReplayPace
from extender.lab.philly.shares import Moment, moments
from extender.lab.philly.trace import load_trace
from tests.unit.lab.philly_jobs import job, replay, trace

DAY = (1, 1)


def test_allocation_and_idle_gpus_are_over_the_steady_days() -> None:
    # 8 of 16 GPUs for 12 of 24 hours; a gang of two nodes waits while they run.
    of = trace([job("a", 0, 12, 8), job("a", 0, 6, 16)], days=DAY, a=2)
    outcome = replay(of, "fifo-skip")
    found = summarise(outcome, outcome)
    assert found.alloc_pct == pytest.approx(100 * (8 * 12 + 16 * 6) / (16 * 24))
    assert found.idle_pending_pct == pytest.approx(100 * 8 * 12 / (16 * 24))
    assert found.useful_pct == found.alloc_pct
    assert (found.wait_over_8_h, found.wait_8_h) == (12, 0)


def test_deprived_is_what_is_kept_from_a_tenant_within_its_quota() -> None:
    # b has a quota of 8 and wants 16: it is owed 8 for the three hours that it waits.
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1, 1, 8), job("b", 1, 1, 8)]
    of = trace(jobs, days=DAY, a=1, b=1)
    found = summarise(replay(of, "fairshare"), replay(of, "private"))
    assert found.deprived_gpu_h == pytest.approx(3 * 8)
    assert [tenant.deprived_gpu_h for tenant in found.tenants] == [0, 24]


def test_fairness_is_beside_a_private_partition() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1, 1, 8)]
    of = trace(jobs, days=DAY, a=1, b=1)
    found = summarise(replay(of, "fifo-skip"), replay(of, "private"))
    # Alone: 4, 8 and 1 hours. Shared: 4, 4 and 4.
    assert found.unfair_pct == pytest.approx(100 / 3)
    assert found.rho_max == 4
    assert [tenant.mean_wait_h for tenant in found.tenants] == [0, 3]
    assert found.worse_tenants == 0, "one job says nothing about a mean"


def test_a_tenant_with_many_jobs_that_wait_longer_is_worse_off() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), *(job("b", 1, 0.01, 1) for _ in range(100))]
    of = trace(jobs, days=DAY, a=1, b=1)
    found = summarise(replay(of, "fifo-skip"), replay(of, "private"))
    assert (found.worse_tenants, found.counted_tenants) == (1, 1)


def test_useful_is_what_was_not_lost() -> None:
    jobs = [job("a", 0, 4, 8), job("a", 0, 4, 8), job("b", 1.25, 1, 8)]
    of = trace(jobs, days=DAY, a=1, b=1)
    found = summarise(replay(of, "fairshare+reclaim"), replay(of, "private"))
    assert found.lost_gpu_h == pytest.approx(8 * 16 / 60)
    assert found.useful_gpu_h == pytest.approx(8 * (4 + 4 + 1))
    assert (found.evictions, found.moves) == (1, 0)


def test_a_percentile_is_a_value_that_occurs() -> None:
    assert percentile([1, 2, 3, 4], 50) == 2
    assert percentile(list(range(1, 101)), 99) == 99
    assert percentile([7], 99) == 7


def test_a_second_stop_within_the_hour_is_a_repeat() -> None:
    stops = [Stop(at_s, "x", "y", False) for at_s in (0, 3600, 7201)]
    assert count_repeats(stops) == 1


def test_two_jobs_that_stop_each_other_play_ping_pong() -> None:
    stops = [Stop(0, "x", "y", False), Stop(9, "y", "x", False), Stop(9, "y", "z", False)]
    assert count_ping_pongs(stops) == 1
    assert count_ping_pongs([Stop(0, "x", "y", True), Stop(9, "y", "x", False)]) == 0


def test_entitlement_is_quota_and_then_a_part_of_what_others_leave() -> None:
    jobs = [job("a", 0.5, 1, 16), *(job("b", 0.5, 1, 8) for _ in range(3))]
    of = trace(jobs, days=DAY, a=2, b=1)
    found = list(moments(of, replay(of, "fifo-skip").meter.samples))
    assert [moment.entitled for moment in found[:2]] == [(16, 8), (0, 16)]
    assert [moment.held for moment in found[:2]] == [(16, 8), (0, 16)]


def test_jains_index_falls_when_one_has_what_others_lack() -> None:
    assert jain_index(Moment(0, (8, 8), (8, 8))) == 1
    assert jain_index(Moment(0, (4, 8, 0), (4, 8, 0))) == 1
    assert jain_index(Moment(0, (16, 0), (8, 8))) == 0.5
    assert jain_index(Moment(0, (0, 0), (8, 8))) is None


def test_the_fairness_error_is_what_is_lacking_of_fair_shares() -> None:
    # At each of the three full hours in between, b lacks the 8 GPUs that it is entitled to.
    jobs = [job("a", 0.5, 3, 16), job("b", 0.5, 1, 8)]
    of = trace(jobs, days=DAY, a=1, b=1)
    found = summarise(replay(of, "fifo-skip"), replay(of, "fifo-skip"))
    assert found.fairness_error_gpu_h == 3 * 8


def test_some_days_of_the_published_extract_fare_better_than_alone(shared: Path) -> None:
    of = load_trace(shared / "traces" / "philly", 64, (15, 17))
    private = replay(of, "private", ReplayPace(cycle_s=60))
    found = summarise(replay(of, "ballast", ReplayPace(cycle_s=60)), private)
    assert found.jobs == len(of.jobs)
    assert found.mean_wait_h < summarise(private, private).mean_wait_h
    assert 0 < found.useful_pct <= found.alloc_pct <= 100
    assert found.ping_pongs == 0
