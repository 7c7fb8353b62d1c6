"""Monthly GPU-hour budgets: what a project may hold once its budget is used."""

from dataclasses import replace

from extender.api.months import PER_GPU_HOUR, month_of
from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.state.model import GPU, MonthHours
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster, counts

MONTH = month_of(NOW_S)


def spend(cluster: Cluster, project: str, used: int, budget: int = 100, month: str = MONTH) -> None:
    """The project has used so many of its GPU-hours of the month."""
    view = cluster.projects[project]
    hours = MonthHours(budget * PER_GPU_HOUR, used * PER_GPU_HOUR, month)
    pools = {
        pool: replace(quota, gpu=replace(quota.gpu, month=hours))
        for pool, quota in view.pools.items()
    }
    cluster.projects[project] = replace(view, pools=pools)


def one_node(gpus: int = 8, quota: int = 2) -> Cluster:
    cluster = Cluster()
    cluster.node("n0", gpus=gpus)
    cluster.project("a", quota)
    cluster.project("b", quota)
    return cluster


def test_project_that_has_used_its_budget_borrows_nothing_more() -> None:
    cluster = one_node()
    for name in ("one", "two", "three"):
        cluster.job(name, "a")
    spend(cluster, "a", used=100)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("one", "reserved"): 1, ("two", "reserved"): 1}
    refused = plan.waits["ns/three"]
    assert refused.reason is Reason.OVER_BUDGET
    assert refused.detail == (
        "ns/three: needs 1 GPU, a has used 100.0 of its 100 GPU-hours of 1970-01, so it borrows"
        " nothing above its quota of 2 GPUs until the month ends"
    )


def test_budget_that_is_not_used_up_has_no_effect() -> None:
    cluster = one_node()
    cluster.job("many", "a", pods=5, min=1)
    spend(cluster, "a", used=99)
    assert counts(decide(cluster.snapshot())) == {("many", "reserved"): 5}


def test_use_of_another_month_has_no_effect() -> None:
    cluster = one_node()
    cluster.job("many", "a", pods=5, min=1)
    for month in ("1969-12", ""):
        spend(cluster, "a", used=500, month=month)
        assert counts(decide(cluster.snapshot())) == {("many", "reserved"): 5}


def test_nothing_that_runs_is_stopped_for_a_budget() -> None:
    cluster = one_node()
    cluster.job("runs", "a", pods=6, on="n0", min=1)
    cluster.job("other", "b", pods=2)
    spend(cluster, "a", used=300)
    plan = decide(cluster.snapshot())
    assert not plan.evictions
    assert counts(plan) == {("other", "reserved"): 2}
    assert plan.shares["a", "default"].fair_share[GPU] == 6000


def test_others_take_back_what_they_are_owed_as_without_a_budget() -> None:
    def evicted(*, is_spent: bool) -> int:
        cluster = one_node()
        cluster.job("runs", "a", pods=8, on="n0", min=1)
        cluster.job("other", "b", pods=4)
        if is_spent:
            spend(cluster, "a", used=300)
        return len(decide(cluster.snapshot()).evictions)

    assert evicted(is_spent=True) == evicted(is_spent=False) == 4


def test_a_spent_project_above_its_quota_starts_no_more_work() -> None:
    cluster = one_node()
    cluster.job("runs", "a", pods=4, on="n0", min=1)
    cluster.job("next", "a")
    spend(cluster, "a", used=100)
    plan = decide(cluster.snapshot())
    assert not plan.admissions
    assert plan.waits["ns/next"].reason is Reason.OVER_BUDGET


def test_better_work_takes_the_place_of_worse_of_the_same_project() -> None:
    cluster = one_node()
    cluster.job("runs", "a", pods=4, on="n0", min=1, priority=40)
    cluster.job("next", "a", priority=60)
    spend(cluster, "a", used=100)
    plan = decide(cluster.snapshot())
    assert counts(plan) == {("next", "nominated"): 1, ("runs", "evicted"): 1}


def test_place_that_was_promised_before_is_kept() -> None:
    cluster = one_node()
    cluster.job("runs", "a", pods=3, on="n0", min=1, priority=40)
    cluster.job("leaves", "a", on="n0", priority=40, terminating=True, cards=[3])
    cluster.job("next", "a", priority=60, state="nominated", on="n0", cards=[3])
    cluster.job("more", "a", priority=40)
    spend(cluster, "a", used=100)
    plan = decide(cluster.snapshot())
    assert not plan.drops
    assert plan.waits["ns/next"].reason is Reason.WAITING_FOR_VICTIMS
    assert plan.waits["ns/more"].reason is Reason.OVER_BUDGET


def test_requests_of_a_spent_project_above_its_quota_give_no_share() -> None:
    cluster = one_node()
    cluster.job("wants", "a", pods=8, min=1)
    cluster.job("other", "b", pods=8, min=1)
    spend(cluster, "a", used=100)
    plan = decide(cluster.snapshot())
    assert plan.shares["a", "default"].fair_share[GPU] == 2000
    assert plan.shares["b", "default"].fair_share[GPU] == 6000


def test_limit_below_stays_a_limit() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 2, limit=1)
    cluster.job("many", "a", pods=3, min=1)
    spend(cluster, "a", used=100)
    assert decide(cluster.snapshot()).waits["ns/many"].reason is Reason.OVER_LIMIT


def test_published_limit_is_the_one_that_is_stated() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 2, limit=6)
    cluster.job("one", "a")
    spend(cluster, "a", used=100)
    share = decide(cluster.snapshot()).shares["a", "default"]
    assert share.limit[GPU] == 6000
    assert share.month is not None


def test_users_of_a_spent_project_are_held_to_it_too() -> None:
    cluster = one_node()
    for name in ("one", "two", "three"):
        cluster.job(name, "a", user=name)
    spend(cluster, "a", used=100)
    plan = decide(cluster.snapshot())
    assert len(plan.admissions) == 2
    assert Reason.OVER_BUDGET in {refused.reason for refused in plan.waits.values()}


def evictions(used: int, quota: int = 0, *, gpus: int = 2, policy: str = "fairshare") -> int:
    """Of user one, who has four of eight cards, for work of user two of the same project."""
    cluster = Cluster()
    if policy != "fairshare":
        cluster.pool("default", policy=policy)
    cluster.node("n0", gpus=8)
    cluster.project("a", quota)
    cluster.job("runs", "a", pods=4, on="n0", min=1, user="one")
    cluster.job("next", "a", gpus=gpus, user="two")
    spend(cluster, "a", used=used)
    return len(decide(cluster.snapshot()).evictions)


def test_what_is_borrowed_under_a_used_budget_does_not_pass_from_user_to_user() -> None:
    assert evictions(used=100) == 0
    assert evictions(used=100, quota=3) == 0


def test_users_share_the_quota_of_a_project_that_has_used_its_budget() -> None:
    assert evictions(used=100, quota=4) == 2


def test_used_budget_takes_nothing_from_other_work_where_demand_is_shared() -> None:
    for quota in (0, 4, 5):
        assert evictions(used=100, quota=quota, policy="demand-weighted") == 0


def test_other_projects_take_back_by_demand_as_without_a_budget() -> None:
    def evicted(used: int) -> int:
        cluster = Cluster()
        cluster.pool("default", policy="demand-weighted")
        cluster.node("n0", gpus=8)
        for name in "ab":
            cluster.project(name, 0)
        cluster.job("runs", "a", pods=8, on="n0", min=1)
        cluster.job("other", "b", pods=8, min=1)
        spend(cluster, "a", used=used)
        return len(decide(cluster.snapshot()).evictions)

    assert evicted(used=300) == evicted(used=0) == 4


def test_budget_of_no_hours_is_used_before_any_use_is_known() -> None:
    for month in (MONTH, "1969-12", ""):
        cluster = one_node()
        for name in ("one", "two", "three"):
            cluster.job(name, "a")
        spend(cluster, "a", used=0, budget=0, month=month)
        plan = decide(cluster.snapshot())
        assert len(plan.admissions) == 2
        assert plan.waits["ns/three"].detail == (
            "ns/three: needs 1 GPU, a has a budget of 0 GPU-hours, so it borrows nothing above its"
            " quota of 2 GPUs"
        )


def test_non_preemptible_work_beyond_its_quota_is_not_told_to_wait_for_the_next_month() -> None:
    cluster = one_node()
    cluster.job("builds", "a", 2, on="n0", kind="build")
    cluster.job("build", "a", kind="build")
    cluster.job("train", "a")
    spend(cluster, "a", used=100)
    waits = decide(cluster.snapshot()).waits
    assert waits["ns/build"].reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA
    assert waits["ns/train"].reason is Reason.OVER_BUDGET
