"""Placement, gangs, quotas, and reasons for staying pending."""

import pytest
from msgspec.structs import replace

from extender.api.objects import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Toleration,
)
from extender.api.reasons import Reason, Refused
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.state.model import GPU, Constraints, Figures, PoolQuota
from tests.support.snapshots import Cluster, counts, statuses


def one_node(gpus: int = 8, quota: int = 0, **project: object) -> Cluster:
    cluster = Cluster()
    cluster.node("n0", gpus=gpus)
    cluster.project("a", quota, **project)
    return cluster


def reason(plan: Plan, name: str) -> Reason:
    return plan.waits[f"ns/{name}"].reason


def nodes_of(plan: Plan) -> dict[str, str]:
    return {p.pod.name: p.node for admission in plan.admissions for p in admission.placements}


def cards_of(plan: Plan) -> dict[str, list[int]]:
    return {
        p.pod.name: [card.index for card in p.cards]
        for admission in plan.admissions
        for p in admission.placements
    }


class TestGangs:
    def test_gang_waits_until_all_members_fit(self) -> None:
        cluster = one_node(2)
        cluster.node("n1", gpus=2)
        cluster.node("n2", gpus=2)
        cluster.job("gang", "a", 2, pods=4)
        plan = decide(cluster.snapshot())
        assert not plan.admissions
        assert reason(plan, "gang") is Reason.INSUFFICIENT_GPU
        cluster.node("n3", gpus=2)
        assert counts(decide(cluster.snapshot())) == {("gang", "reserved"): 4}

    def test_gang_that_cannot_start_holds_nothing(self) -> None:
        cluster = one_node(2)
        cluster.job("gang", "a", pods=3)
        cluster.job("next", "a", 2)
        assert statuses(decide(cluster.snapshot())) == {"next-0": "reserved"}

    def test_gang_starts_with_its_minimum_and_what_else_fits(self) -> None:
        cluster = one_node(3)
        cluster.job("gang", "a", pods=4, min=2)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("gang", "reserved"): 3}
        assert len(plan.admissions) == 1

    def test_gang_of_large_and_small_pods_is_packed_largest_first(self) -> None:
        cluster = one_node(3)
        cluster.node("n1", gpus=1)
        cluster.job("large", "a", 3)
        cluster.job("gang", "a", 1)
        large = cluster.workloads.pop("ns/large")
        gang = cluster.workloads["ns/gang"]
        pods = (*gang.pods, *large.pods)
        cluster.workloads["ns/gang"] = replace(gang, pods=pods, min_member=2)
        assert nodes_of(decide(cluster.snapshot())) == {"gang-0": "n1", "large-0": "n0"}

    def test_running_gang_grows_into_idle_cards(self) -> None:
        cluster = one_node(4)
        cluster.job("elastic", "a", pods=2, on="n0", min=2, waiting=3)
        assert counts(decide(cluster.snapshot())) == {("elastic", "reserved"): 2}

    def test_gang_with_too_few_pods_waits_for_them(self) -> None:
        cluster = one_node()
        cluster.job("gang", "a", pods=2, min=3)
        plan = decide(cluster.snapshot())
        assert reason(plan, "gang") is Reason.GANG_INCOMPLETE
        assert "has 2 of the 3 pods" in plan.waits["ns/gang"].detail

    def test_gang_stays_in_one_pool_and_takes_the_one_that_holds_it(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=2, pool="a100")
        cluster.node("n1", gpus=1, pool="h100")
        cluster.project("a", pools={"a100": PoolQuota(), "h100": PoolQuota()})
        cluster.job("gang", "a", pods=3, pools=["a100", "h100"])
        assert not decide(cluster.snapshot()).admissions
        cluster.node("n2", gpus=3, pool="h100")
        assert set(nodes_of(decide(cluster.snapshot())).values()) <= {"n1", "n2"}

    def test_pods_of_a_search_spill_over_to_the_next_pool(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=2, pool="a100")
        cluster.node("n1", gpus=1, pool="h100")
        cluster.project("a", pools={"a100": PoolQuota(), "h100": PoolQuota()})
        cluster.job("search", "a", pods=4, min=1, pools=["a100", "h100"])
        assert counts(decide(cluster.snapshot())) == {("search", "reserved"): 3}

    def test_no_more_pods_run_at_once_than_may(self) -> None:
        cluster = one_node()
        cluster.job("search", "a", pods=1, on="n0", min=1, waiting=4, max=3)
        assert counts(decide(cluster.snapshot())) == {("search", "reserved"): 2}


class TestQuota:
    def test_non_preemptible_work_never_goes_over_quota(self) -> None:
        cluster = one_node(8, quota=2)
        cluster.job("one", "a", on="n0", kind="build")
        cluster.job("two", "a", kind="build")
        cluster.job("three", "a", kind="build")
        plan = decide(cluster.snapshot())
        assert statuses(plan) == {"two-0": "reserved"}
        assert reason(plan, "three") is Reason.NON_PREEMPTIBLE_OVER_QUOTA

    def test_training_does_not_count_against_the_quota_of_builds(self) -> None:
        cluster = one_node(4, quota=2)
        cluster.job("train", "a", pods=2, on="n0", min=1)
        cluster.job("build", "a", kind="build")
        assert statuses(decide(cluster.snapshot())) == {"build-0": "reserved"}

    def test_quota_of_the_department_binds_non_preemptible_work_too(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.department("d1", 4)
        cluster.project("p1", 4, department="d1")
        cluster.project("p2", 4, department="d1")
        cluster.job("p1-build", "p1", 3, on="n0", kind="build")
        cluster.job("large", "p2", 2, kind="build")
        cluster.job("small", "p2", 1, kind="build")
        assert statuses(decide(cluster.snapshot())) == {"small-0": "reserved"}

    def test_the_word_preemptible_decides_not_the_priority(self) -> None:
        cluster = one_node(4, quota=1)
        cluster.job("fixed", "a", 2, preemptible=False)
        cluster.job("free", "a", 2, priority=100, preemptible=True)
        assert statuses(decide(cluster.snapshot())) == {"free-0": "reserved"}

    def test_preemptible_work_uses_every_idle_gpu_that_nobody_wants(self) -> None:
        cluster = one_node(8, quota=1)
        cluster.project("b", 7)
        cluster.job("train", "a", pods=10, min=1)
        assert counts(decide(cluster.snapshot())) == {("train", "reserved"): 8}

    def test_limit_stops_a_project_though_cards_are_idle(self) -> None:
        cluster = one_node(8, limit=2)
        cluster.job("train", "a", pods=4, min=1)
        plan = decide(cluster.snapshot())
        assert counts(plan) == {("train", "reserved"): 2}
        assert reason(plan, "train") is Reason.OVER_LIMIT

    def test_non_preemptible_work_beyond_its_quota_is_told_so_also_at_the_limit(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.project("a", quota=2, limit=4)
        cluster.job("builds", "a", 2, on="n0", kind="build")
        cluster.job("train", "a", 2, on="n0")
        cluster.job("build", "a", kind="build")
        cluster.job("more", "a")
        plan = decide(cluster.snapshot())
        assert reason(plan, "build") is Reason.NON_PREEMPTIBLE_OVER_QUOTA
        assert reason(plan, "more") is Reason.OVER_LIMIT

    def test_a_limit_that_non_preemptible_work_reaches_alone_is_told(self) -> None:
        cluster = one_node(8, quota=2, limit=2)
        cluster.job("builds", "a", 2, on="n0", kind="build")
        cluster.job("build", "a", kind="build")
        assert reason(decide(cluster.snapshot()), "build") is Reason.OVER_LIMIT

    def test_a_limit_is_told_where_the_quota_is_held_by_pods_on_their_way_out(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=8)
        cluster.project("a", quota=2, limit=4)
        cluster.job("old", "a", 2, on="n0", kind="build", terminating=True)
        cluster.job("train", "a", 4, on="n0", priority=100, preemptible=True)
        cluster.job("fixed", "a", preemptible=False)
        assert reason(decide(cluster.snapshot()), "fixed") is Reason.OVER_LIMIT

    def test_pods_on_their_way_out_still_count_against_the_limit(self) -> None:
        cluster = one_node(8, limit=2)
        cluster.job("old", "a", 2, on="n0", terminating=True)
        cluster.job("new", "a", 2)
        assert statuses(decide(cluster.snapshot())) == {"new-0": "nominated"}

    def test_build_takes_the_pool_where_there_is_quota(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=1, pool="a100")
        cluster.node("n1", gpus=1, pool="h100")
        cluster.project("a", pools={"a100": PoolQuota(), "h100": PoolQuota(Figures(1000))})
        cluster.job("build", "a", kind="build", pools=["a100", "h100"])
        assert nodes_of(decide(cluster.snapshot())) == {"build-0": "n1"}


class TestPlaces:
    def test_parts_of_a_card_add_up_to_at_most_one(self) -> None:
        cluster = one_node(1)
        cluster.job("x", "a", "0.3", pods=3, min=1)
        cluster.job("y", "a", "0.1")
        assert counts(decide(cluster.snapshot())) == {("x", "reserved"): 3, ("y", "reserved"): 1}

    def test_a_hundred_halves_land_two_per_card(self) -> None:
        cluster = Cluster()
        for at in range(7):
            cluster.node(f"n{at}", gpus=8)
        cluster.project("a")
        cluster.job("half", "a", "0.5", pods=100, min=1)
        plan = decide(cluster.snapshot())
        per_card: dict[tuple[str, int], int] = {}
        for placed in plan.admissions[0].placements:
            key = placed.node, placed.cards[0].index
            per_card[key] = per_card.get(key, 0) + 1
        assert sorted(per_card.values()) == [2] * 50

    def test_fraction_joins_a_used_card_under_binpack_and_opens_one_under_spread(self) -> None:
        for placement, card in (("binpack", 1), ("spread", 0)):
            cluster = Cluster()
            cluster.pool("default", placement)  # type: ignore[arg-type]
            cluster.node("n0", gpus=2)
            cluster.project("a")
            cluster.job("old", "a", "0.5", on="n0", cards=[1])
            cluster.job("new", "a", "0.5")
            assert cards_of(decide(cluster.snapshot())) == {"new-0": [card]}

    def test_fraction_of_two_cards_lands_on_two_cards(self) -> None:
        cluster = one_node(2)
        cluster.job("x", "a", "0.5", on="n0", cards=[0])
        cluster.job("y", "a", "0.5", on="n0", cards=[1])
        cluster.job("pair", "a", "0.5", devices=2)
        assert cards_of(decide(cluster.snapshot())) == {"pair-0": [0, 1]}

    def test_memory_request_holds_its_mib_and_the_milli_they_are(self) -> None:
        cluster = one_node(1)
        cluster.job("x", "a", "0.5", on="n0")
        cluster.job("y", "a", mib=8192)
        (admission,) = decide(cluster.snapshot()).admissions
        (card,) = admission.placements[0].cards
        assert (card.milli, card.memory_mib) == (500, 8192)

    def test_one_mebibyte_too_much_does_not_fit(self) -> None:
        cluster = one_node(1)
        cluster.job("x", "a", mib=8192, on="n0")
        cluster.job("y", "a", mib=8193)
        assert not decide(cluster.snapshot()).admissions

    def test_whole_card_holds_all_of_its_memory(self) -> None:
        cluster = one_node(1)
        cluster.job("x", "a")
        (admission,) = decide(cluster.snapshot()).admissions
        assert admission.placements[0].cards[0].memory_mib == 16384

    def test_nominated_place_is_not_given_to_another_pod(self) -> None:
        cluster = one_node(2)
        cluster.job("promised", "a", on="n0", cards=[0], state="nominated")
        cluster.job("next", "a", pods=2, min=1)
        plan = decide(cluster.snapshot())
        assert statuses(plan) == {"promised-0": "reserved", "next-0": "reserved"}
        assert cards_of(plan)["next-0"] == [1]

    @pytest.mark.parametrize(
        "constraints",
        [
            Constraints(node_selector=(("zone", "b"),)),
            Constraints(
                affinity=NodeSelector(
                    [
                        NodeSelectorTerm([Requirement("zone", "In", ["c"])]),
                        NodeSelectorTerm([Requirement("zone", "NotIn", ["a", "c"])]),
                    ]
                )
            ),
            Constraints(
                affinity=NodeSelector(
                    [NodeSelectorTerm(None, [Requirement("metadata.name", "In", ["n1"])])]
                )
            ),
            Constraints(
                affinity=NodeSelector([NodeSelectorTerm([Requirement("cores", "Gt", ["32"])])])
            ),
            Constraints(gpu_models=("h100",)),
        ],
        ids=["selector", "affinity terms", "affinity by name", "greater than", "card model"],
    )
    def test_constraints_choose_the_node(self, constraints: Constraints) -> None:
        cluster = Cluster()
        cluster.node("n0", labels={"zone": "a", "cores": "16"}, model="NVIDIA-A100-SXM4-80GB")
        cluster.node("n1", labels={"zone": "b", "cores": "64"}, model="NVIDIA-H100-80GB-HBM3")
        cluster.project("a")
        cluster.job("job", "a", constraints=constraints)
        assert nodes_of(decide(cluster.snapshot())) == {"job-0": "n1"}

    def test_taints_keep_away_pods_that_do_not_tolerate_them(self) -> None:
        cluster = one_node(1)
        cluster.nodes.clear()
        cluster.node("n0", gpus=1, taints=[("dedicated", "NoSchedule"), ("x", "PreferNoSchedule")])
        cluster.job("plain", "a")
        plan = decide(cluster.snapshot())
        assert reason(plan, "plain") is Reason.NO_MATCHING_NODE
        tolerant = Constraints(tolerations=(Toleration(key="dedicated", operator="Exists"),))
        cluster.job("tolerant", "a", constraints=tolerant)
        assert statuses(decide(cluster.snapshot())) == {"tolerant-0": "reserved"}

    def test_nodes_that_are_not_ready_get_nothing(self) -> None:
        cluster = one_node(1)
        cluster.nodes["n0"].facts.is_ready = False
        cluster.job("job", "a")
        assert reason(decide(cluster.snapshot()), "job") is Reason.NO_MATCHING_NODE

    def test_first_pool_of_the_list_that_has_room_is_taken(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=1, pool="a100")
        cluster.node("n1", gpus=1, pool="h100")
        cluster.project("a", pools={"a100": PoolQuota(), "h100": PoolQuota()})
        cluster.job("first", "a", pools=["h100", "a100"])
        cluster.job("second", "a", pools=["h100", "a100"])
        assert nodes_of(decide(cluster.snapshot())) == {"first-0": "n1", "second-0": "n0"}


class TestReasons:
    def test_pods_behind_another_gate_hold_no_cards(self) -> None:
        cluster = one_node()
        cluster.job("queued", "a", pods=2)
        workload = cluster.workloads["ns/queued"]
        first, second = workload.pods
        held = replace(second, other_gates=("kueue.x-k8s.io/admission",))
        cluster.workloads["ns/queued"] = replace(workload, pods=(first, held))
        plan = decide(cluster.snapshot())
        assert not plan.admissions
        assert reason(plan, "queued") is Reason.HELD_BY_OTHER_GATE
        assert plan.shares["a", "default"].requested[GPU] == 1000

    def test_lack_of_cards_says_what_is_needed_and_what_there_is(self) -> None:
        cluster = one_node(2)
        cluster.job("x", "a", "0.6", on="n0", cards=[0])
        cluster.job("z", "a", "0.7", on="n0", cards=[1])
        cluster.job("y", "a", "0.8")
        refused = decide(cluster.snapshot()).waits["ns/y"]
        assert refused.reason in (Reason.INSUFFICIENT_GPU, Reason.OVER_FAIR_SHARE)

    def test_lack_of_cpu_is_distinguished_from_lack_of_cards(self) -> None:
        cluster = Cluster()
        cluster.node("n0", gpus=2, cpu=1000)
        cluster.project("a", 2)
        cluster.job("job", "a", cpu=2000)
        refused = decide(cluster.snapshot()).waits["ns/job"]
        assert refused.reason is Reason.INSUFFICIENT_NODE_RESOURCES
        assert "2 CPU" in refused.detail
        assert "at most 1 CPU" in refused.detail

    def test_unknown_project_and_pool_are_said(self) -> None:
        cluster = one_node()
        cluster.job("lost", "nobody")
        cluster.job("elsewhere", "a", pools=["moon"])
        plan = decide(cluster.snapshot())
        assert reason(plan, "lost") is Reason.UNKNOWN_PROJECT
        assert reason(plan, "elsewhere") is Reason.UNKNOWN_NODE_POOL

    def test_problem_of_the_workload_itself_is_passed_on(self) -> None:
        cluster = one_node()
        problem = Refused(Reason.INVALID_REQUEST, "ns/odd-0: asks with two words")
        cluster.job("odd", "a", problem=problem)
        assert decide(cluster.snapshot()).waits == {"ns/odd": problem}

    def test_full_project_is_told_that_it_has_its_share(self) -> None:
        cluster = one_node(1)
        cluster.job("runs", "a", on="n0")
        cluster.job("waits", "a")
        refused = decide(cluster.snapshot()).waits["ns/waits"]
        assert refused.reason is Reason.OVER_FAIR_SHARE
        assert "a would hold 2 GPUs, above its fair share of 1 GPU" in refused.detail

    def test_a_workload_that_got_everything_is_not_told_to_wait(self) -> None:
        cluster = one_node()
        cluster.job("job", "a", pods=4, min=2)
        assert not decide(cluster.snapshot()).waits


def test_idle_place_in_the_next_pool_is_better_than_waiting_in_the_first() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1, pool="x")
    cluster.node("n1", gpus=1, pool="y")
    figures = {"x": PoolQuota(Figures(1000)), "y": PoolQuota(Figures(1000))}
    cluster.project("a", pools=figures)
    cluster.job("leaving", "a", on="n0", terminating=True)
    cluster.job("job", "a", pools=["x", "y"])
    cluster.job("next", "a", pools=["x", "y"])
    plan = decide(cluster.snapshot())
    assert {p.pod.name: p.node for a in plan.admissions for p in a.placements} == {
        "job-0": "n1",
        "next-0": "n0",
    }
    assert statuses(plan) == {"job-0": "reserved", "next-0": "nominated"}


def test_work_above_its_share_does_not_start_on_cards_that_reclaim_needs() -> None:
    cluster = one_node(8, quota=4)
    cluster.project("b", 4)
    cluster.job("b-jobs", "b", pods=6, on="n0", min=1)
    cluster.job("b-more", "b", pods=2, min=1)
    cluster.job("a-job", "a", 4)
    got = counts(decide(cluster.snapshot()))
    assert got == {("b-jobs", "evicted"): 2, ("a-job", "nominated"): 1}


def test_work_above_its_share_starts_where_reclaim_helps_nobody() -> None:
    cluster = one_node(4, quota=8)
    cluster.node("n1", gpus=4)
    cluster.project("b", 0)
    cluster.job("b-job", "b", 1)
    cluster.job("a-job", "a", 8)
    assert counts(decide(cluster.snapshot())) == {("b-job", "reserved"): 1}


class TestWorkAlike:
    """What is alike and next in line is not tried again."""

    def test_each_workload_is_told_about_itself(self) -> None:
        cluster = one_node(1)
        cluster.job("holds", "a", on="n0")
        for number in range(3):
            cluster.job(f"waits-{number}", "a")
        waits = decide(cluster.snapshot()).waits
        assert {key: why.detail.partition(":")[0] for key, why in waits.items()} == {
            f"ns/waits-{number}": f"ns/waits-{number}" for number in range(3)
        }
        assert len({why.detail.partition(":")[2] for why in waits.values()}) == 1

    def test_smaller_work_behind_it_starts(self) -> None:
        cluster = one_node(3)
        for number in range(2):
            cluster.job(f"large-{number}", "a", 4)
        cluster.job("small", "a", 2)
        cluster.job("alike-but-later", "a", 4)
        assert statuses(decide(cluster.snapshot())) == {"small-0": "reserved"}

    def test_work_of_another_queue_is_refused_for_its_own_reason(self) -> None:
        cluster = one_node(8, limit=0)
        cluster.project("b", 8)
        cluster.job("limited", "a")
        cluster.job("free", "b")
        plan = decide(cluster.snapshot())
        assert reason(plan, "limited") is Reason.OVER_LIMIT
        assert statuses(plan) == {"free-0": "reserved"}

    def test_where_nothing_is_reclaimed_for_it_each_is_told_about_itself(self) -> None:
        cluster = one_node(2, quota=1)
        cluster.project("b", 1)
        for name in "ab":
            cluster.job(f"{name}-holds", name, on="n0")
            for number in range(3):
                cluster.job(f"{name}-{number}", name)
        waits = decide(cluster.snapshot()).waits
        assert {key: why.reason for key, why in waits.items()} == {
            f"ns/{name}-{number}": Reason.OVER_FAIR_SHARE for name in "ab" for number in range(3)
        }
        for key, why in waits.items():
            assert why.detail.startswith(f"{key}: ")
            assert f"{key[3]} would hold 2 GPUs, above its fair share of 1 GPU" in why.detail
