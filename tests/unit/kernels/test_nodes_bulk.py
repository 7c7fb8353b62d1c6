"""The kernels for many pods of one shape, compiled and twin: the same sentences hold for both."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels import nodes, nodes_bulk
from extender.state.nodes import NodeTable
from tests.support.snapshots import demand_of
from tests.twins import nodes_bulk_twin
from tests.unit.kernels.test_nodes import table_with

pytestmark = pytest.mark.parametrize("kernel", [nodes_bulk, nodes_bulk_twin])


def places(
    find: object, table: NodeTable, demand: Demand, n_pods: int, rule: int = nodes.BINPACK
) -> list[tuple[int, list[int]]]:
    """Node and cards of every pod that has a place."""
    out_ix, out_cards = array("i", [9] * n_pods), array("Q", [0] * n_pods)
    candidates = array("i", range(len(table)))
    placed = find(table, demand, candidates, rule, out_ix, out_cards)  # type: ignore[operator]
    return [
        (ix, [card for card in range(64) if bits >> card & 1])
        for ix, bits in zip(out_ix[:placed], out_cards, strict=False)
    ]


def test_filling_goes_on_where_bin_packing_began(kernel: ModuleType) -> None:
    table = table_with([0, 0], [0, 1000], [0, 0])
    found = places(kernel.fill_nodes, table, demand_of(1), 4)
    assert found == [(1, [0]), (0, [0]), (0, [1]), (2, [0])]


def test_spread_alternates(kernel: ModuleType) -> None:
    table = table_with([0, 0], [0, 0])
    found = places(kernel.fill_nodes, table, demand_of(1), 4, nodes.SPREAD)
    assert [ix for ix, _ in found] == [0, 1, 0, 1]


def test_a_hundred_halves_lie_two_on_each_of_fifty_cards(kernel: ModuleType) -> None:
    table = table_with(*[[0] * 8 for _ in range(8)])
    found = places(kernel.fill_nodes, table, demand_of("0.5"), 100)
    on_card = [(ix, card) for ix, cards in found for card in cards]
    assert len(on_card) == 100
    assert len(set(on_card)) == 50
    assert all(on_card.count(card) == 2 for card in set(on_card))


def test_what_does_not_fit_has_no_place(kernel: ModuleType) -> None:
    table = table_with([0], [0])
    assert len(places(kernel.fill_nodes, table, demand_of(1), 3)) == 2
    assert places(kernel.pack_nodes, table, demand_of(2), 1) == []
    assert places(kernel.pack_nodes, NodeTable(), demand_of(1), 1) == []


def test_packing_takes_the_tightest_node_that_holds_all(kernel: ModuleType) -> None:
    table = table_with([0] * 8, [0] * 4, [0] * 2)
    assert {ix for ix, _ in places(kernel.pack_nodes, table, demand_of(1), 3)} == {1}


def test_packing_fills_the_roomiest_node_when_none_holds_all(kernel: ModuleType) -> None:
    table = table_with([0] * 2, [0] * 8, [0] * 4)
    found = [ix for ix, _ in places(kernel.pack_nodes, table, demand_of(1), 10)]
    assert found == [1] * 8 + [0] * 2


def test_packing_prefers_the_fuller_of_equally_roomy_nodes(kernel: ModuleType) -> None:
    table = table_with([0, 0, 0], [1000, 0, 0, 0])
    assert {ix for ix, _ in places(kernel.pack_nodes, table, demand_of(1), 3)} == {1}


def test_table_is_afterwards_as_it_was(kernel: ModuleType) -> None:
    table = table_with([0, 300], [0, 0])
    table.free_cpu_milli[0] = 5000
    before = table.copy()
    for find in (kernel.fill_nodes, kernel.pack_nodes):
        places(find, table, demand_of("0.3", cpu=1000), 5)
        assert table.cards.card_free == before.cards.card_free
        assert table.free_cpu_milli == before.free_cpu_milli
        assert table.free_memory_mib == before.free_memory_mib
        assert table.free_pods == before.free_pods
