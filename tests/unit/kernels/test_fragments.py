"""Fragmentation of nodes and the preferred nodes and cards, kernel and twin."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.api.kinds import Device, GpuNode, GpuNodeStatus
from extender.api.objects import ObjectMeta
from extender.kernels import fragments as compiled
from extender.kernels.typical import (
    MOST_MODELS,
    Fragments,
    Scores,
    Typical,
    TypicalPod,
    fgd_measure,
)
from extender.lab.openb.measures import frag_measure
from extender.state.nodes import NodeFacts, NodeTable
from tests.twins import fragments_twin as twin

pytestmark = pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "twin"])

ONE_CORE = 1000
FREE = array("i", [0]) * MOST_MODELS


def nodes_with(*used: list[int], cpu_milli: int = 8000, mib: int = 16384) -> NodeTable:
    """Nodes n0, n1, ... with this many milli taken of each card, and this much CPU free."""
    table = NodeTable()
    for at, cards in enumerate(used):
        facts = NodeFacts(f"n{at}", free_cpu_milli=cpu_milli, free_memory_mib=1024)
        table.set_node(facts)
        devices = [Device(index=card, memory_mib=mib) for card in range(len(cards))]
        status = GpuNodeStatus(devices=devices)
        ix = table.set_cards(GpuNode(metadata=ObjectMeta(name=facts.name), status=status))
        for card, milli in enumerate(cards):
            table.cards.card_free[ix * table.cards.stride + card] -= milli
    return table


def gpus(milli: int, devices: int = 1, cpu_milli: int = 0) -> Demand:
    """So many milli of each of `devices` cards."""
    return Demand(devices=devices, milli=milli, cpu_milli=cpu_milli)


NO_GPU = Demand()


def measure(kernel: ModuleType, table: NodeTable, typical: Typical) -> Fragments:
    fragments = Fragments(typical, array("i", [0]) * len(table))
    kernel.measure_nodes(table, fragments, array("i", range(len(table))))
    return fragments


def score(kernel: ModuleType, table: NodeTable, typical: Typical, demand: Demand) -> Scores:
    scores = Scores.of(len(table))
    every = array("i", range(len(table)))
    kernel.score_nodes(table, measure(kernel, table, typical), demand, every, scores)
    return scores


def waste(kernel: ModuleType, table: NodeTable, *pods: TypicalPod) -> list[int]:
    return list(measure(kernel, table, fgd_measure(pods)).waste)


def test_cards_too_small_for_the_pod_are_fragments(kernel: ModuleType) -> None:
    half = TypicalPod(ONE_CORE, 1, 500)
    assert waste(kernel, nodes_with([600, 0]), half) == [400]


def test_all_idle_gpu_is_a_fragment_where_the_pod_does_not_fit(kernel: ModuleType) -> None:
    table = nodes_with([600, 0], cpu_milli=4000)
    assert waste(kernel, table, TypicalPod(ONE_CORE, 2, 1000)) == [1400]
    assert waste(kernel, table, TypicalPod(4001, 1, 500)) == [1400]
    assert waste(kernel, table, TypicalPod(ONE_CORE, 1, 500, models=0b10)) == [1400]


def test_pods_without_gpus_count_all_idle_gpu(kernel: ModuleType) -> None:
    assert waste(kernel, nodes_with([600, 0]), TypicalPod(ONE_CORE, 0, 0)) == [1400]


def test_fragmentation_is_the_sum_over_typical_pods_by_weight(kernel: ModuleType) -> None:
    half, whole = TypicalPod(ONE_CORE, 1, 500, 3), TypicalPod(ONE_CORE, 1, 1000, 2)
    assert waste(kernel, nodes_with([400, 800]), half, whole) == [3 * 200 + 2 * 800]


def test_full_node_has_no_fragments_and_overfull_cards_count_nothing(kernel: ModuleType) -> None:
    whole = TypicalPod(ONE_CORE, 1, 1000)
    assert waste(kernel, nodes_with([1000, 1000], [1300, 500]), whole) == [0, 500]


def test_only_candidates_are_measured(kernel: ModuleType) -> None:
    table = nodes_with([500], [500])
    fragments = Fragments(fgd_measure([TypicalPod(0, 1, 1000)]), array("i", [0, 0]))
    kernel.measure_nodes(table, fragments, array("i", [1]))
    assert list(fragments.waste) == [0, 500]


def test_fgd_scores_are_truncated_from_the_logistic_curve(kernel: ModuleType) -> None:
    # A whole card is used where every typical pod wants one: no fragment appears or goes, 50.
    # On the other node 500 idle milli that no work wants get used: 100 / (1 + e^-0.5) = 62.2.
    typical = fgd_measure([TypicalPod(0, 1, 1000)])
    assert list(score(kernel, nodes_with([0, 0]), typical, gpus(1000)).score) == [50]
    assert list(score(kernel, nodes_with([500]), typical, gpus(500)).score) == [62]
    # 300 of a whole card: the other 700 become fragments, 100 / (1 + e^0.7) = 33.2.
    assert list(score(kernel, nodes_with([0]), typical, gpus(300)).score) == [33]


def test_fraction_takes_the_card_by_which_fragmentation_falls_most(kernel: ModuleType) -> None:
    typical = fgd_measure([TypicalPod(0, 1, 1000)])
    scores = score(kernel, nodes_with([0, 400, 300]), typical, gpus(400))
    assert list(scores.card) == [1]


def test_first_of_equal_cards_is_taken(kernel: ModuleType) -> None:
    typical = fgd_measure([TypicalPod(0, 1, 1000)])
    assert list(score(kernel, nodes_with([1000, 300, 300]), typical, gpus(300)).card) == [1]


def test_whole_gpus_and_pods_without_gpus_have_no_card_of_their_own(kernel: ModuleType) -> None:
    typical = fgd_measure([TypicalPod(0, 1, 1000)])
    for demand in (gpus(1000, 2), NO_GPU, gpus(500, 2)):
        scores = score(kernel, nodes_with([0, 0]), typical, demand)
        assert list(scores.card) == [-1]
        assert scores.score[0] >= 0


def test_misfits_score_minus_one(kernel: ModuleType) -> None:
    typical = fgd_measure([TypicalPod(0, 1, 1000)])
    table = nodes_with([500], [0], [0], [0])
    table.free_cpu_milli[1] = 999
    table.free_pods[2] = 0
    assert list(score(kernel, table, typical, gpus(1000, cpu_milli=1000)).score) == [-1, -1, -1, 50]


def test_request_in_mib_is_measured_on_the_cards_of_the_node(kernel: ModuleType) -> None:
    typical = fgd_measure([TypicalPod(0, 1, 1000)])
    table = nodes_with([500])
    assert list(score(kernel, table, typical, Demand(devices=1, gpu_memory_mib=8192)).score) == [62]
    assert list(score(kernel, table, typical, Demand(devices=1, gpu_memory_mib=8193)).score) == [-1]


def test_frag_asks_how_far_the_cpu_reaches(kernel: ModuleType) -> None:
    # Both nodes take one more pod of 4 cores; CPU for all four cards has only the second.
    table = nodes_with([0, 0, 0, 0], [0, 0, 0, 0])
    table.free_cpu_milli[0], table.free_cpu_milli[1] = 8000, 16000
    fgd = measure(kernel, table, fgd_measure([TypicalPod(4000, 1, 1000)]))
    frag = measure(kernel, table, frag_measure([TypicalPod(4000, 1, 1000)]))
    assert list(fgd.waste) == [0, 0]
    assert [milli / frag.typical.unit for milli in frag.waste] == [1000, 0]


def test_frag_expects_the_best_of_four_pods(kernel: ModuleType) -> None:
    # Half of the pods fit the free half exactly; that none of four does has a chance of 1 in 16.
    typical = frag_measure([TypicalPod(0, 1, 500), TypicalPod(0, 1, 1000)])
    fragments = measure(kernel, nodes_with([500]), typical)
    assert [milli / typical.unit for milli in fragments.waste] == [500 / 16]


def test_frag_point_is_worth_forty_milli(kernel: ModuleType) -> None:
    typical = frag_measure([TypicalPod(0, 1, 1000)])
    no_change = len(typical.steps) // 2 + 1
    scores = score(kernel, nodes_with([600], [0], [581]), typical, gpus(400))
    # 400 idle milli used; 600 milli made a fragment; 400 of 419 used, the rest stays one.
    assert [value - no_change for value in scores.score] == [10, -15, 10]


def test_best_of_takes_the_first_of_equals_and_subtracts_the_cost(kernel: ModuleType) -> None:
    scores = Scores(array("i", [5, 7, 7, -1]), array("i", [-1] * 4))
    models, cost = array("i", [0, 1, 1, 2]), FREE[:]
    assert kernel.best_of(scores, array("i", [0, 2, 1, 3]), models, cost) == 2
    cost[1] = 2
    assert kernel.best_of(scores, array("i", [0, 2, 1, 3]), models, cost) == 0
    cost[1] = 3
    assert kernel.best_of(scores, array("i", [3, 1, 0]), models, cost) == 0


def test_best_of_is_none_where_nothing_fits_even_if_all_is_dear(kernel: ModuleType) -> None:
    scores = Scores(array("i", [-1, 3]), array("i", [-1, -1]))
    models, cost = array("i", [0, 0]), array("i", [100]) * MOST_MODELS
    assert kernel.best_of(scores, array("i", [0]), models, cost) == -1
    assert kernel.best_of(scores, array("i", []), models, cost) == -1
    assert kernel.best_of(scores, array("i", [0, 1]), models, cost) == 1
