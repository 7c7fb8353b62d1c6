"""Nominations of earlier cycles: when they are kept, and when dropped."""

from msgspec.structs import replace

from extender.api.names import ANNOTATION_HOLD
from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.state.model import STUCK_AFTER_S
from tests.support.snapshot_job import NOW_S, demand_of
from tests.support.snapshots import Cluster, counts, statuses


def promised(**job: object) -> Cluster:
    """Project a was promised both cards of n0, where b's pods still are or were."""
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", 2)
    cluster.project("b")
    cluster.job("a-job", "a", on="n0", pods=2, cards=[0], state="nominated", **job)  # type: ignore[arg-type]
    return cluster


def two_cards(cluster: Cluster) -> None:
    """Give the second pod of the promise the second card."""
    workload = cluster.workloads["ns/a-job"]
    first, second = workload.pods
    cards = (replace(first.cards[0], index=1),)
    pods = (first, replace(second, cards=cards))
    cluster.workloads["ns/a-job"] = replace(workload, pods=pods)
    rows = cluster.nodes["n0"].rows
    rows[1] = replace(rows[1], cards=list(cards))


def test_promise_comes_true_when_the_victims_are_gone() -> None:
    cluster = promised()
    two_cards(cluster)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("a-job", "reserved"): 2}
    assert [p.cards[0].index for p in plan.admissions[0].placements] == [0, 1]


def test_nomination_is_kept_while_a_victim_is_terminating() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.job("victim", "b", on="n0", cards=[0], terminating=True)
    plan = decide(cluster.snapshot())
    assert not plan.admissions
    assert not plan.drops
    assert plan.waits["ns/a-job"].reason is Reason.WAITING_FOR_VICTIMS


def leaves(cluster: Cluster, name: str, of: str, card: int, grace_s: int) -> None:
    cluster.job(name, of, on="n0", cards=[card], terminating=True)
    key = f"ns/{name}"
    workload = cluster.workloads[key]
    pods = tuple(replace(pod, grace_s=grace_s) for pod in workload.pods)
    cluster.workloads[key] = replace(workload, pods=pods)


def test_waiting_workload_is_told_what_ends_and_how_long_that_may_take() -> None:
    cluster = promised()
    two_cards(cluster)
    leaves(cluster, "own", "a", 0, grace_s=240)
    leaves(cluster, "secret", "b", 1, grace_s=30)
    plan = decide(cluster.snapshot())
    told = "ns/a-job: waits for ns/own-0 and 1 pod of project b (1 GPU) to end: up to 240 s"
    assert plan.waits["ns/a-job"] == Refused(Reason.WAITING_FOR_VICTIMS, told)


def test_a_grace_beyond_the_bound_is_reported_as_the_bound() -> None:
    cluster = promised()
    two_cards(cluster)
    leaves(cluster, "victim", "b", 0, grace_s=86_400)
    detail = decide(cluster.snapshot()).waits["ns/a-job"].detail
    assert detail == "ns/a-job: waits for 1 pod of project b (1 GPU) to end: up to 300 s"


def test_promise_is_kept_while_the_row_of_a_pod_that_is_gone_still_holds_its_place() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.job("gone", "b", on="n0", cards=[0])
    (gone,) = cluster.workloads.pop("ns/gone").pods
    snapshot = cluster.snapshot()
    snapshot.orphans = (("n0", gone.cards),)
    plan = decide(snapshot)
    assert not plan.drops
    assert plan.waits["ns/a-job"].reason is Reason.WAITING_FOR_VICTIMS


def test_nomination_is_dropped_when_no_victim_is_terminating() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.job("squatter", "b", on="n0", cards=[0])
    plan = decide(cluster.snapshot())
    assert plan.drops == ["ns/a-job"]
    assert not plan.admissions


def test_promise_is_dropped_when_its_victim_does_not_end() -> None:
    """A process in the driver of a hung card survives SIGKILL."""
    cluster = promised()
    two_cards(cluster)
    cluster.job("victim", "b", on="n0", cards=[0], terminating=True)
    cluster.node("n1", gpus=2)
    workload = cluster.workloads["ns/victim"]
    for late_s, is_dropped in ((STUCK_AFTER_S, False), (STUCK_AFTER_S + 1, True)):
        stuck = tuple(replace(pod, ends_by=NOW_S - late_s) for pod in workload.pods)
        cluster.workloads["ns/victim"] = replace(workload, pods=stuck)
        plan = decide(cluster.snapshot())
        assert plan.drops == ["ns/a-job"] * is_dropped


def test_no_pod_is_planned_on_the_cards_of_a_pod_that_does_not_end() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", 1)
    cluster.project("b")
    cluster.job("victim", "b", on="n0", cards=[0], terminating=True)
    cluster.job("a-job", "a")
    assert statuses(decide(cluster.snapshot())) == {"a-job-0": "nominated"}
    workload = cluster.workloads["ns/victim"]
    stuck = tuple(replace(pod, ends_by=NOW_S - STUCK_AFTER_S - 1) for pod in workload.pods)
    cluster.workloads["ns/victim"] = replace(workload, pods=stuck)
    assert statuses(decide(cluster.snapshot())) == {}


def test_promise_is_dropped_when_its_node_is_gone() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.nodes["n0"].facts.is_ready = False
    assert decide(cluster.snapshot()).drops == ["ns/a-job"]
    cluster.nodes.clear()
    assert decide(cluster.snapshot()).drops == ["ns/a-job"]


def test_promise_is_dropped_when_its_node_has_left_the_pools_of_the_work() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.pool("other")
    cluster.nodes["n0"].facts.pool = "other"
    plan = decide(cluster.snapshot())
    assert plan.drops == ["ns/a-job"]
    assert not plan.admissions


def test_promise_is_dropped_when_its_gang_has_lost_a_member() -> None:
    cluster = promised(min=3)
    two_cards(cluster)
    assert decide(cluster.snapshot()).drops == ["ns/a-job"]


def test_promise_is_dropped_when_quota_no_longer_covers_it() -> None:
    cluster = promised(kind="build")
    two_cards(cluster)
    cluster.project("a", 1)
    assert decide(cluster.snapshot()).drops == ["ns/a-job"]


def test_two_promises_on_one_card_come_true_one_by_one() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("a", 1)
    cluster.project("b")
    cluster.job("victim", "b", "0.5", on="n0", cards=[0], terminating=True)
    cluster.job("first", "a", "0.5", on="n0", cards=[0], state="nominated")
    cluster.job("second", "a", "0.5", on="n0", cards=[0], state="nominated")
    plan = decide(cluster.snapshot())
    assert statuses(plan) == {"first-0": "reserved"}
    assert plan.waits["ns/second"].reason is Reason.WAITING_FOR_VICTIMS


def test_promised_work_counts_as_held_so_that_nothing_is_taken_twice() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("b")
    cluster.project("a", 1)
    cluster.job("victim", "b", on="n0", cards=[0], terminating=True)
    cluster.job("stays", "b", on="n0", cards=[1])
    cluster.job("first", "a", on="n0", cards=[0], state="nominated")
    cluster.job("second", "a")
    assert not statuses(decide(cluster.snapshot()))


def moving(*, has_successor: bool) -> Cluster:
    """A pod leaves n0; for its successor a place is kept on n1."""
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.node("n1", gpus=1)
    cluster.project("a", 2)
    cluster.job("job", "a", on="n0", pods=1, terminating=True, waiting=int(has_successor), min=1)
    workload = cluster.workloads["ns/job"]
    leaving, *others = workload.pods
    moved = replace(leaving, next_node="n1", next_cards=leaving.cards)
    cluster.workloads["ns/job"] = replace(workload, pods=(moved, *others))
    row = cluster.nodes["n0"].rows[0]
    cluster.nodes["n1"].rows.append(replace(row, state="nominated"))
    return cluster


def test_place_of_a_moved_pod_is_not_given_to_another_pod() -> None:
    cluster = moving(has_successor=False)
    cluster.job("other", "a")
    plan = decide(cluster.snapshot())
    assert {p.node for a in plan.admissions for p in a.placements} == {"n0"}
    assert statuses(plan) == {"other-0": "nominated"}


def test_successor_of_a_moved_pod_waits_for_the_place_that_is_kept() -> None:
    cluster = moving(has_successor=True)
    cluster.node("n2", gpus=1)
    plan = decide(cluster.snapshot())
    assert not statuses(plan)
    refused = plan.waits["ns/job"]
    assert refused.reason is Reason.WAITING_FOR_VICTIMS
    assert refused.detail == "ns/job: waits for its moved pods to leave n0"


def test_further_pods_of_a_moved_workload_find_places_of_their_own() -> None:
    cluster = moving(has_successor=True)
    cluster.node("n2", gpus=1)
    workload = cluster.workloads["ns/job"]
    more = replace(workload.pods[1], uid="job-2", name="job-2")
    cluster.workloads["ns/job"] = replace(workload, pods=(*workload.pods, more))
    assert statuses(decide(cluster.snapshot())) == {"job-2": "reserved"}


def test_promise_to_work_that_its_owner_holds_is_given_up() -> None:
    cluster = promised()
    two_cards(cluster)
    workload = cluster.workloads["ns/a-job"]
    pods = tuple(replace(pod, other_gates=(ANNOTATION_HOLD,)) for pod in workload.pods)
    cluster.workloads["ns/a-job"] = replace(workload, pods=pods)
    plan = decide(cluster.snapshot())
    assert plan.drops == ["ns/a-job"]
    assert not plan.admissions


def borrowing(**nominated: object) -> Cluster:
    """Project b holds 5 of 8 GPUs, above its quota of 4, and was promised the last one, which a pod
    leaves; project a, which holds 2, has one more pod."""
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.node("n1", gpus=4)
    cluster.project("a", 4)
    cluster.project("b", 4, min_runtime=600)
    cluster.job("set", "a", on="n0", pods=2, waiting=1, min=3, ran=5_000)
    cluster.job("last", "b", on="n0", ran=5_000)
    for at in range(4):
        cluster.job(f"b{at}", "b", on="n1", ran=5_000)
    cluster.job("borrows", "b", on="n0", cards=[3], state="nominated", **nominated)  # type: ignore[arg-type]
    return cluster


def test_promise_above_the_share_is_given_up_before_running_work_is_evicted() -> None:
    plan = decide(borrowing().snapshot())
    assert statuses(plan) == {"set-2": "nominated"}
    assert plan.drops == ["ns/borrows"]
    refused = plan.waits["ns/borrows"]
    assert refused.reason is Reason.WAITING_FOR_TURN
    assert refused.detail.startswith("ns/borrows: its promised place goes to other work; a holds 2")


def test_promise_is_given_up_while_a_pod_still_leaves_its_place() -> None:
    cluster = borrowing()
    cluster.job("leaves", "b", on="n0", cards=[3], terminating=True)
    plan = decide(cluster.snapshot())
    assert (statuses(plan), plan.drops) == ({"set-2": "nominated"}, ["ns/borrows"])


def test_budget_does_not_protect_a_promise() -> None:
    cluster = borrowing(budgets=["ns/b"])
    cluster.budgets["ns/b"] = 0
    plan = decide(cluster.snapshot())
    assert (statuses(plan), plan.drops) == ({"set-2": "nominated"}, ["ns/borrows"])


def test_promise_that_does_not_make_room_is_kept() -> None:
    cluster = borrowing()
    workload = cluster.workloads["ns/set"]
    pods = tuple(
        replace(pod, demand=demand_of(4)) if pod.state == "gated" else pod for pod in workload.pods
    )
    cluster.workloads["ns/set"] = replace(workload, pods=pods)
    plan = decide(cluster.snapshot())
    assert (statuses(plan), plan.drops) == ({"borrows-0": "reserved"}, [])


def test_promise_of_non_preemptible_work_is_kept() -> None:
    plan = decide(borrowing(preemptible=False).snapshot())
    assert not plan.drops


def test_promise_of_a_gang_is_given_up_whole_and_for_work_of_higher_priority() -> None:
    cluster = promised(priority=50, min=1)
    two_cards(cluster)
    cluster.job("urgent", "a", priority=75)
    cluster.job("stays", "b", on="n0", cards=[0], terminating=True)
    plan = decide(cluster.snapshot())
    assert (statuses(plan), plan.drops) == ({"urgent-0": "nominated"}, ["ns/a-job"])


def test_why_a_promise_is_given_up_is_told_when_further_rounds_follow() -> None:
    cluster = borrowing()
    cluster.node("n2", gpus=2)
    cluster.project("x", 1)
    cluster.project("y", 1)
    cluster.job("y-jobs", "y", pods=2, on="n2", min=1)
    cluster.job("x-job", "x")
    plan = decide(cluster.snapshot())
    assert [eviction.workload for eviction in plan.evictions] == ["ns/y-jobs"]
    assert "its promised place goes to other work" in plan.waits["ns/borrows"].detail
