"""Reclaim between queues (cases after run-ai/{reclaim,departments,elastic,gangs}.yaml)."""

from typing import Any

from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import Figures, PoolQuota
from tests.support.snapshots import Cluster, counts, fair_shares, statuses


def full_node(gpus: int, **queues: dict[str, Any]) -> Cluster:
    """One node; projects named by keyword, with their figures."""
    cluster = Cluster()
    cluster.node("n0", gpus=gpus)
    for name, figures in queues.items():
        cluster.project(name, **figures)
    return cluster


def notes(cluster: Cluster) -> set[str]:
    return {eviction.note for eviction in decide(cluster.snapshot()).evictions}


def evicted(cluster: Cluster) -> set[str]:
    return {eviction.pod.name for eviction in decide(cluster.snapshot()).evictions}


class TestNotes:
    """What owners of reclaimed work are told: the figures by which the victims were chosen."""

    def test_within_its_quota_the_quotas_are_reported(self) -> None:
        # b holds less than its fair share of 6, since the free GPUs are on nodes of one GPU.
        cluster = full_node(4, a={"quota": 4}, b={"quota": 2})
        for number in range(4):
            cluster.node(f"small{number}", gpus=1)
        cluster.job("b-jobs", "b", 2, pods=2, on="n0", min=1)
        cluster.job("b-waits", "b", 3)
        cluster.job("a-job", "a", 2)
        assert notes(cluster) == {"a holds 0 GPUs (quota 4); b holds 4 GPUs (quota 2)"}

    def test_above_its_quota_the_fair_shares_are_reported(self) -> None:
        cluster = full_node(8, a={"quota": 1}, b={"quota": 1, "weight": 3})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-job", "a", 2)
        assert notes(cluster) == {"a holds 0 GPUs (fair share 2); b holds 8 GPUs (fair share 6)"}

    def test_queues_of_two_departments_are_reported_with_their_departments(self) -> None:
        cluster = full_node(8)
        cluster.department("there", 6)
        cluster.department("here", 2)
        cluster.project("a", 2, department="there")
        cluster.project("b", 2, department="here")
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-job", "a", 2)
        assert notes(cluster) == {
            "a holds 0 GPUs (quota 2), department there holds 0 GPUs (quota 6);"
            " b holds 8 GPUs (quota 2), department here holds 8 GPUs (quota 2)"
        }

    def test_users_are_named_within_their_project_only(self) -> None:
        cluster = full_node(8, a={"quota": 4}, b={"quota": 4})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1, user="ben")
        cluster.job("a-job", "a", 2, user="ann")
        assert notes(cluster) == {"a holds 0 GPUs (quota 4); b holds 8 GPUs (quota 4)"}


class TestShares:
    def test_owner_gets_its_quota_back_for_a_job_of_four(self) -> None:
        cluster = full_node(8, a={"quota": 4}, b={"quota": 4})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-job", "a", 4)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("b-jobs", "evicted"): 4, ("a-job", "nominated"): 1}
        assert {eviction.reason for eviction in plan.evictions} == {Reason.RECLAIMED}
        assert {eviction.beneficiary for eviction in plan.evictions} == {"ns/a-job"}
        assert {eviction.workload for eviction in plan.evictions} == {"ns/b-jobs"}

    def test_no_more_is_taken_than_is_asked(self) -> None:
        cluster = full_node(8, a={"quota": 4}, b={"quota": 4})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-job", "a", 1)
        assert counts(decide(cluster.snapshot()))["b-jobs", "evicted"] == 1

    def test_preemptor_stops_at_its_fair_share(self) -> None:
        cluster = full_node(8, a={"quota": 2, "weight": 1}, b={"quota": 2, "weight": 3})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-jobs", "a", pods=8, min=1)
        got = counts(decide(cluster.snapshot()))
        assert got == {("b-jobs", "evicted"): 3, ("a-jobs", "nominated"): 3}

    def test_borrowers_without_quota_share_too(self) -> None:
        cluster = full_node(8, a={}, b={"weight": 3})
        cluster.job("a-jobs", "a", pods=8, on="n0", min=1)
        cluster.job("b-jobs", "b", pods=8, min=1)
        got = counts(decide(cluster.snapshot()))
        assert got == {("a-jobs", "evicted"): 6, ("b-jobs", "nominated"): 6}

    def test_job_larger_than_the_share_takes_nothing(self) -> None:
        cluster = full_node(8, a={}, b={})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-job", "a", 6)
        plan = decide(cluster.snapshot())
        assert not plan.evictions
        assert plan.waits["ns/a-job"].reason is Reason.OVER_FAIR_SHARE

    def test_odd_gpu_does_not_wander(self) -> None:
        cluster = full_node(5, a={}, b={})
        cluster.job("a-jobs", "a", pods=3, on="n0", min=1)
        cluster.job("b-jobs", "b", pods=2, on="n0", min=1)
        cluster.job("a-more", "a", pods=2, min=1)
        cluster.job("b-more", "b", pods=2, min=1)
        assert not statuses(decide(cluster.snapshot()))

    def test_queues_above_their_share_pay_before_queues_above_quota(self) -> None:
        cluster = full_node(10, a={"quota": 2}, b={"quota": 2}, c={"quota": 2})
        cluster.job("b-jobs", "b", pods=6, on="n0", min=1, ran=9000)
        cluster.job("c-jobs", "c", pods=4, on="n0", min=1, ran=1)
        cluster.job("a-job", "a", 2)
        assert counts(decide(cluster.snapshot()))["b-jobs", "evicted"] == 2

    def test_two_lenders_pay_back_what_each_is_above(self) -> None:
        cluster = full_node(12, a={"quota": 6}, b={"quota": 3}, c={"quota": 3})
        cluster.job("b-jobs", "b", pods=7, on="n0", min=1)
        cluster.job("c-jobs", "c", pods=5, on="n0", min=1)
        cluster.job("a-jobs", "a", pods=6, min=1)
        got = counts(decide(cluster.snapshot()))
        assert (got["b-jobs", "evicted"], got["c-jobs", "evicted"]) == (4, 2)

    def test_work_within_quota_is_safe_even_where_quotas_exceed_the_cluster(self) -> None:
        cluster = full_node(4, a={"quota": 4}, b={"quota": 4})
        cluster.job("b-jobs", "b", pods=4, on="n0", min=1)
        cluster.job("a-job", "a", 2)
        assert not statuses(decide(cluster.snapshot()))

    def test_priority_means_nothing_between_projects(self) -> None:
        cluster = full_node(2, a={"quota": 2}, b={})
        cluster.job("notebook", "b", 2, on="n0", priority=75)
        cluster.job("train", "a", 2)
        assert statuses(decide(cluster.snapshot())) == {
            "notebook-0": "evicted",
            "train-0": "nominated",
        }

    def test_pool_without_preemption_evicts_no_pod(self) -> None:
        cluster = full_node(2, a={"quota": 2}, b={})
        cluster.pool("default", has_preemption=False)
        cluster.job("b-job", "b", 2, on="n0")
        cluster.job("a-job", "a", 2)
        assert not statuses(decide(cluster.snapshot()))

    def test_other_node_pools_are_not_touched(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=2, pool="a100")
        cluster.node("n1", gpus=2, pool="h100")
        cluster.project("a", pools={"a100": PoolQuota(Figures(2000))})
        cluster.project("b")
        cluster.job("b-a", "b", pods=2, on="n0", min=1, ran=7200, pools=["a100"])
        cluster.job("b-h", "b", pods=2, on="n1", min=1, ran=60, pools=["h100"])
        cluster.job("job", "a", pools=["a100"])
        assert counts(decide(cluster.snapshot())) == {
            ("b-a", "evicted"): 1,
            ("job", "nominated"): 1,
        }


class TestDepartments:
    def test_department_above_its_share_pays_not_the_project_inside_one_within(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=10)
        for name, quota in (("d1", 4), ("d2", 4), ("d3", 2)):
            cluster.department(name, quota)
        cluster.project("a", 4, department="d1")
        cluster.project("b", 2, department="d2")
        cluster.project("b2", 2, department="d2")
        cluster.project("c", 2, department="d3")
        cluster.job("a-jobs", "a", pods=6, on="n0", min=1, ran=9000)
        cluster.job("b-jobs", "b", pods=4, on="n0", min=1, ran=1)
        cluster.job("c-job", "c", 2)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("a-jobs", "evicted"): 2, ("c-job", "nominated"): 1}

    def test_sibling_gives_back_in_a_department_at_its_share(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.department("d1", 8)
        cluster.project("a", 4, department="d1")
        cluster.project("b", 4, department="d1")
        cluster.job("a-jobs", "a", pods=6, on="n0", min=1)
        cluster.job("b-old", "b", 2, on="n0")
        cluster.job("b-new", "b", 2)
        assert counts(decide(cluster.snapshot())) == {
            ("a-jobs", "evicted"): 2,
            ("b-new", "nominated"): 1,
        }

    def test_department_at_its_share_takes_nothing_from_others(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.department("d1", 4)
        cluster.department("d2", 4)
        cluster.project("a", 2, department="d1")
        cluster.project("b", 2, department="d1")
        cluster.project("c", 4, department="d2")
        cluster.job("a-jobs", "a", pods=4, on="n0", min=4, kind="build", preemptible=False)
        cluster.job("c-jobs", "c", pods=4, on="n0", min=1)
        cluster.job("b-job", "b", 2)
        assert not decide(cluster.snapshot()).evictions


class TestVictims:
    def test_non_preemptible_work_is_never_taken(self) -> None:
        cluster = full_node(4, a={"quota": 4}, b={"quota": 0})
        cluster.job("b-jobs", "b", pods=4, on="n0", min=1, kind="build")
        cluster.job("a-job", "a", 2)
        assert not statuses(decide(cluster.snapshot()))

    def test_only_the_victim_that_suffices_goes(self) -> None:
        cluster = full_node(7, a={"quota": 4}, b={"quota": 3})
        for gpus in (1, 2, 4):
            cluster.job(f"b{gpus}", "b", gpus, on="n0")
        cluster.job("a-job", "a", 4)
        assert evicted(cluster) == {"b4-0"}

    def test_fewest_gpu_seconds_are_lost(self) -> None:
        cluster = full_node(1, a={"quota": 1}, b={})
        cluster.job("old", "b", "0.5", on="n0", cards=[0], ran=600)
        cluster.job("young", "b", "0.5", on="n0", cards=[0], ran=60)
        cluster.job("a-job", "a", "0.5")
        assert evicted(cluster) == {"young-0"}

    def test_whole_card_takes_both_halves_of_one_card(self) -> None:
        cluster = full_node(2, a={"quota": 1}, b={})
        for at, (card, ran) in enumerate(((0, 10), (1, 20), (0, 500), (1, 30))):
            cluster.job(f"b{at}", "b", "0.5", on="n0", cards=[card], ran=ran)
        cluster.job("a-job", "a", 1)
        assert evicted(cluster) == {"b1-0", "b3-0"}

    def test_idle_card_on_the_node_saves_a_victim(self) -> None:
        cluster = full_node(4, a={"quota": 2}, b={})
        cluster.node("n1", gpus=4)
        cluster.job("b-n0", "b", pods=3, on="n0", min=1)
        cluster.job("b-n1", "b", pods=4, on="n1", min=1)
        cluster.job("a-job", "a", 2)
        assert counts(decide(cluster.snapshot())) == {
            ("b-n0", "evicted"): 1,
            ("a-job", "nominated"): 1,
        }

    def test_what_did_not_help_is_put_back(self) -> None:
        cluster = full_node(2, a={"quota": 2}, b={}, c={"quota": 1})
        cluster.node("n1", gpus=2)
        cluster.job("c-build", "c", on="n0", kind="build")
        cluster.job("b-old", "b", 2, on="n1", ran=3600)
        cluster.job("b-young", "b", on="n0", ran=60)
        cluster.job("a-job", "a", 2)
        assert evicted(cluster) == {"b-old-0"}

    def test_no_pod_is_evicted_if_the_preemptor_would_not_fit(self) -> None:
        cluster = full_node(2, a={"quota": 2}, b={}, c={"quota": 2})
        cluster.node("n1", gpus=2)
        for node in ("n0", "n1"):
            cluster.job(f"c-{node}", "c", on=node, kind="build")
            cluster.job(f"b-{node}", "b", on=node)
        cluster.job("a-job", "a", 2)
        assert not statuses(decide(cluster.snapshot()))

    def test_one_large_pod_costs_eight_of_many_nodes_full_of_borrowers(self) -> None:
        cluster = full_node(8, a={"quota": 8}, b={})
        for at in range(1, 24):
            cluster.node(f"n{at}", gpus=8)
        for at in range(24 * 8):
            cluster.job(f"b{at}", "b", on=f"n{at % 24}", ran=60 + at)
        cluster.job("big", "a", 8)
        plan = decide(cluster.snapshot())
        assert {eviction.pod.node for eviction in plan.evictions} == {"n0"}
        assert len(plan.evictions) == 8

    def test_minimum_run_time_protects_until_it_is_over(self) -> None:
        for ran, is_safe in ((60, True), (660, False)):
            cluster = full_node(2, a={"quota": 2}, b={"min_runtime": 600})
            cluster.job("b-job", "b", 2, on="n0", ran=ran)
            cluster.job("a-job", "a", 2)
            assert (evicted(cluster) == set()) is is_safe

    def test_pods_that_a_disruption_budget_protects_are_left(self) -> None:
        cluster = full_node(2, a={"quota": 1}, b={})
        cluster.job("guarded", "b", on="n0", ran=10)
        cluster.job("other", "b", on="n0", ran=1000)
        cluster.job("a-job", "a")
        settings = Settings(protected_pods=frozenset({"guarded-0"}))
        plan = decide(cluster.snapshot(), settings)
        assert {eviction.pod.name for eviction in plan.evictions} == {"other-0"}

    def test_workload_that_is_still_being_bound_is_no_victim(self) -> None:
        cluster = full_node(2, a={"quota": 2}, b={})
        cluster.job("b-job", "b", 2, on="n0", state="reserved")
        cluster.job("a-job", "a", 2)
        assert not evicted(cluster)


class TestGangs:
    def test_gang_takes_both_nodes_back_at_once(self) -> None:
        cluster = full_node(2, a={"quota": 4}, b={})
        cluster.node("n1", gpus=2)
        cluster.job("b-jobs", "b", on=["n0", "n0", "n1", "n1"], min=1)
        cluster.job("gang", "a", pods=4)
        assert counts(decide(cluster.snapshot())) == {
            ("b-jobs", "evicted"): 4,
            ("gang", "nominated"): 4,
        }

    def test_nothing_is_taken_for_a_part_of_a_gang(self) -> None:
        cluster = full_node(2, a={"quota": 4}, b={}, c={"quota": 1})
        cluster.node("n1", gpus=2)
        cluster.job("c-build", "c", on="n1", kind="build")
        cluster.job("b-jobs", "b", on=["n0", "n0", "n1"], min=1)
        cluster.job("gang", "a", pods=4)
        assert not statuses(decide(cluster.snapshot()))

    def test_victims_of_a_failed_try_serve_the_next_workload(self) -> None:
        cluster = full_node(2, a={"quota": 4}, b={}, c={"quota": 1})
        cluster.node("n1", gpus=2)
        cluster.job("c-build", "c", on="n1", kind="build")
        cluster.job("b-jobs", "b", on=["n0", "n0", "n1"], min=1)
        cluster.job("gang", "a", pods=4)
        cluster.job("single", "a", 2)
        assert counts(decide(cluster.snapshot())) == {
            ("b-jobs", "evicted"): 2,
            ("single", "nominated"): 1,
        }

    def test_gang_victim_goes_whole_and_does_not_take_back(self) -> None:
        cluster = full_node(4, a={"quota": 1}, b={})
        cluster.job("gang", "b", pods=4, on="n0")
        cluster.job("a-job", "a")
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("gang", "evicted"): 4, ("a-job", "nominated"): 1}
        assert fair_shares(plan) == {"a": 1000, "b": 3000}
        cluster = full_node(4, a={"quota": 1}, b={})
        cluster.job("a-job", "a", on="n0")
        cluster.job("gang", "b", pods=4)
        assert not statuses(decide(cluster.snapshot()))

    def test_surplus_shrinks_before_anything_goes_whole(self) -> None:
        cluster = full_node(8, a={"quota": 2}, b={})
        cluster.job("elastic", "b", pods=4, on="n0", min=2, ran=9000)
        cluster.job("gang", "b", pods=4, on="n0", ran=1)
        cluster.job("a-job", "a", 2)
        assert counts(decide(cluster.snapshot()))["elastic", "evicted"] == 2

    def test_two_elastic_jobs_give_one_each(self) -> None:
        cluster = full_node(4, a={"quota": 2}, b={"quota": 2})
        cluster.job("e1", "b", pods=2, on="n0", min=1)
        cluster.job("e2", "b", pods=2, on="n0", min=1)
        cluster.job("a-job", "a", 2)
        got = counts(decide(cluster.snapshot()))
        assert (got["e1", "evicted"], got["e2", "evicted"]) == (1, 1)

    def test_below_its_minimum_an_elastic_job_goes_whole(self) -> None:
        cluster = full_node(3, a={"quota": 2}, b={})
        cluster.job("elastic", "b", pods=3, on="n0", min=2)
        cluster.job("a-job", "a", 2)
        assert counts(decide(cluster.snapshot()))["elastic", "evicted"] == 3

    def test_early_victim_is_put_back_when_a_later_one_frees_enough(self) -> None:
        cluster = full_node(1, a={"quota": 2}, b={})
        cluster.node("n1", gpus=4)
        cluster.job("single", "b", 1, on="n0", ran=1)
        cluster.job("whole", "b", 4, on="n1", ran=100)
        cluster.job("gang", "a", pods=2)
        assert evicted(cluster) == {"whole-0"}


class TestPlacesThatAreBeingLeft:
    def test_pods_on_their_way_out_are_waited_for_instead_of_new_victims(self) -> None:
        cluster = full_node(2, a={"quota": 1}, b={})
        cluster.job("leaves", "b", on="n0", terminating=True)
        cluster.job("stays", "b", on="n0")
        cluster.job("a-job", "a")
        assert statuses(decide(cluster.snapshot())) == {"a-job-0": "nominated"}

    def test_free_card_is_reserved_though_another_is_being_left(self) -> None:
        cluster = full_node(2, a={}, b={})
        cluster.job("leaves", "b", on="n0", terminating=True)
        cluster.job("a-job", "a")
        plan = decide(cluster.snapshot())
        assert statuses(plan) == {"a-job-0": "reserved"}
        assert plan.admissions[0].placements[0].cards[0].index == 1

    def test_all_of_a_gang_waits_when_part_of_it_must(self) -> None:
        cluster = full_node(2, a={}, b={})
        cluster.job("leaves", "b", on="n0", terminating=True)
        cluster.job("gang", "a", pods=2)
        assert counts(decide(cluster.snapshot())) == {("gang", "nominated"): 2}


class TestBand:
    def test_above_quota_a_queue_takes_only_what_it_lacks_beyond_the_band(self) -> None:
        cluster = full_node(30, blue={}, pink={})
        cluster.job("blue-jobs", "blue", pods=20, on="n0", min=1)
        cluster.job("pink-jobs", "pink", pods=10, on="n0", min=1)
        cluster.job("pink-more", "pink", pods=5, min=1)
        # A quarter of 15 is 3 whole GPUs: 12 is close enough.
        cluster.pool("default", reclaim_band_percent=25)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("blue-jobs", "evicted"): 2, ("pink-more", "nominated"): 2}
        assert plan.waits["ns/pink-more"].reason is Reason.OVER_FAIR_SHARE

    def test_a_gang_that_would_end_within_the_band_takes_nothing_and_says_up_to_where(self) -> None:
        cluster = full_node(30, blue={}, pink={})
        cluster.job("blue-jobs", "blue", pods=20, on="n0", min=1)
        cluster.job("pink-jobs", "pink", pods=10, on="n0", min=1)
        cluster.job("pink-gang", "pink", pods=4)
        cluster.pool("default", reclaim_band_percent=25)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {}
        assert plan.waits["ns/pink-gang"] == Refused(
            Reason.OVER_FAIR_SHARE,
            "ns/pink-gang: above its quota pink reclaims only up to 11 GPUs (reclaimBandPercent: 25"
            " % below its fair share of 14), and with this work it would hold 14",
        )

    def test_within_quota_the_band_takes_nothing_away(self) -> None:
        cluster = full_node(8, a={"quota": 4}, b={"quota": 4})
        cluster.job("b-jobs", "b", pods=8, on="n0", min=1)
        cluster.job("a-jobs", "a", pods=4, min=1)
        cluster.pool("default", reclaim_band_percent=100)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("b-jobs", "evicted"): 4, ("a-jobs", "nominated"): 4}


class TestHostOfGpus:
    """CPU-only work of queues that state no CPU quota leaves for GPU work within quota."""

    def crowd(self, **owner: Any) -> Cluster:
        """Work without GPUs of `hog` fills the CPUs of a GPU node that `owner` wants to use."""
        cluster = Cluster()
        cluster.node("n0", gpus=8, cpu=8000)
        cluster.project("hog")
        cluster.project("owner", **owner)
        cluster.job("cpu-jobs", "hog", 0, pods=8, on="n0", min=1, cpu=1000)
        return cluster

    def test_work_within_its_gpu_quota_gets_the_cpus_that_it_needs(self) -> None:
        cluster = self.crowd(quota=8)
        cluster.job("train", "owner", 2, cpu=2000)
        got = counts(decide(cluster.snapshot()))
        assert got == {("cpu-jobs", "evicted"): 2, ("train", "nominated"): 1}

    def test_work_above_its_gpu_quota_does_not(self) -> None:
        cluster = self.crowd(quota=1)
        cluster.job("train", "owner", 2, cpu=2000)
        assert counts(decide(cluster.snapshot())) == {}

    def test_work_without_gpus_does_not(self) -> None:
        cluster = self.crowd(quota=8)
        cluster.job("batch", "owner", 0, cpu=2000)
        assert counts(decide(cluster.snapshot())) == {}

    def test_work_with_gpus_is_no_victim_for_its_cpus(self) -> None:
        cluster = self.crowd(quota=8)
        cluster.workloads.clear()
        cluster.nodes.clear()
        cluster.node("n0", gpus=8, cpu=8000)
        cluster.project("hog", 4)
        cluster.job("gpu-jobs", "hog", 1, pods=4, on="n0", min=1, cpu=2000)
        cluster.job("train", "owner", 2, cpu=2000)
        assert counts(decide(cluster.snapshot())) == {}
