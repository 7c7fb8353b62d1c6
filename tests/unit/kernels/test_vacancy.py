"""A node with some of its pods gone, compiled and twin: the same sentences hold for both."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels import vacancy
from tests.twins import vacancy_twin
from tests.unit.kernels.herds import Case, Place, Pod

pytestmark = pytest.mark.parametrize("kernel", [vacancy, vacancy_twin], ids=["compiled", "twin"])


def room(kernel: ModuleType, case: Case, *gone: int, ix: int = 0, most: int = 9) -> int:
    node = kernel.Vacancy(case.table, case.herd, case.demand, *case.extras)
    found: int = node.room(ix, array("i", gone), most)
    assert node.room(ix, array("i", gone), most) == found
    return found


def test_cards_of_those_gone_are_free(kernel: ModuleType) -> None:
    case = Case([Place([0, 0, 1000])], [Pod(cards=(0,)), Pod(cards=(1,))])
    assert [room(kernel, case), room(kernel, case, 0), room(kernel, case, 1, 0)] == [1, 2, 3]


def test_half_a_card_that_others_hold_stays_taken(kernel: ModuleType) -> None:
    case = Case([Place([0])], [Pod(cards=(0,), milli=500), Pod(cards=(0,), milli=500)])
    assert [room(kernel, case, 0), room(kernel, case, 0, 1)] == [0, 1]


def test_cpu_memory_and_slots_come_free_as_well(kernel: ModuleType) -> None:
    case = Case(
        [Place([1000] * 4, cpu=1, memory=1, slots=0)],
        [Pod(cpu=1), Pod(memory=1), Pod(cpu=4, memory=9)],
        demand=Demand(1, 1000, 0, 2, 2),
    )
    assert room(kernel, case, 0, 1) == 1
    assert room(kernel, case, 0, 2) == 2
    assert room(kernel, case, 1) == 0


def test_what_is_counted_comes_free_kind_by_kind(kernel: ModuleType) -> None:
    case = Case(
        [Place([], extra=(1, 0)), Place([], extra=(4, 2))],
        [Pod(extra=(1, 0)), Pod(extra=(0, 2)), Pod(extra=(2, 2))],
        demand=Demand(),
        extra_need=(2, 1),
    )
    assert [room(kernel, case, 0), room(kernel, case, 1), room(kernel, case, 0, 1)] == [0, 0, 1]
    assert room(kernel, case, ix=1) == 2


def test_room_is_counted_up_to_what_was_asked(kernel: ModuleType) -> None:
    assert room(kernel, Case([Place([1000] * 8)], []), most=3) == 3


def test_memory_of_cards_is_measured_on_the_node(kernel: ModuleType) -> None:
    demand = Demand(1, 0, 8192, 0, 0)
    case = Case([Place([0], mib=16384), Place([1000], mib=4096)], [Pod(cards=(0,))], demand=demand)
    assert [room(kernel, case, 0), room(kernel, case, ix=1)] == [2, 0]
