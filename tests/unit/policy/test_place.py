"""The placement rules over nodes and cards, shares of cards, and counted resources."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.claimed_memory import MemorySteps
from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.state.model import Constraints, PlacementRule
from extender.state.nodes import BY_SHARE
from tests.support.snapshots import Cluster, counts, statuses

SLICE = "nvidia.com/mig-1g.5gb"


def places(plan: Plan) -> dict[str, tuple[str, list[int]]]:
    """Node and cards of every pod that is placed, by its name."""
    return {
        p.pod.name: (p.node, [card.index for card in p.cards])
        for a in plan.admissions
        for p in a.placements
    }


def nodes(plan: Plan) -> dict[str, str]:
    return {name: node for name, (node, _) in places(plan).items()}


def pool_of(rule: PlacementRule, **view: PlacementRule) -> Cluster:
    cluster = Cluster()
    cluster.pool("default", rule, **view)
    cluster.project("a", 100)
    return cluster


SHARE = Constraints(delivery="share", share_mib=10240)


class TestSharesByClaims:
    """kube-scheduler allocates them: the first card that has the memory."""

    def cluster(self, rule: PlacementRule, *steps: MemorySteps) -> Cluster:
        cluster = pool_of(rule)
        cluster.node("n0", 3, mib=81920, offers=BY_SHARE, share_steps=frozenset(steps))
        return cluster

    @pytest.mark.parametrize("rule", ["binpack", "spread", "best-fit", "first-fit", "fgd"])
    def test_first_card_with_room_is_taken_by_every_rule(self, rule: PlacementRule) -> None:
        cluster = self.cluster(rule, MemorySteps())
        cluster.job("full", "a", mib=75776, on="n0", cards=[0])
        cluster.job("most", "a", mib=61440, on="n0", cards=[2])
        cluster.job("new", "a", mib=10240, constraints=SHARE)
        assert places(decide(cluster.snapshot())) == {"new-0": ("n0", [1])}

    def test_node_on_which_a_place_is_kept_for_a_share_gets_no_other_until_then(self) -> None:
        """kube-scheduler would take what a victim has left for the first pod that asks."""
        cluster = self.cluster("binpack", MemorySteps())
        cluster.node("n1", 1, mib=81920, offers=BY_SHARE)
        victim: dict[str, Any] = {"on": "n0", "cards": [0], "constraints": SHARE}
        cluster.job("victim", "a", mib=81920, terminating=True, **victim)
        cluster.job("kept", "a", mib=81920, state="nominated", **victim)
        cluster.job("new", "a", pods=9, mib=10240, min=1, constraints=SHARE)
        found = places(decide(cluster.snapshot()))
        assert {found[name][0] for name in found if name.startswith("new")} == {"n1"}
        assert len(found) == 8

    @pytest.mark.parametrize(
        ("steps", "said"),
        [
            (MemorySteps(step=20 * 2**30), "so ask for 20480Mi"),
            (MemorySteps(most=2**30), "give no claim as much as 10240 MiB"),
        ],
    )
    def test_card_that_gives_another_amount_is_passed_over(
        self, steps: MemorySteps, said: str
    ) -> None:
        cluster = self.cluster("binpack", steps)
        cluster.job("new", "a", mib=10240, constraints=SHARE)
        (waiting,) = decide(cluster.snapshot()).waits.values()
        assert waiting.reason is Reason.NO_MATCHING_NODE
        assert said in waiting.detail


class TestRules:
    @pytest.mark.parametrize(
        ("rule", "node"),
        [("binpack", "n1"), ("spread", "n0"), ("best-fit", "n2"), ("first-fit", "n0")],
    )
    def test_each_rule_has_its_node(self, rule: PlacementRule, node: str) -> None:
        cluster = pool_of(rule)
        cluster.node("n0", gpus=8)
        cluster.node("n1", gpus=8)
        cluster.node("n2", gpus=2)
        cluster.job("old", "a", 5, on="n1")
        cluster.job("new", "a")
        assert nodes(decide(cluster.snapshot())) == {"new-0": node}

    @pytest.mark.parametrize(
        ("rule", "card"), [("binpack", 1), ("spread", 2), ("best-fit", 1), ("first-fit", 0)]
    )
    def test_each_rule_has_its_card(self, rule: PlacementRule, card: int) -> None:
        cluster = pool_of(rule)
        cluster.node("n0", gpus=3)
        cluster.job("light", "a", "0.25", on="n0", cards=[0])
        cluster.job("half", "a", "0.5", on="n0", cards=[1])
        cluster.job("new", "a", "0.5")
        assert places(decide(cluster.snapshot())) == {"new-0": ("n0", [card])}

    def test_fragmentation_keeps_whole_cards_for_pods_that_need_them(self) -> None:
        cluster = pool_of("fgd")
        for name in ("n0", "n1"):
            cluster.node(name, gpus=4)
        cluster.job("half", "a", "0.5", on="n1", cards=[3])
        cluster.node("n2", gpus=8)
        cluster.job("whole", "a", pods=8, on="n2")
        cluster.job("new", "a", "0.5")
        assert places(decide(cluster.snapshot()))["new-0"] == ("n1", [3])

    def test_fragmentation_follows_what_the_cycle_places(self) -> None:
        cluster = pool_of("fgd")
        for at in range(4):
            cluster.node(f"n{at}", gpus=4)
        for at in range(40):
            cluster.job(f"j{at}", "a", "0.4")
        found = Counter(
            (node, cards[0]) for node, cards in places(decide(cluster.snapshot())).values()
        )
        assert sum(found.values()) == 32
        assert set(found.values()) == {2}

    def test_gang_is_packed_whole_where_the_rule_is_fragmentation(self) -> None:
        cluster = pool_of("fgd")
        cluster.node("n0", gpus=8)
        cluster.node("n1", gpus=8)
        cluster.job("old", "a", 6, on="n0")
        cluster.job("gang", "a", pods=8)
        assert set(nodes(decide(cluster.snapshot())).values()) == {"n1"}

    def test_gpu_work_and_other_work_have_rules_of_their_own(self) -> None:
        cluster = pool_of("binpack", cpu_placement="spread")
        for name in ("n0", "n1"):
            cluster.node(name, gpus=4, cpu=8000, cpu_milli=8000)
        cluster.job("old", "a", 1, on="n0", cpu=2000)
        cluster.job("gpu", "a", 1, cpu=1000)
        cluster.job("cpu", "a", 0, cpu=1000)
        assert nodes(decide(cluster.snapshot())) == {"gpu-0": "n0", "cpu-0": "n1"}

    def test_work_without_gpus_prefers_nodes_without_cards(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=4, cpu=8000, cpu_milli=8000)
        cluster.node("n1", gpus=0, cpu=8000, cpu_milli=8000)
        cluster.job("cpu", "a", 0, cpu=1000)
        assert nodes(decide(cluster.snapshot())) == {"cpu-0": "n1"}


class TestParts:
    def test_a_hundred_halves_lie_two_on_a_card_on_fifty_cards(self) -> None:
        cluster = pool_of("binpack")
        for at in range(7):
            cluster.node(f"n{at}", gpus=8)
        for at in range(100):
            cluster.job(f"j{at}", "a", "0.5")
        found = Counter(
            (node, cards[0]) for node, cards in places(decide(cluster.snapshot())).values()
        )
        assert sum(found.values()) == 100
        assert len(found) == 50
        assert set(found.values()) == {2}

    def test_mixed_parts_never_overfill_a_card(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=4)
        for at, part in enumerate(["0.3", "0.5", "0.7", "0.25"] * 4):
            cluster.job(f"j{at}", "a", part)
        held: Counter[int] = Counter()
        for admission in decide(cluster.snapshot()).admissions:
            for placed in admission.placements:
                held.update({card.index: card.milli for card in placed.cards})
        assert max(held.values()) <= 1000
        assert sum(held.values()) >= 3500

    def test_memory_is_measured_on_the_card_it_lands_on(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=1, mib=16384)
        cluster.node("n1", gpus=1, mib=40960)
        cluster.job("large", "a", mib=20480)
        cluster.job("small", "a", pods=2, mib=8192, min=1)
        plan = decide(cluster.snapshot())
        milli = {p.pod.name: p.cards[0].milli for a in plan.admissions for p in a.placements}
        assert nodes(plan)["large-0"] == "n1"
        assert milli["large-0"] == 500
        assert len(milli) == 3

    def test_part_of_several_cards_takes_different_ones(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=2)
        cluster.job("pair", "a", "0.5", devices=2)
        cluster.job("more", "a", "0.5", devices=2)
        cluster.job("third", "a", "0.5", devices=2)
        assert places(decide(cluster.snapshot())) == {
            "pair-0": ("n0", [0, 1]),
            "more-0": ("n0", [0, 1]),
        }

    def test_search_pods_of_other_sizes_may_pass_one_that_has_no_place(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=2)
        cluster.job("job", "a", 4, pods=1, min=1)
        large = cluster.workloads.pop("ns/job")
        cluster.job("job", "a", 1, pods=3, min=1)
        small = cluster.workloads["ns/job"]
        cluster.workloads["ns/job"] = replace(small, pods=(*large.pods, *small.pods[1:]))
        assert statuses(decide(cluster.snapshot())) == {"job-1": "reserved", "job-2": "reserved"}


class TestCounted:
    def test_instances_are_counted_down_within_the_cycle(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=0, free_counted={SLICE: 3})
        cluster.job("mig", "a", pods=4, min=1, counted=((SLICE, 1),))
        assert counts(decide(cluster.snapshot())) == {("mig", "reserved"): 3}

    def test_gang_of_instances_starts_whole_or_not_at_all(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=0, free_counted={SLICE: 3})
        cluster.job("mig", "a", pods=4, counted=((SLICE, 1),))
        assert not statuses(decide(cluster.snapshot()))

    def test_instances_of_one_node_are_used_up_before_the_next(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=0, free_counted={SLICE: 7})
        cluster.node("n1", gpus=0, free_counted={SLICE: 2})
        cluster.job("mig", "a", counted=((SLICE, 1),))
        assert nodes(decide(cluster.snapshot())) == {"mig-0": "n1"}

    def test_plain_gpu_pods_never_use_instances(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=0, free_counted={SLICE: 7})
        cluster.job("gpu", "a", 1)
        assert not statuses(decide(cluster.snapshot()))

    def test_other_work_leaves_partitioned_nodes_alone_while_it_can(self) -> None:
        cluster = pool_of("binpack")
        cluster.node("n0", gpus=0, cpu=8000, cpu_milli=8000, free_counted={SLICE: 7})
        cluster.node("n1", gpus=1, cpu=2000, cpu_milli=2000)
        cluster.job("cpu", "a", 0, pods=3, min=1, cpu=1000)
        assert Counter(nodes(decide(cluster.snapshot())).values()) == {"n1": 2, "n0": 1}


def test_what_failed_is_tried_again_for_an_easier_shape_only() -> None:
    cluster = pool_of("binpack")
    cluster.node("n0", gpus=2)
    cluster.job("large", "a", 3)
    cluster.job("again", "a", 3)
    cluster.job("small", "a", 2)
    assert statuses(decide(cluster.snapshot())) == {"small-0": "reserved"}


def test_shapes_that_alternate_are_placed_as_if_alone() -> None:
    cluster = pool_of("binpack")
    for at in range(3):
        cluster.node(f"n{at}", gpus=4)
    pinned = Constraints(node_selector=(("disk", "ssd"),))
    cluster.node("n3", gpus=16, labels={"disk": "ssd"})
    for at in range(14):
        if at % 7 == 3:
            cluster.job(f"j{at}", "a", 1, constraints=pinned)
        else:
            cluster.job(f"j{at}", "a", 1 + at % 2)
    found = places(decide(cluster.snapshot()))
    on_card = Counter((node, card) for node, cards in found.values() for card in cards)
    assert set(on_card.values()) == {1}
    assert found["j3-0"][0] == found["j10-0"][0] == "n3"
