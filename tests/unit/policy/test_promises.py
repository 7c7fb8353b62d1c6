"""What becomes of places that were promised in former cycles."""

from msgspec.structs import replace

from extender.api.reasons import Reason
from extender.policy.decide import decide
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


def test_promise_is_kept_while_somebody_is_leaving() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.job("victim", "b", on="n0", cards=[0], terminating=True)
    plan = decide(cluster.snapshot())
    assert not plan.admissions
    assert not plan.drops
    assert plan.waits["ns/a-job"].reason is Reason.WAITING_FOR_VICTIMS


def test_promise_is_dropped_when_nobody_is_leaving() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.job("squatter", "b", on="n0", cards=[0])
    plan = decide(cluster.snapshot())
    assert plan.drops == ["ns/a-job"]
    assert not plan.admissions


def test_promise_is_dropped_when_its_node_is_gone() -> None:
    cluster = promised()
    two_cards(cluster)
    cluster.nodes["n0"].facts.is_ready = False
    assert decide(cluster.snapshot()).drops == ["ns/a-job"]
    cluster.nodes.clear()
    assert decide(cluster.snapshot()).drops == ["ns/a-job"]


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
