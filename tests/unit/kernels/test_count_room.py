"""The kernel that counts how many pods fit on nodes, compiled and twin."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels import nodes
from extender.state.nodes import NodeTable
from tests.support.snapshot_job import demand_of
from tests.twins import nodes_twin
from tests.unit.kernels.test_nodes import table_with

pytestmark = pytest.mark.parametrize("kernel", [nodes, nodes_twin], ids=["compiled", "twin"])


def rooms(kernel: ModuleType, table: NodeTable, demand: Demand, most: int = 100) -> list[int]:
    out = array("i", [9] * len(table))
    kernel.count_room(table, demand, array("i", range(len(table))), most, out)
    return list(out)


def test_whole_gpus_are_counted_by_free_cards(kernel: ModuleType) -> None:
    table = table_with([0, 0, 0, 0, 0], [0, 0, 0, 1], [])
    assert rooms(kernel, table, demand_of(2)) == [2, 1, 0]


def test_two_halves_of_every_card_are_counted(kernel: ModuleType) -> None:
    table = table_with([0, 500, 501], [1000])
    assert rooms(kernel, table, demand_of("0.5")) == [3, 0]


def test_parts_of_two_cards_need_two_cards_for_every_pod(kernel: ModuleType) -> None:
    table = table_with([0, 1000], [0, 0], [0, 500, 500])
    assert rooms(kernel, table, demand_of("0.5", devices=2)) == [0, 2, 2]


def test_cpu_memory_and_slots_bound_the_count(kernel: ModuleType) -> None:
    table = table_with([0] * 4, [0] * 4, [0] * 4, [0] * 4)
    table.free_cpu_milli[0] = 2500
    table.free_memory_mib[1] = 3
    table.free_pods[2] = 0
    assert rooms(kernel, table, Demand(1, 1000, 0, 1000, 1)) == [2, 3, 0, 4]


def test_count_stops_at_what_was_asked_for(kernel: ModuleType) -> None:
    assert rooms(kernel, table_with([0] * 8), demand_of(1), most=3) == [3]
    assert rooms(kernel, table_with([]), demand_of(0), most=3) == [3]


def test_memory_requests_are_counted_on_the_cards_of_each_node(kernel: ModuleType) -> None:
    assert rooms(kernel, table_with([0, 0], mib=16384), demand_of(mib=8192)) == [4]
    assert rooms(kernel, table_with([0, 0], mib=16384), demand_of(mib=8193)) == [2]
    assert rooms(kernel, table_with([0], mib=0), demand_of(mib=1)) == [0]
