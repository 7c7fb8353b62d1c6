"""The fair share of each queue (cases after shared/scenarios/run-ai/fair-share and departments)."""

from dataclasses import replace

import pytest

from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import GPU, Figures, PoolQuota, QueueView, user_queue
from tests.support.snapshots import Cluster, counts, fair_shares


def shares_of(cluster: Cluster) -> dict[str, int]:
    """Fair shares of the projects, in GPUs where they are whole."""
    found = fair_shares(decide(cluster.snapshot()))
    return {name: milli // 1000 if milli % 1000 == 0 else milli for name, milli in found.items()}


def claims(gpus: int, *wanted: int) -> Cluster:
    """`gpus` on one node; projects a, b, c, ... are added by the test and want so many GPUs."""
    cluster = Cluster()
    cluster.node("n0", gpus=gpus)
    for name, pods in zip("abcdef", wanted, strict=False):
        cluster.job(f"{name}-jobs", name, pods=pods, min=1)
    return cluster


@pytest.mark.parametrize(
    ("gpus", "queues", "wanted", "shares"),
    [
        pytest.param(8, [(3, 3), (1, 1)], [8, 8], [6, 2], id="over quota by quota"),
        pytest.param(8, [(3, 1), (1, 3)], [8, 8], [4, 4], id="weight may reverse the quotas"),
        pytest.param(6, [(2, 0), (2, 1)], [6, 6], [2, 4], id="weight none has no surplus"),
        pytest.param(40, [(14, 2), (6, 3), (0, 1)], [40, 40, 40], [21, 16, 3], id="2 3 1 of 40"),
        pytest.param(40, [(20, 2), (6, 3), (0, 1)], [5, 40, 40], [5, 28, 7], id="unused quota"),
        pytest.param(12, [(0, 1), (0, 1), (0, 1)], [2, 4, 12], [2, 4, 6], id="demand caps"),
        pytest.param(
            20, [(0, 1), (0, 2), (0, 3), (0, 4)], [10, 3, 10, 2], [5, 3, 10, 2], id="rounds"
        ),
        pytest.param(10, [(0, 1), (0, 1), (0, 1)], [10, 10, 10], [4, 3, 3], id="odd to oldest"),
        pytest.param(9, [(0, 5), (0, 3), (0, 2)], [9, 9, 9], [4, 3, 2], id="largest remainder"),
        pytest.param(8, [(4, 1), (0, 1)], [8, 8], [6, 2], id="no quota has surplus too"),
        pytest.param(8, [(6, 1), (6, 1)], [8, 8], [4, 4], id="oversubscribed in proportion"),
        pytest.param(8, [(2, 1), (6, 1)], [1, 2], [1, 2], id="demand below quota"),
    ],
)
def test_share_is_quota_then_surplus_by_weight(
    gpus: int, queues: list[tuple[int, int]], wanted: list[int], shares: list[int]
) -> None:
    cluster = claims(gpus, *wanted)
    for name, (quota, weight) in zip("abcdef", queues, strict=False):
        cluster.project(name, quota, weight=weight)
    plan = decide(cluster.snapshot())
    assert [fair_shares(plan)[name] // 1000 for name in "abcdef"[: len(queues)]] == shares
    got = counts(plan)
    assert [got.get((f"{name}-jobs", "reserved"), 0) for name in "abcdef"[: len(queues)]] == shares


def test_limit_caps_the_share_and_other_queues_get_the_remainder() -> None:
    cluster = claims(12, 12, 12)
    cluster.project("a", 2, limit=4, weight=3)
    cluster.project("b", 2)
    assert shares_of(cluster) == {"a": 4, "b": 8}


def test_lower_rank_has_all_it_wants_before_the_next_rank() -> None:
    cluster = claims(6, 6, 4)
    cluster.project("a", weight=5, rank=2)
    cluster.project("b", weight=1, rank=1)
    assert shares_of(cluster) == {"a": 2, "b": 4}


def test_fractions_of_a_rank_are_rounded_inside_it() -> None:
    cluster = claims(7, 8, 8, 8, 8, 3)
    for name in "abcd":
        cluster.project(name, rank=1)
    cluster.project("e", rank=2)
    assert shares_of(cluster) == {"a": 2, "b": 2, "c": 2, "d": 1, "e": 0}


def test_fractional_work_has_its_share_to_the_milli() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    for name in "ab":
        cluster.project(name)
        cluster.job(f"{name}-jobs", name, "0.25", pods=4, min=1)
    assert shares_of(cluster) == {"a": 500, "b": 500}


def test_non_preemptible_work_beyond_quota_entitles_to_nothing() -> None:
    cluster = claims(8)
    cluster.project("a", 2)
    cluster.project("b", 2)
    cluster.job("builds", "a", pods=8, min=1, kind="build")
    cluster.job("trains", "b", pods=8, min=1)
    assert shares_of(cluster) == {"a": 2, "b": 6}


def test_workload_that_cannot_be_placed_at_all_entitles_to_nothing() -> None:
    cluster = claims(8)
    cluster.project("a")
    cluster.job("a-job", "a", 4, max=0)
    assert shares_of(cluster) == {"a": 0}


def test_departments_divide_the_surplus_by_quota_and_projects_by_weight() -> None:
    cluster = claims(16, 16, 16, 16)
    cluster.department("d1", 6)
    cluster.department("d2", 2)
    cluster.project("a", 3, department="d1", weight=1)
    cluster.project("b", 3, department="d1", weight=2)
    cluster.project("c", 2, department="d2", weight=9)
    assert shares_of(cluster) == {"a": 5, "b": 7, "c": 4}


def test_departments_without_any_quota_share_equally() -> None:
    cluster = claims(8, 8, 8)
    cluster.department("d1")
    cluster.department("d2")
    cluster.project("a", department="d1", weight=1)
    cluster.project("b", department="d2", weight=5)
    assert shares_of(cluster) == {"a": 4, "b": 4}


def test_department_quota_goes_before_the_quotas_of_its_projects() -> None:
    cluster = claims(8, 8, 8, 8)
    cluster.department("d1", 4)
    cluster.department("d2", 4)
    cluster.project("a", 4, department="d1")
    cluster.project("b", 4, department="d1")
    cluster.project("c", 4, department="d2")
    assert shares_of(cluster) == {"a": 2, "b": 2, "c": 4}


def test_department_limit_bounds_its_projects_together() -> None:
    cluster = claims(12, 12, 12)
    cluster.department("d1", 4, limit=5)
    cluster.department("d2", 4)
    cluster.project("a", 4, department="d1")
    cluster.project("b", 4, department="d2")
    assert shares_of(cluster) == {"a": 5, "b": 7}


def test_department_that_does_not_exist_has_the_quotas_of_its_projects() -> None:
    cluster = claims(9, 9, 9)
    cluster.department("d2", 3)
    cluster.project("a", 6, department="absent")
    cluster.project("b", 3, department="d2")
    plan = decide(cluster.snapshot())
    assert fair_shares(plan) == {"a": 6000, "b": 3000}
    assert plan.shares["department/absent", "default"].quota[GPU] == 6000


def test_shares_are_counted_per_node_pool() -> None:
    cluster = Cluster()
    for pool in ("a100", "h100"):
        cluster.node(f"n-{pool}", gpus=4, pool=pool)
    cluster.project(
        "a", pools={"a100": PoolQuota(Figures(weight=1)), "h100": PoolQuota(Figures(weight=3))}
    )
    cluster.project(
        "b", pools={"a100": PoolQuota(Figures(weight=3)), "h100": PoolQuota(Figures(weight=1))}
    )
    for project in "ab":
        for pool in ("a100", "h100"):
            cluster.job(f"{project}-{pool}", project, pods=4, min=1, pools=[pool])
    plan = decide(cluster.snapshot())
    assert fair_shares(plan, "a100") == {"a": 1000, "b": 3000}
    assert fair_shares(plan, "h100") == {"a": 3000, "b": 1000}


def test_nodes_that_are_not_ready_do_not_count_for_shares() -> None:
    cluster = claims(4, 8)
    cluster.node("n1", gpus=4, is_ready=False)
    cluster.project("a")
    assert shares_of(cluster) == {"a": 4}


def test_work_outside_every_project_is_not_shared() -> None:
    cluster = claims(8, 8)
    cluster.project("a")
    cluster.job("alien", "nobody", 3, on="n0")
    assert shares_of(cluster) == {"a": 5}


def test_published_figures_are_those_of_the_ledger() -> None:
    cluster = claims(8)
    cluster.project("a", 4, limit=6)
    cluster.job("runs", "a", 2, on="n0")
    cluster.job("leaves", "a", 1, on="n0", terminating=True)
    cluster.job("build", "a", 1, on="n0", kind="build")
    cluster.job("promised", "a", 1, on="n0", state="nominated")
    cluster.job("waits", "a", 1)
    share = decide(cluster.snapshot()).shares["a", "default"]
    assert share.quota[GPU] == 4000
    assert share.limit[GPU] == 6000
    assert share.allocated[GPU] == 4000
    assert share.allocated_non_preemptible[GPU] == 1000
    assert share.requested[GPU] == 5000


def test_no_queue_gets_more_than_its_limit_by_rounding() -> None:
    # KAI gives one of the two a whole GPU, and the other nothing.
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    for name in "ab":
        cluster.project(name, limit="0.6")
        cluster.job(f"{name}-jobs", name, "0.1", pods=8, min=1)
    assert shares_of(cluster) == {"a": 500, "b": 500}


def test_fractions_of_the_upper_rank_do_not_flow_to_the_lower() -> None:
    # KAI gives the one GPU to the lower rank, since half of it is nothing to either of the upper.
    cluster = claims(1, 1, 1, 1)
    cluster.project("a", rank=1)
    cluster.project("b", rank=1)
    cluster.project("c", rank=2)
    assert shares_of(cluster) == {"a": 1, "b": 0, "c": 0}


def test_oversubscribed_quotas_go_to_the_lower_rank_where_they_are_equal() -> None:
    cluster = claims(1, 1, 1)
    cluster.project("a", 1, rank=2)
    cluster.project("b", 1, rank=1)
    assert shares_of(cluster) == {"a": 0, "b": 1}


def test_oversubscribed_quotas_larger_than_the_pool_are_proportions() -> None:
    cluster = claims(4, 8, 8)
    cluster.project("a", 30)
    cluster.project("b", 10)
    assert shares_of(cluster) == {"a": 3, "b": 1}


def test_queues_below_queues_divide_what_the_upper_one_has() -> None:
    cluster = claims(8, 8, 8, 8)
    cluster.department("company", 8)
    for name, weight in (("left", 3), ("right", 1)):
        figures = PoolQuota(Figures(weight=weight))
        parent = "department/company"
        cluster.departments[name] = QueueView(name, parent, pools={"default": figures})
    for name, parent in (("a", "left"), ("b", "left"), ("c", "right")):
        cluster.projects[name] = QueueView(
            name, parent, created_at=ord(name), pools={"default": PoolQuota()}
        )
    shares = shares_of(cluster)
    assert {name: shares[name] for name in "abc"} == {"a": 3, "b": 3, "c": 2}


def test_users_have_equal_parts_of_their_project() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 4)
    cluster.project("b", 4)
    cluster.job("ada", "a", pods=8, min=1, user="ada")
    cluster.job("bob", "a", pods=1, user="bob")
    cluster.job("b-jobs", "b", pods=8, min=1)
    shares = shares_of(cluster)
    assert (shares["a"], shares["b"]) == (4, 4)
    assert shares[user_queue("a", "ada")] == 3
    assert shares[user_queue("a", "bob")] == 1


def test_non_preemptible_demand_beyond_the_quota_of_the_department_is_none() -> None:
    cluster = claims(8)
    cluster.department("d1", 2)
    cluster.department("d2", 2)
    for name in "ab":
        cluster.project(name, 2, department="d1")
        cluster.job(f"{name}-builds", name, pods=2, min=1, kind="build")
    cluster.project("c", 2, department="d2")
    cluster.job("c-jobs", "c", pods=8, min=1)
    assert shares_of(cluster) == {"a": 1, "b": 1, "c": 6}


@pytest.mark.parametrize(
    ("usage_weight_milli", "shares"),
    [
        pytest.param(0, [4, 4], id="switched off"),
        # a: 1/2 + (1/2 - 3/4) = 1/4, b: 1/2 + (1/2 - 1/4) = 3/4
        pytest.param(1000, [2, 6], id="once"),
        # a: 1/2 + 2 (1/2 - 3/4) = 0, b: 1/2 + 2 (1/2 - 1/4) = 1
        pytest.param(2000, [0, 8], id="twice"),
    ],
)
def test_past_usage_bends_the_weights(usage_weight_milli: int, shares: list[int]) -> None:
    cluster = claims(8, 8, 8)
    cluster.project("a", used=750_000)
    cluster.project("b", used=250_000)
    plan = decide(cluster.snapshot(), Settings(usage_weight_milli=usage_weight_milli))
    assert [fair_shares(plan)[name] // 1000 for name in "ab"] == shares


def test_past_usage_does_not_touch_quota() -> None:
    cluster = claims(8, 8, 8)
    cluster.project("a", 4, used=1_000_000)
    cluster.project("b", 0)
    plan = decide(cluster.snapshot(), Settings(usage_weight_milli=1000))
    assert fair_shares(plan) == {"a": 4000, "b": 4000}


def test_what_only_heavy_users_want_is_still_given() -> None:
    cluster = claims(8, 8, 2)
    cluster.project("a", used=1_000_000)
    cluster.project("b")
    plan = decide(cluster.snapshot(), Settings(usage_weight_milli=1000))
    assert fair_shares(plan) == {"a": 6000, "b": 2000}


def test_halves_round_the_shares_of_who_can_use_them() -> None:
    # 1 over quota by weights 3 and 1 is 0.75 and 0.25: in halves 0.5 and 0, and the rest to a.
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.project("a", 1, weight=3)
    cluster.project("b", 2, weight=1)
    cluster.job("a-jobs", "a", "0.5", pods=8, min=1)
    cluster.job("b-jobs", "b", "0.5", pods=8, min=1)
    assert shares_of(cluster) == {"a": 2, "b": 2}


def test_work_within_an_oversubscribed_quota_may_be_taken_from_work_above_quota() -> None:
    # Quotas of 6 and 5 on 8 GPUs: b's part is 4, but its quota covers the 5 that it asks for.
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", 6)
    cluster.project("b", 5)
    cluster.job("a-job", "a", 8, on="n0")
    cluster.job("b-job", "b", 5)
    got = counts(decide(cluster.snapshot()))
    assert got == {("a-job", "evicted"): 1, ("b-job", "nominated"): 1}


def test_a_chain_of_thousands_of_queues_is_divided() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1)
    cluster.project("q1999")
    cluster.job("job", "q1999")
    snapshot = cluster.snapshot()
    chain = [QueueView(f"q{at}", parent=f"q{at - 1}" if at else "") for at in range(2000)]
    snapshot.queues = {view.name: view for view in chain}
    assert counts(decide(snapshot)) == {("job", "reserved"): 1}


def test_project_without_a_name_is_a_queue_as_any_other() -> None:
    cluster = claims(2)
    cluster.project("", 1)
    cluster.projects[""] = replace(cluster.projects[""], parent="")
    cluster.job("nameless", "", pods=2, min=1)
    assert counts(decide(cluster.snapshot())) == {("nameless", "reserved"): 2}
