"""The node kernels, compiled and twin."""

from array import array
from types import ModuleType

import pytest

from extender.kernels import nodes as compiled
from extender.state.nodes import NodeTable
from tests.support.snapshot_job import demand_of
from tests.support.snapshots import Cluster
from tests.twins import nodes_twin as twin

pytestmark = pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "twin"])


def table_with(*used: list[int], mib: int = 16384) -> NodeTable:
    """Nodes n0, n1, ... with this many milli taken of each card."""
    cluster = Cluster()
    for at, cards in enumerate(used):
        cluster.node(f"n{at}", gpus=len(cards), mib=mib)
    table = cluster.snapshot().nodes
    for at, cards in enumerate(used):
        for card, milli in enumerate(cards):
            table.cards.card_free[table.cards.ix[f"n{at}"] * table.cards.stride + card] -= milli
    return table


def fits(kernel: ModuleType, table: NodeTable, **demand: object) -> list[int]:
    out = bytearray(len(table))
    kernel.fit_nodes(table.cards, demand_of(**demand), out)  # type: ignore[arg-type]
    return list(out)


def scores(kernel: ModuleType, table: NodeTable, is_spread: bool, **demand: object) -> list[int]:
    out = array("i", [0] * len(table))
    kernel.score_nodes(table.cards, demand_of(**demand), is_spread, out)  # type: ignore[arg-type]
    return list(out)


def test_whole_gpus_need_cards_that_are_all_free(kernel: ModuleType) -> None:
    table = table_with([1, 0], [0, 0], [999, 999])
    assert fits(kernel, table, gpus=2) == [0, 1, 0]
    assert fits(kernel, table, gpus=1) == [1, 1, 0]


def test_fraction_fits_one_card_never_the_sum_of_two(kernel: ModuleType) -> None:
    table = table_with([600, 600], [500, 1000])
    assert fits(kernel, table, gpus="0.5") == [0, 1]


def test_fraction_of_two_cards_needs_two_cards(kernel: ModuleType) -> None:
    table = table_with([500, 500], [500, 501])
    assert fits(kernel, table, gpus="0.5", devices=2) == [1, 0]


def test_memory_request_is_measured_on_the_cards_of_the_node(kernel: ModuleType) -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=1, mib=16384)
    cluster.node("n1", gpus=1, mib=40960)
    table = cluster.snapshot().nodes
    assert fits(kernel, table, mib=20000) == [0, 1]
    assert fits(kernel, table, mib=16384) == [1, 1]
    assert fits(kernel, table, mib=16385) == [0, 1]


def test_memory_request_fits_nowhere_where_card_memory_is_unknown(kernel: ModuleType) -> None:
    assert fits(kernel, table_with([0], mib=0), mib=1) == [0]


def test_work_without_gpus_fits_every_node(kernel: ModuleType) -> None:
    assert fits(kernel, table_with([1000], []), gpus=0) == [1, 1]


def test_node_without_cards_and_dropped_node_fit_no_gpu(kernel: ModuleType) -> None:
    table = table_with([0], [])
    table.drop_node("n0")
    assert fits(kernel, table, gpus="0.1") == [0, 0]


def test_unhealthy_card_is_never_used(kernel: ModuleType) -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2, unhealthy=(0,))
    table = cluster.snapshot().nodes
    assert fits(kernel, table, gpus=2) == [0]
    assert kernel.pick_cards(table.cards, 0, demand_of("0.5"), False) == [1]


def test_card_with_victims_still_on_it_fits_nothing(kernel: ModuleType) -> None:
    assert fits(kernel, table_with([1500]), gpus="0.1") == [0]


def test_binpack_prefers_the_fuller_node_and_spread_the_emptier(kernel: ModuleType) -> None:
    table = table_with([1000, 1000, 0, 0], [0, 0, 0, 0])
    packed, spread = scores(kernel, table, False, gpus=1), scores(kernel, table, True, gpus=1)
    assert packed[0] > packed[1]
    assert spread[0] < spread[1]


def test_binpack_fraction_prefers_a_used_card_even_on_an_emptier_node(kernel: ModuleType) -> None:
    table = table_with([1000, 1000, 1000, 0], [500, 0, 0, 0])
    score = scores(kernel, table, False, gpus="0.5")
    assert score[1] > score[0]


def test_scores_lie_between_zero_and_a_million_and_misfits_are_minus_one(
    kernel: ModuleType,
) -> None:
    table = table_with([0, 0], [1000, 1000], [300, 0], [])
    for is_spread in (False, True):
        for gpus in (0, "0.3", 1, 2):
            score = scores(kernel, table, is_spread, gpus=gpus)
            assert all(-1 <= value <= 1_000_000 for value in score)
    assert scores(kernel, table, False, gpus=1)[1] == -1


def test_work_without_gpus_prefers_nodes_without_cards(kernel: ModuleType) -> None:
    score = scores(kernel, table_with([0], []), False, gpus=0)
    assert score[1] > score[0]


def test_best_node_breaks_ties_by_the_order_of_the_candidates(kernel: ModuleType) -> None:
    table = table_with([0], [0], [0])
    assert kernel.best_node(table, demand_of(1), array("i", [2, 0, 1]), False) == 2


def test_best_node_passes_over_nodes_without_cpu_memory_or_slots(kernel: ModuleType) -> None:
    table = table_with([0], [0], [0], [0])
    table.free_cpu_milli[0] = 999
    table.free_memory_mib[1] = 0
    table.free_pods[2] = 0
    demand = demand_of(1, cpu=1000)
    wanted = type(demand)(1, 1000, 0, 1000, 1)
    assert kernel.best_node(table, wanted, array("i", [0, 1, 2, 3]), False) == 3
    assert kernel.best_node(table, wanted, array("i", [0, 1, 2]), False) == -1


def test_request_of_nothing_fits_where_cpu_is_overcommitted(kernel: ModuleType) -> None:
    table = table_with([0])
    table.free_cpu_milli[0] = table.free_memory_mib[0] = -5
    assert kernel.best_node(table, demand_of(1), array("i", [0]), False) == 0


def test_binpack_picks_the_fullest_card_that_fits(kernel: ModuleType) -> None:
    table = table_with([0, 300, 700, 900])
    assert kernel.pick_cards(table.cards, 0, demand_of("0.3"), False) == [2]
    assert kernel.pick_cards(table.cards, 0, demand_of("0.3", devices=2), False) == [1, 2]


def test_spread_picks_the_emptiest_card(kernel: ModuleType) -> None:
    table = table_with([300, 0, 0, 900])
    assert kernel.pick_cards(table.cards, 0, demand_of("0.3"), True) == [1]


def test_whole_gpus_get_the_first_free_cards(kernel: ModuleType) -> None:
    table = table_with([1, 0, 0, 0])
    assert kernel.pick_cards(table.cards, 0, demand_of(2), False) == [1, 2]


def test_cards_that_do_not_fit_are_not_picked(kernel: ModuleType) -> None:
    assert kernel.pick_cards(table_with([1]).cards, 0, demand_of(1), False) == []
    assert kernel.pick_cards(table_with([1]).cards, 0, demand_of(0), False) == []


def test_nodes_of_sixteen_cards_widen_the_table(kernel: ModuleType) -> None:
    table = table_with([0] * 8, [1000] * 15 + [0])
    assert table.cards.stride == 16
    assert fits(kernel, table, gpus=8) == [1, 0]
    assert kernel.pick_cards(table.cards, 1, demand_of(1), False) == [15]


def test_best_fit_leaves_the_least_and_first_fit_does_not_compare(kernel: ModuleType) -> None:
    table = table_with([0] * 8, [1000] * 5 + [0] * 3, [0] * 2)
    everywhere = array("i", [0, 1, 2])
    assert kernel.best_node(table, demand_of(1), everywhere, kernel.BINPACK) == 1
    assert kernel.best_node(table, demand_of(1), everywhere, kernel.BEST_FIT) == 2
    assert kernel.best_node(table, demand_of(1), everywhere, kernel.FIRST_FIT) == 0


def test_first_fit_takes_the_first_card_with_enough_left(kernel: ModuleType) -> None:
    table = table_with([800, 0, 500])
    assert kernel.pick_cards(table.cards, 0, demand_of("0.5"), kernel.FIRST_FIT) == [1]
    assert kernel.pick_cards(table.cards, 0, demand_of("0.5"), kernel.BEST_FIT) == [2]


def test_work_without_gpus_goes_by_cpu_and_memory(kernel: ModuleType) -> None:
    table = table_with([0], [0], [])
    for ix in range(3):
        table.cpu_milli[ix] = table.free_cpu_milli[ix] = 8000
    table.free_cpu_milli[0] = 4000
    demand = demand_of(0, cpu=1000)
    with_cards = array("i", [1, 0])
    assert kernel.best_node(table, demand, with_cards, kernel.BINPACK) == 0
    assert kernel.best_node(table, demand, with_cards, kernel.SPREAD) == 1
    for rule in (kernel.BINPACK, kernel.SPREAD, kernel.BEST_FIT, kernel.FIRST_FIT):
        assert kernel.best_node(table, demand, array("i", [0, 1, 2]), rule) == 2
