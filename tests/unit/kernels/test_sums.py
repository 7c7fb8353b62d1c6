"""The sums by which workloads are refused quickly, compiled and twin."""

from array import array
from types import ModuleType

import pytest

from extender.kernels import sums
from tests.twins import sums_twin
from tests.unit.kernels.cases import Case, Giver, Place, Pod, Work

pytestmark = pytest.mark.parametrize("kernel", [sums, sums_twin], ids=["compiled", "twin"])


def idle(kernel: ModuleType, case: Case, *nodes: int) -> list[int]:
    out = array("q", [9, 9, 9])
    kernel.sum_idle(case.table, array("i", nodes), out)
    return list(out)


def test_what_is_idle_is_added_up_over_the_nodes_named(kernel: ModuleType) -> None:
    places = [Place([1000, 300], cpu=5, memory=7), Place([500], cpu=1, memory=1), Place([], 2, 2)]
    assert idle(kernel, Case(places, []), 0, 2) == [1300, 7, 9]
    assert idle(kernel, Case(places, [])) == [0, 0, 0]


def test_what_is_overdrawn_takes_nothing_from_the_rest(kernel: ModuleType) -> None:
    places = [Place([-500, 1000], cpu=-3, memory=-1), Place([], cpu=2, memory=4)]
    assert idle(kernel, Case(places, []), 0, 1) == [1000, 2, 4]


def test_a_queue_gives_what_its_workloads_do_and_one_the_largest(kernel: ModuleType) -> None:
    case = Case(
        [Place([0, 0, 0])],
        [
            Pod(owner=0, cards=(0,), cpu=4),
            Pod(owner=1, cards=(1, 2), cpu=1),
            Pod(owner=2, cpu=7, memory=3),
        ],
        work=[Work(queue=0), Work(queue=0), Work(queue=1)],
        givers=[Giver(), Giver(), Giver()],
    )
    total, largest = array("q", [9] * 9), array("q", [9] * 9)
    kernel.sum_units(case.candidates, total, largest)
    assert list(total) == [3000, 5, 0, 0, 7, 3, 0, 0, 0]
    assert list(largest) == [2000, 4, 0, 0, 7, 3, 0, 0, 0]
