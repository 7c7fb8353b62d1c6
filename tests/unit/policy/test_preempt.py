"""Preemption at a limit within a project (see run-ai/preempt.yaml for the other rules)."""

import pytest

from extender.api.reasons import Reason
from extender.policy.actions.reclaim import _ReclaimRule
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility
from tests.support.snapshots import Cluster, counts


def two_nodes(limit: int | None = None, department_limit: int | None = None) -> Cluster:
    """Project a runs four jobs of one GPU on n0; b and both nodes have room."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.node("n1", gpus=8)
    bounds = {} if department_limit is None else {"limit": department_limit}
    cluster.department("d", quota=8, **bounds)
    bounds = {} if limit is None else {"limit": limit}
    cluster.project("a", quota=4, department="d", **bounds)
    cluster.project("b", quota=4, department="d")
    for at in range(4):
        cluster.job(f"low-{at}", "a", on="n0", ran=100 - at)
    return cluster


class TestAtALimit:
    def test_project_at_its_limit_replaces_its_own_worse_work_though_cards_are_free(self) -> None:
        cluster = two_nodes(limit=4)
        cluster.job("high", "a", 2, priority=75)
        plan = decide(cluster.snapshot())
        assert {e.pod.name for e in plan.evictions} == {"low-2-0", "low-3-0"}
        assert {e.reason for e in plan.evictions} == {Reason.PREEMPTED}
        assert counts(plan)["high", "nominated"] == 1

    def test_no_more_is_taken_than_the_limit_lacks(self) -> None:
        cluster = two_nodes(limit=5)
        cluster.job("high", "a", 2, priority=75)
        assert counts(decide(cluster.snapshot()))["low-3", "evicted"] == 1

    def test_the_limit_of_a_department_is_met_from_the_project_alone(self) -> None:
        cluster = two_nodes(department_limit=6)
        cluster.job("other", "b", 2, on="n1")
        cluster.job("high", "a", 1, priority=75)
        got = counts(decide(cluster.snapshot()))
        assert got == {("low-3", "evicted"): 1, ("high", "nominated"): 1}

    def test_limit_that_another_project_fills_is_not_met(self) -> None:
        cluster = two_nodes(department_limit=8)
        cluster.job("other", "b", 4, on="n1")
        cluster.project("c", quota=4, department="d")
        cluster.job("high", "c", 1, priority=75)
        plan = decide(cluster.snapshot())
        assert plan.evictions == []
        assert plan.waits["ns/high"].reason is Reason.OVER_LIMIT

    def test_work_that_is_not_preemptible_may_too(self) -> None:
        cluster = two_nodes(limit=4)
        cluster.job("build", "a", 2, kind="build")
        got = counts(decide(cluster.snapshot()))
        assert got["build", "nominated"] == 1
        assert sum(n for (_, status), n in got.items() if status == "evicted") == 2

    def test_equal_priority_waits_for_the_limit(self) -> None:
        cluster = two_nodes(limit=4)
        cluster.job("same", "a", 2)
        plan = decide(cluster.snapshot())
        assert plan.evictions == []
        assert plan.waits["ns/same"].reason is Reason.OVER_LIMIT

    def test_surplus_goes_before_a_gang_that_could_not_go_on(self) -> None:
        cluster = two_nodes()
        cluster.project("e", quota=4, limit=4, department="d")
        cluster.job("whole", "e", pods=2, on="n1", ran=10)
        cluster.job("elastic", "e", pods=2, min=1, on="n1", ran=900)
        cluster.job("high", "e", 1, priority=75)
        got = counts(decide(cluster.snapshot()))
        assert got["elastic", "evicted"] == 1
        assert ("whole", "evicted") not in got


class TestWithWhatWasLent:
    def test_each_victim_is_told_its_own_reason(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=2)
        cluster.project("a", quota=2)
        cluster.project("b", quota=0)
        cluster.job("low", "a", on="n0", ran=60)
        cluster.job("lent", "b", on="n0", ran=60)
        cluster.job("high", "a", 2, priority=75)
        plan = decide(cluster.snapshot())
        assert {e.pod.name: e.reason for e in plan.evictions} == {
            "low-0": Reason.PREEMPTED,
            "lent-0": Reason.RECLAIMED,
        }
        notes = {e.pod.name: e.note for e in plan.evictions}
        assert notes["low-0"] == ""
        assert "quota" in notes["lent-0"]

    def test_no_pod_moves_where_reclaim_moves_none(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=3)
        cluster.node("n1", gpus=1)
        cluster.project("a", quota=3)
        cluster.project("b", quota=0)
        cluster.job("low", "a", 2, on="n0", ran=60)
        cluster.job("lent", "b", on="n0", ran=60)
        cluster.job("high", "a", 3, priority=75)
        moving, still = (
            decide(cluster.snapshot(), Settings(moves_reclaimed=moves)) for moves in (True, False)
        )
        assert [move.placement.pod.name for move in moving.moves] == ["lent-0"]
        assert counts(still)["lent", "evicted"] == 1

    def test_what_was_lent_is_found_once_for_all_projects(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster, found = Cluster(), list[Candidates]()
        cluster.project("b", quota=0)
        for at in range(5):
            cluster.node(f"n{at}", gpus=2)
            cluster.project(f"a{at}", quota=2)
            cluster.job(f"low{at}", f"a{at}", on=f"n{at}", ran=60)
            cluster.job(f"lent{at}", "b", on=f"n{at}", ran=60)
            cluster.job(f"high{at}", f"a{at}", 2, priority=75)
        find = _ReclaimRule.eligibility

        def count(rule: _ReclaimRule, candidates: Candidates) -> Eligibility:
            found.append(candidates)
            return find(rule, candidates)

        monkeypatch.setattr(_ReclaimRule, "eligibility", count)
        plan = decide(cluster.snapshot(), Settings(stages=("preempt",)))
        assert len(plan.evictions) == 10
        assert len(found) == 1
