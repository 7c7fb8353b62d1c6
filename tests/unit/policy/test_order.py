"""The order of workloads (cases after shared/scenarios/run-ai/order and quota-and-kind)."""

from typing import Any

import pytest

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import Constraints
from tests.support.snapshots import Cluster, counts, statuses

NOWHERE = Constraints(node_selector=(("no", "such"),))


def cluster_of(gpus: int, *projects: str) -> Cluster:
    cluster = Cluster()
    cluster.node("n0", gpus=gpus)
    for name in projects:
        cluster.project(name)
    return cluster


def test_bulk_and_priority_do_not_buy_a_share() -> None:
    cluster = cluster_of(6, "bob", "alice")
    cluster.job("bobs", "bob", pods=20, min=1, priority=75)
    cluster.job("alices", "alice", pods=3, min=1)
    got = counts(decide(cluster.snapshot()))
    assert got == {("bobs", "reserved"): 3, ("alices", "reserved"): 3}


def test_turns_are_counted_again_after_every_pod() -> None:
    cluster = cluster_of(5, "alice", "bob")
    cluster.job("alice-old", "alice", pods=2, on="n0", min=1)
    cluster.job("alice-new", "alice", pods=4, min=1)
    cluster.job("bob-new", "bob", pods=4, min=1)
    got = counts(decide(cluster.snapshot()))
    assert got == {("alice-new", "reserved"): 1, ("bob-new", "reserved"): 2}


def test_project_below_quota_goes_before_an_older_one_above() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("b", 2)
    cluster.project("a", 4)
    cluster.job("a-old", "a", pods=3, on="n0")
    cluster.job("b-old", "b", pods=4, on="n0")
    cluster.job("b-new", "b", age=9000)
    cluster.job("a-new", "a", age=10)
    assert statuses(decide(cluster.snapshot())) == {"a-new-0": "reserved"}


def test_most_deprived_department_goes_first() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=3)
    for name in ("d1", "d2"):
        cluster.department(name, 1)
    cluster.project("a", department="d1")
    cluster.project("b", department="d2")
    cluster.job("a-old", "a", pods=2, on="n0", min=1)
    cluster.job("a-new", "a", age=9000)
    cluster.job("b-new", "b", age=10)
    assert statuses(decide(cluster.snapshot())) == {"b-new-0": "reserved"}


def test_inside_a_project_priority_goes_before_age_and_age_before_name() -> None:
    for first, second in (
        ({"priority": 75, "age": 10}, {"priority": 50, "age": 9000}),
        ({"age": 600}, {"age": 60}),
    ):
        cluster = cluster_of(1, "a")
        cluster.job("z-first", "a", **first)
        cluster.job("a-second", "a", **second)
        assert statuses(decide(cluster.snapshot())) == {"z-first-0": "reserved"}


def test_build_within_quota_goes_before_training_of_higher_priority() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", 2)
    cluster.job("train", "a", 2, priority=150, preemptible=True)
    cluster.job("build", "a", 2, kind="build")
    assert statuses(decide(cluster.snapshot())) == {"build-0": "reserved"}


def test_interactive_work_beyond_quota_has_no_precedence() -> None:
    cluster = cluster_of(1, "a")
    cluster.job("train", "a", priority=90)
    cluster.job("notebook", "a", kind="interactive")
    assert statuses(decide(cluster.snapshot())) == {"train-0": "reserved"}


def test_training_passes_a_build_that_is_over_quota() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("a", 1)
    cluster.job("build-1", "a", on="n0", kind="build")
    cluster.job("build-2", "a", kind="build")
    cluster.job("train", "a")
    assert statuses(decide(cluster.snapshot())) == {"train-0": "reserved"}


def test_blocked_project_does_not_block_others() -> None:
    cluster = cluster_of(4, "alice", "bob")
    cluster.job("held", "bob", 2, on="n0", kind="build", preemptible=False)
    cluster.job("large", "alice", 4)
    cluster.job("small", "bob", 1)
    assert statuses(decide(cluster.snapshot())) == {"small-0": "reserved"}


def test_smaller_job_passes_a_blocked_head_of_its_project() -> None:
    cluster = cluster_of(2, "a")
    cluster.job("head", "a", 4)
    cluster.job("next", "a", 1)
    assert statuses(decide(cluster.snapshot())) == {"next-0": "reserved"}


def test_minimum_of_the_next_job_goes_before_surplus() -> None:
    cluster = cluster_of(5, "a")
    cluster.job("e1", "a", pods=4, min=2)
    cluster.job("e2", "a", pods=4, min=2)
    got = counts(decide(cluster.snapshot()))
    assert got == {("e1", "reserved"): 3, ("e2", "reserved"): 2}


def test_project_within_quota_goes_before_one_that_holds_a_smaller_part() -> None:
    # a: 3 of its quota of 4, b: 2 of its share of 4 and no quota.
    cluster = Cluster()
    cluster.node("n0", gpus=6)
    cluster.project("b", 0)
    cluster.project("a", 4)
    cluster.job("a-old", "a", pods=3, on="n0", min=1)
    cluster.job("b-old", "b", pods=2, on="n0", min=1)
    cluster.job("b-new", "b", pods=2, min=1)
    cluster.job("a-new", "a")
    assert statuses(decide(cluster.snapshot())) == {"a-new-0": "reserved"}


def test_lower_rank_goes_first_beyond_quota() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("a", rank=2)
    cluster.project("b", rank=1)
    cluster.job("a-jobs", "a", pods=4, min=1)
    cluster.job("b-jobs", "b", pods=3, min=1)
    got = counts(decide(cluster.snapshot()))
    assert got == {("a-jobs", "reserved"): 1, ("b-jobs", "reserved"): 3}


def test_turn_goes_by_what_would_be_held_of_the_scarcest_resource() -> None:
    # Both hold as much of the CPU; with the next job, b holds a smaller part.
    cluster = Cluster()
    cluster.node("n0", gpus=8, cpu=8)
    for name in "ab":
        cluster.project(name)
    cluster.job("a-next", "a", 0, cpu=6)
    cluster.job("b-next", "b", 0, cpu=4, age=10)
    assert statuses(decide(cluster.snapshot())) == {"b-next-0": "reserved"}


def test_users_of_a_project_have_their_turns() -> None:
    cluster = cluster_of(4, "a")
    cluster.job("bulk", "a", pods=10, min=1, user="ada")
    cluster.job("few", "a", pods=2, min=1, user="bob")
    got = counts(decide(cluster.snapshot()))
    assert got == {("bulk", "reserved"): 2, ("few", "reserved"): 2}


def test_work_without_a_user_counts_as_one_more_user() -> None:
    cluster = cluster_of(2, "a")
    cluster.job("bulk", "a", pods=10, min=1)
    cluster.job("bobs", "a", pods=2, min=1, user="bob")
    got = counts(decide(cluster.snapshot()))
    assert got == {("bulk", "reserved"): 1, ("bobs", "reserved"): 1}


def test_blocked_head_holds_up_its_project_in_strict_order_and_no_other() -> None:
    cluster = cluster_of(4, "alice", "bob")
    cluster.pool("default", job_order="strict-fifo")
    cluster.job("runs", "bob", 2, on="n0")
    cluster.job("head", "alice", 4, age=900)
    cluster.job("next", "alice", 1, age=800)
    cluster.job("other", "bob", 1)
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"other-0": "reserved"}
    assert plan.waits["ns/next"].reason is Reason.WAITING_FOR_TURN


def test_strict_order_holds_when_others_could_be_evicted_too() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("owner", 4)
    cluster.project("guest", 1)
    cluster.pool("default", job_order="strict-fifo")
    cluster.job("fixed", "guest", on="n0", kind="build")
    cluster.job("guests", "guest", pods=3, on="n0", min=1)
    cluster.job("head", "owner", 4)
    cluster.job("next", "owner", 1)
    assert statuses(decide(cluster.snapshot())) == {}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"constraints": NOWHERE}, id="no node has its label"),
        pytest.param({"gpus": 3, "kind": "build"}, id="above the quota for non-preemptible work"),
    ],
)
def test_work_that_may_never_start_holds_up_nothing_in_strict_order(
    job: dict[str, Any],
) -> None:
    cluster = cluster_of(4, "bob")
    cluster.project("alice", 2)
    cluster.pool("default", job_order="strict-fifo")
    cluster.job("runs", "bob", 3, on="n0")
    cluster.job("head", "alice", **job)
    cluster.job("next", "alice", 1)
    assert statuses(decide(cluster.snapshot())) == {"next-0": "reserved"}


def test_work_that_the_last_cycle_cut_off_goes_first_in_its_project() -> None:
    cluster = cluster_of(1, "a")
    cluster.job("old", "a", age=9000, priority=90)
    cluster.job("cut", "a", age=10)
    plan = decide(cluster.snapshot(), Settings(first=frozenset({"ns/cut"})))
    assert statuses(plan) == {"cut-0": "reserved"}


def test_inference_within_the_quota_of_the_project_goes_first_for_users_too() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", 1)
    cluster.job("train", "a", user="ada", priority=90)
    cluster.job("serve", "a", user="ada", kind="inference", priority=75, preemptible=True)
    assert statuses(decide(cluster.snapshot())) == {"serve-0": "reserved"}


def test_non_preemptible_work_of_all_users_together_stays_within_quota() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("a", 1)
    cluster.job("ada", "a", user="ada", kind="build")
    cluster.job("bob", "a", user="bob", kind="build")
    plan = decide(cluster.snapshot())
    assert list(statuses(plan).values()) == ["reserved"]
    (refused,) = plan.waits.values()
    assert refused.reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA


def test_head_that_may_hold_no_more_does_not_speak_for_its_queue() -> None:
    # b's oldest is over b's limit; what is behind it is within quota and goes before a.
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", 0)
    cluster.project("b", 2, limit=2)
    cluster.job("a-job", "a", age=9000)
    cluster.job("b-large", "b", 3, age=900)
    cluster.job("b-small", "b", 1, age=10)
    assert statuses(decide(cluster.snapshot())) == {"b-small-0": "reserved"}


def test_queue_that_would_pass_its_share_goes_last_whatever_its_rank() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", weight=0, rank=1)
    cluster.project("b", weight=1, rank=2)
    cluster.job("a-jobs", "a", pods=2, min=1)
    cluster.job("b-jobs", "b", pods=2, min=1)
    assert counts(decide(cluster.snapshot())) == {("b-jobs", "reserved"): 2}


def test_training_that_is_bound_to_quota_is_passed_by_priority_only() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", 1)
    cluster.job("notebook", "a", kind="interactive", priority=25, preemptible=True)
    cluster.job("train", "a", priority=100)
    assert statuses(decide(cluster.snapshot())) == {"train-0": "reserved"}


def test_turns_of_departments_are_counted_again_after_every_pod() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    for name in ("d1", "d2"):
        cluster.department(name, 2)
    cluster.project("a", department="d1")
    cluster.project("b", department="d2")
    cluster.job("a-jobs", "a", pods=4, min=1)
    cluster.job("b-jobs", "b", pods=4, min=1)
    got = counts(decide(cluster.snapshot()))
    assert got == {("a-jobs", "reserved"): 2, ("b-jobs", "reserved"): 2}


def test_what_a_blocked_head_holds_up_is_next_to_it_in_the_queue() -> None:
    cluster = cluster_of(4, "alice", "bob")
    cluster.pool("default", job_order="strict-fifo")
    cluster.job("runs", "bob", 4, on="n0", kind="build")
    cluster.job("head", "alice", 4, age=900)
    cluster.job("next", "alice", 2, age=800)
    cluster.job("other", "bob", 3, age=1000)
    assert decide(cluster.snapshot()).turns == ("ns/head", "ns/next", "ns/other")


def test_work_that_is_refused_with_another_is_next_to_it_in_the_queue() -> None:
    cluster = cluster_of(4, "alice", "bob")
    cluster.job("runs", "bob", 4, on="n0", kind="build")
    cluster.job("first", "alice", 2, age=900)
    cluster.job("alike", "alice", 2, age=800)
    cluster.job("other", "bob", 3, age=1000)
    assert decide(cluster.snapshot()).turns == ("ns/first", "ns/alike", "ns/other")
