"""Ties between queues are broken by recent allocations, and the odd GPU is not reclaimed."""

import pytest

from extender.policy.actions.long_wait_protection import PROTECTION_S
from extender.policy.decide import decide
from extender.policy.queues.usage import LATELY_HALF_LIFE_S, HeldLately
from extender.state.model import LATELY
from tests.support.snapshots import Cluster, counts, statuses

KEY = ("a", "default")


def four_on_two() -> Cluster:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    for name in "abcd":
        cluster.project(name)
        cluster.job(f"{name}-job", name)
    return cluster


def test_the_queues_that_held_least_lately_go_first() -> None:
    snapshot = four_on_two().snapshot()
    snapshot.held_lately = {(name, "default"): (500 * LATELY, 0, 0) for name in "ab"}
    assert set(statuses(decide(snapshot))) == {"c-job-0", "d-job-0"}


def test_without_a_past_the_oldest_go_first() -> None:
    assert set(statuses(decide(four_on_two().snapshot()))) == {"a-job-0", "b-job-0"}


def test_the_odd_gpu_is_not_taken_from_the_queue_whose_turn_it_was() -> None:
    # By largest remainder the share of a is 2, but c has the fourth GPU.
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    for name, held in (("a", 1), ("b", 1), ("c", 2)):
        cluster.project(name)
        cluster.job(f"{name}-jobs", name, pods=held, on="n0", min=1)
        cluster.job(f"{name}-more", name)
    assert counts(decide(cluster.snapshot())) == {}


def test_past_use_takes_nothing_from_what_the_share_would_be_without_it() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    for name, used in (("a", 900_000), ("b", 0)):
        cluster.project(name, used=used)
    cluster.job("a-jobs", "a", pods=8, on="n0", min=1)
    cluster.job("b-jobs", "b", pods=8, min=1)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("a-jobs", "evicted"): 4, ("b-jobs", "nominated"): 4}


def test_what_was_held_lately_is_measured_by_the_share_without_past_use() -> None:
    # Of 8 GPUs weights 1, 2 and 3 have 1.33, 2.67 and 4. In the last hour a held less than that, so
    # past use gives it more for now, but over the day it held too much, and c too little.
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    for weight, (name, used, held) in enumerate(
        (("a", 125_000, 1), ("b", 374_000, 3), ("c", 501_000, 3)), start=1
    ):
        cluster.project(name, weight=weight, used=used)
        cluster.job(f"{name}-jobs", name, pods=held, on="n0", min=1)
        cluster.job(f"{name}-more", name)
    snapshot = cluster.snapshot()
    snapshot.held_lately = {
        (name, "default"): (milli * LATELY, 0, 0)
        for name, milli in (("a", 1440), ("b", 2640), ("c", 3920))
    }
    assert counts(decide(snapshot)) == {("c-more", "reserved"): 1}


def test_use_of_the_own_quota_does_not_bend_the_weight() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 4, used=500_000)
    cluster.project("b", used=0)
    cluster.job("a-jobs", "a", pods=8, min=1)
    cluster.job("b-jobs", "b", pods=8, min=1)
    assert counts(decide(cluster.snapshot())) == {
        ("a-jobs", "reserved"): 6,
        ("b-jobs", "reserved"): 2,
    }


def test_an_average_is_over_the_time_that_was_counted() -> None:
    lately = HeldLately()
    lately.step({KEY: (1000, 0, 0)}, 60)
    assert lately.averages[KEY][0] == 1000 * LATELY
    lately.step({}, 60)
    assert abs(lately.averages[KEY][0] - 500 * LATELY) < LATELY


def test_usage_of_a_half_life_ago_counts_half() -> None:
    lately = HeldLately()
    lately.step({KEY: (1000, 0, 0)}, 100 * LATELY_HALF_LIFE_S)
    lately.step({}, LATELY_HALF_LIFE_S)
    assert abs(lately.averages[KEY][0] - 500 * LATELY) < LATELY


def test_a_queue_that_holds_nothing_for_long_is_forgotten() -> None:
    lately = HeldLately()
    lately.step({KEY: (1000, 0, 0)}, 60)
    lately.step({}, 60 * LATELY_HALF_LIFE_S)
    assert not lately.averages


def larger_than_its_share(*, age: int, ran: int, state: str = "bound") -> Cluster:
    """b runs a pod of five of eight GPUs, a lacks one of its share of four."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a")
    cluster.project("b")
    cluster.job("a-jobs", "a", pods=3, on="n0", min=1)
    cluster.job("b-big", "b", 5, on="n0", age=age, ran=ran, state=state)
    cluster.job("a-more", "a")
    return cluster


def test_work_that_waited_long_for_its_turn_keeps_its_place() -> None:
    assert counts(decide(larger_than_its_share(age=8000, ran=600).snapshot())) == {}


def test_the_turn_ends() -> None:
    plan = decide(larger_than_its_share(age=60_000, ran=PROTECTION_S).snapshot())
    assert counts(plan) == {("b-big", "evicted"): 1, ("a-more", "nominated"): 1}


def test_work_that_did_not_wait_for_its_turn_gives_way() -> None:
    plan = decide(larger_than_its_share(age=700, ran=600).snapshot())
    assert counts(plan) == {("b-big", "evicted"): 1, ("a-more", "nominated"): 1}


@pytest.mark.parametrize(("age", "drops"), [(8000, []), (700, ["ns/b-big"])])
def test_the_turn_begins_with_the_nomination(age: int, drops: list[str]) -> None:
    cluster = larger_than_its_share(age=age, ran=0, state="nominated")
    assert decide(cluster.snapshot()).drops == drops


def test_work_within_quota_does_not_wait_for_the_end_of_a_turn() -> None:
    cluster = larger_than_its_share(age=8000, ran=600)
    cluster.project("a", 4)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("b-big", "evicted"): 1, ("a-more", "nominated"): 1}
