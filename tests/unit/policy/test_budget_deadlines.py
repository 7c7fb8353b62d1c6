"""Since when a disruption budget delays evictions: one deadline for all its pods."""

from extender.api.reasons import Reason
from extender.policy.plan import Eviction, HeldBack, Plan
from extender.policy.workloads.budget_deadlines import CALM_S, Deadlines
from extender.policy.workloads.disruption_budgets import find_overdue
from extender.state.model import PodView
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster

BUDGETS = ("ns/web",)


def pod(uid: str, budgets: tuple[str, ...] = BUDGETS) -> PodView:
    return PodView(uid=uid, namespace="ns", name=uid, budgets=budgets)


def holds(*pods: PodView) -> Plan:
    return Plan(held_back=[HeldBack(each.uid, each.budgets, 0) for each in pods])


def takes(*pods: PodView) -> Plan:
    return Plan(evictions=[Eviction(each, "ns/w", Reason.RECLAIMED, "ns/o", "") for each in pods])


def test_a_deadline_is_for_all_pods_of_the_budget() -> None:
    deadlines = Deadlines()
    deadlines.note(holds(pod("a")), NOW_S)
    deadlines.note(holds(pod("b")), NOW_S + 50)
    assert deadlines.since() == {BUDGETS: NOW_S}
    assert not deadlines.is_over(pod("c"), 120, NOW_S + 119)
    assert deadlines.is_over(pod("c"), 120, NOW_S + 120)


def test_a_pod_without_a_known_budget_has_a_deadline_of_its_own() -> None:
    deadlines = Deadlines()
    deadlines.note(holds(pod("a", ())), NOW_S)
    assert deadlines.is_over(pod("a", ()), 120, NOW_S + 120)
    assert not deadlines.is_over(pod("b", ()), 120, NOW_S + 120)


def test_a_calm_budget_holds_back_anew() -> None:
    deadlines = Deadlines()
    deadlines.note(holds(pod("a")), NOW_S)
    deadlines.note(Plan(), NOW_S + CALM_S)
    assert deadlines.since()
    deadlines.note(Plan(), NOW_S + CALM_S + 1)
    assert not deadlines.since()


def test_a_plan_that_takes_pods_after_a_long_pause_still_finds_the_deadline_over() -> None:
    deadlines = Deadlines()
    deadlines.note(holds(pod("a")), NOW_S)
    deadlines.note(takes(pod("b")), NOW_S + 150)
    assert deadlines.is_over(pod("b"), 120, NOW_S + 150)


def test_an_eviction_that_no_budget_held_back_begins_no_deadline() -> None:
    deadlines = Deadlines()
    deadlines.note(takes(pod("a")), NOW_S)
    assert not deadlines.since()


def test_the_node_pool_of_each_pod_says_how_long() -> None:
    cluster = Cluster()
    cluster.pool("short", disruption_budget_s=10)
    cluster.pool("long", disruption_budget_s=600)
    cluster.node("n0", gpus=1, pool="short")
    cluster.node("n1", gpus=1, pool="long")
    cluster.project("a")
    cluster.job("one", "a", on="n0", budgets=BUDGETS)
    cluster.job("two", "a", on="n1", budgets=BUDGETS)
    assert find_overdue(cluster.snapshot(), {BUDGETS: NOW_S - 10}) == {"one-0"}
    assert find_overdue(cluster.snapshot(), {BUDGETS: NOW_S - 600}) == {"one-0", "two-0"}
