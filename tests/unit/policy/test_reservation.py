"""Reservations: a blocked big workload is not starved, and what passes it doesn't delay it."""

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.placement.reservations import PATIENCE_S
from extender.policy.plan import Plan, Settings
from tests.support.snapshots import Cluster, statuses


def allocated(cluster: Cluster) -> Plan:
    return decide(cluster.snapshot(), Settings(stages=("allocate",)))


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
    assert refused.detail == "ns/small: its place is kept for ns/gang, which is blocked"


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


def test_without_stated_times_small_work_passes_until_the_gang_has_waited_long() -> None:
    cluster = one_node(4)
    cluster.job("gang", "a", pods=8, age=PATIENCE_S - 1)
    cluster.job("small", "a", age=100)
    assert statuses(allocated(cluster)) == {"small-0": "reserved"}
    cluster = one_node(4)
    cluster.job("gang", "a", pods=8, age=PATIENCE_S)
    cluster.job("small", "a", age=100)
    assert not statuses(allocated(cluster))


def test_stream_of_small_work_does_not_starve_a_gang_for_ever() -> None:
    """Every round one small job ends and two come; the gang has what it needs in the end."""
    free = 0
    for age in range(0, 3 * PATIENCE_S, 600):
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.project("a", 8)
        free += 1
        if free < 8:
            cluster.job("old", "a", pods=8 - free, min=1, on="n0", ran=100)
        cluster.job("gang", "a", pods=8, age=age)
        cluster.job("small", "a", pods=2, min=1, age=0)
        placed = statuses(allocated(cluster))
        if "gang-0" in placed:
            assert age >= PATIENCE_S
            return
        free -= len(placed)
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


def test_what_can_never_start_keeps_nothing_free() -> None:
    cluster = one_node(4, run=1000)
    cluster.node("n1", gpus=8)
    cluster.job("fixed", "a", 1, on="n1", ran=100)
    cluster.projects["a"] = cluster.projects["a"]
    cluster.job("gang", "a", 8, pods=2, age=500)
    cluster.job("small", "a", pods=2, min=1, age=100)
    assert len(statuses(allocated(cluster))) == 2


def test_overdue_work_is_expected_to_end_any_moment() -> None:
    cluster = one_node(4, run=50)
    cluster.job("gang", "a", pods=8, age=500)
    cluster.job("short", "a", age=100, run=1)
    assert not statuses(allocated(cluster))


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
