"""Backfill reservations: a blocked big workload is not starved, what passes it does not delay it,
and cards stand idle for it within bounds."""

from dataclasses import replace

import pytest

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.placement.reservations import LONGEST_S, drain_window
from tests.support.snapshots import Cluster, allocated, statuses


def one_node(free: int, **running: int) -> Cluster:
    """A node of eight GPUs: one pod holds what isn't free; it may say how long it runs."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 8)
    cluster.job("old", "a", 8 - free, on="n0", ran=100, **running)
    return cluster


def test_small_work_of_unknown_length_does_not_take_what_a_blocked_gang_needs() -> None:
    cluster = one_node(4, run=1000)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("small", "a", age=100)
    plan = allocated(cluster)
    assert not statuses(plan)
    refused = plan.waits["ns/small"]
    assert refused.reason is Reason.WAITING_FOR_TURN
    assert "its project's share has no room for it beside ns/gang" in refused.detail


def test_no_place_is_said_to_be_kept_where_no_card_is_free() -> None:
    cluster = one_node(0, run=1000)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("small", "a", age=100)
    assert "kept" not in allocated(cluster).waits["ns/small"].detail


def test_work_that_ends_before_the_gang_can_start_may_pass() -> None:
    cluster = one_node(4, run=1000)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("short", "a", age=100, run=900)
    cluster.job("long", "a", age=90, run=901)
    assert statuses(allocated(cluster)) == {"short-0": "reserved"}


def test_nodes_that_the_gang_does_not_need_stay_open() -> None:
    cluster = one_node(4, run=1000)
    cluster.node("n1", gpus=2)
    cluster.job("gang", "a", 8, age=500)
    cluster.job("small", "a", pods=3, min=1, age=100)
    plan = allocated(cluster)
    assert statuses(plan) == {"small-0": "reserved", "small-1": "reserved"}
    assert {p.node for a in plan.admissions for p in a.placements} == {"n1"}


def test_earliest_start_counts_not_the_emptiest_node() -> None:
    cluster = Cluster()
    cluster.project("a", 16)
    cluster.node("n0", gpus=8)
    cluster.node("n1", gpus=8)
    cluster.job("late", "a", 2, on="n0", ran=100, run=10_000)
    cluster.job("soon", "a", 6, on="n1", ran=100, run=200)
    cluster.job("gang", "a", 8, age=500)
    cluster.job("small", "a", 1, pods=7, min=1, age=100)
    plan = allocated(cluster)
    assert {p.node for a in plan.admissions for p in a.placements} == {"n0"}
    assert len(statuses(plan)) == 6


def test_without_stated_ends_small_work_passes_until_the_gang_has_waited_long() -> None:
    for waited_s, is_kept in ((LONGEST_S - 1, False), (LONGEST_S, True)):
        cluster = one_node(4)
        cluster.job("gang", "a", pods=8, age=waited_s)
        cluster.job("small", "a", age=100)
        assert ("small-0" not in statuses(allocated(cluster))) is is_kept


def test_periods_without_a_stated_start_begin_when_the_waiting_time_has_doubled() -> None:
    hours = [(at, window) for at in range(24) if (window := drain_window(at * 3600))]
    four = (4 * 3600, 3600)
    eight = (8 * 3600, 2 * 3600)
    sixteen = (16 * 3600, 4 * 3600)
    assert hours == [
        (4, four),
        *((at, eight) for at in (8, 9)),
        *((at, sixteen) for at in (16, 17, 18, 19)),
    ]


def test_cards_stand_idle_for_two_fifths_of_the_waiting_time_at_most() -> None:
    n_idle = 0
    for minute in range(1, 60_000):
        n_idle += drain_window(60 * minute) is not None
        assert n_idle <= 0.4 * minute + 1


def test_places_are_not_kept_behind_a_pod_that_has_run_longer_than_the_period() -> None:
    for ran_s, is_kept in ((3600, True), (3601, False)):
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.project("a", 8)
        cluster.job("old", "a", 4, on="n0", ran=ran_s)
        cluster.job("gang", "a", pods=8, age=LONGEST_S)
        cluster.job("small", "a", age=100)
        assert ("small-0" not in statuses(allocated(cluster))) is is_kept


def test_places_are_not_kept_behind_non_preemptible_work_without_a_stated_end() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 8)
    cluster.job("notebook", "a", 4, on="n0", ran=100, kind="interactive", priority=100)
    cluster.job("gang", "a", pods=8, age=LONGEST_S)
    cluster.job("small", "a", age=100)
    assert "small-0" in statuses(allocated(cluster))


def test_work_that_can_be_taken_back_passes() -> None:
    """Reclaim takes q's work above quota, and preemption a's work of a lower priority."""
    cluster = one_node(4, run=1000)
    cluster.project("q", 0)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("other", "q", age=100)
    cluster.job("worse", "a", age=100, priority=25)
    assert set(statuses(decide(cluster.snapshot()))) == {"other-0", "worse-0"}
    # That which may not pass would preempt the lower priority at once.
    cluster.job("equal", "a", age=100)
    assert set(statuses(decide(cluster.snapshot()))) == {"other-0"}


def test_work_that_is_protected_from_reclaim_until_the_start_passes() -> None:
    for minimum_s, does_pass in ((900, True), (901, False)):
        cluster = one_node(4, run=1000)
        cluster.project("q", 0, min_runtime=minimum_s)
        cluster.job("gang", "a", pods=8, age=500)
        cluster.job("other", "q", age=100)
        assert ("other-0" in statuses(decide(cluster.snapshot()))) is does_pass


def test_work_that_cannot_be_taken_back_does_not_pass() -> None:
    """Where preemption is off nothing is taken back, and nothing that is within its quota."""
    cluster = one_node(4, run=1000)
    cluster.pools["default"] = replace(cluster.pools["default"], has_preemption=False)
    cluster.project("q", 0)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("other", "q", age=100)
    assert not statuses(decide(cluster.snapshot()))
    cluster = one_node(4, run=1000)
    cluster.project("b", 16)
    cluster.project("q", 4)
    cluster.job("gang", "b", pods=8, age=500)
    cluster.job("other", "q", 4, age=100)
    assert not statuses(decide(cluster.snapshot()))


def test_a_stated_end_far_ahead_keeps_nothing() -> None:
    for left_s, is_kept in ((LONGEST_S, True), (LONGEST_S + 1, False)):
        cluster = one_node(4, run=left_s + 100)
        cluster.job("gang", "a", pods=8, age=500)
        cluster.job("small", "a", age=100)
        assert ("small-0" not in statuses(allocated(cluster))) is is_kept


@pytest.mark.parametrize("run_s", [600, 1800, 3600])
def test_a_stream_of_small_work_does_not_starve_a_gang(run_s: int) -> None:
    """Small jobs without stated ends come all the time; the gang starts in the first period that is
    as long as they run."""
    step_s = 300
    running = [step_s * at for at in range(8)]
    for waited_s in range(0, 9 * LONGEST_S, step_s):
        running = [ran_s + step_s for ran_s in running if ran_s + step_s < run_s]
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.project("a", 8)
        for at, ran_s in enumerate(running):
            cluster.job(f"runs-{at}", "a", on="n0", ran=ran_s, age=max(1, waited_s - at))
        cluster.job("gang", "a", pods=8, age=waited_s)
        cluster.job("small", "a", pods=8, min=1, age=0)
        placed = statuses(allocated(cluster))
        if "gang-0" in placed:
            assert waited_s <= max(LONGEST_S + LONGEST_S // 4, 9 * run_s)
            return
        running += [0] * len(placed)
    raise AssertionError("the gang never started")


def test_work_beyond_its_queues_share_keeps_nothing_free() -> None:
    cluster = one_node(4, run=1000)
    cluster.project("b", 6)
    cluster.job("b-job", "b", pods=6, min=1, age=600)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("small", "a", age=100)
    placed = statuses(allocated(cluster))
    assert sum(name.startswith("b-job") for name in placed) == 4


def test_single_gpus_and_parts_keep_nothing_free() -> None:
    cluster = one_node(0, run=1000)
    cluster.job("single", "a", 1, age=500)
    cluster.node("n1", gpus=0)
    cluster.job("cpu", "a", 0, age=100)
    assert statuses(allocated(cluster)) == {"cpu-0": "reserved"}


def test_work_that_can_never_start_reserves_nothing() -> None:
    cluster = one_node(4, run=1000)
    cluster.node("n1", gpus=8)
    cluster.job("fixed", "a", 1, on="n1", ran=100)
    cluster.projects["a"] = cluster.projects["a"]
    cluster.job("gang", "a", 8, pods=2, age=500)
    cluster.job("small", "a", pods=2, min=1, age=100)
    assert len(statuses(allocated(cluster))) == 2


def test_work_that_runs_longer_than_stated_keeps_nothing() -> None:
    cluster = one_node(4, run=50)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("small", "a", age=100)
    assert set(statuses(allocated(cluster))) == {"small-0"}


def test_work_of_this_cycle_that_says_when_it_ends_is_counted_in() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 8)
    cluster.job("first", "a", 4, age=900, run=300)
    cluster.job("gang", "a", 8, age=500)
    cluster.job("short", "a", age=100, run=300)
    cluster.job("long", "a", age=90)
    assert set(statuses(allocated(cluster))) == {"first-0", "short-0"}


def test_what_is_kept_does_not_hinder_its_owner_in_later_stages() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 8)
    cluster.project("b", 0)
    cluster.job("b-job", "b", pods=4, min=1, on="n0", ran=100, run=1000)
    cluster.job("gang", "a", 8, age=500)
    plan = decide(cluster.snapshot())
    assert statuses(plan)["gang-0"] == "nominated"
    assert len(plan.evictions) == 4


def test_plan_is_the_same_in_any_order_of_the_nodes() -> None:
    cluster = Cluster()
    cluster.project("a", 24)
    for at in range(3):
        cluster.node(f"n{at}", gpus=8)
        cluster.job(f"old-{at}", "a", 6, on=f"n{at}", ran=100, run=1000)
    cluster.job("gang", "a", 8, age=500)
    cluster.job("small", "a", pods=6, min=1, age=100)
    first = decide(cluster.snapshot())
    second = decide(cluster.snapshot(is_reversed=True))
    places = [
        {p.pod.name: p.node for a in plan.admissions for p in a.placements}
        for plan in (first, second)
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 4


def test_a_limit_that_small_work_of_the_project_holds_is_drained_as_well() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 8, limit=8)
    cluster.job("old", "a", 4, on="n0", ran=100)
    cluster.job("gang", "a", pods=8, age=LONGEST_S)
    cluster.job("small", "a", age=100)
    assert not statuses(allocated(cluster))


def test_the_workload_that_has_waited_longest_goes_first_in_its_period() -> None:
    """Jobs of one GPU would hold a smaller part of their due than the gang, and start before it."""
    for waited_s, first in ((LONGEST_S, "gang-0"), (LONGEST_S - 1, "small-0")):
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.project("a", 8)
        cluster.project("b", 8)
        cluster.job("gang", "b", pods=8, age=waited_s)
        cluster.job("small", "a", pods=7, min=1, age=100)
        assert first in statuses(allocated(cluster))
