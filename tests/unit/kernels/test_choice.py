"""Which of a list of pods have to leave, compiled and twin: the same sentences hold for both."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels import choice
from tests.twins import choice_twin
from tests.unit.kernels.herds import Case, Place, Pod, Work

pytestmark = pytest.mark.parametrize("kernel", [choice, choice_twin], ids=["compiled", "twin"])

TWO = Demand(2, 1000, 0, 0, 0)


def needed(kernel: ModuleType, case: Case, *pods: int) -> list[int] | None:
    found = kernel.Choice(*case.arguments).needed(0, array("i", pods))
    return None if found is None else found[0]


def singles(*lost: int, demand: Demand = TWO) -> Case:
    """Pods with a card each, of workloads of their own."""
    pods = [Pod(owner=w, cards=(w,), lost=each) for w, each in enumerate(lost)]
    return Case([Place([0] * len(lost))], pods, work=[Work()] * len(lost), demand=demand)


def test_the_dearest_that_are_not_needed_stay(kernel: ModuleType) -> None:
    assert needed(kernel, singles(5, 1, 9, 2), 0, 1, 2, 3) == [1, 3]


def test_nobody_leaves_where_there_is_room(kernel: ModuleType) -> None:
    case = Case([Place([0, 1000, 1000])], [Pod(cards=(0,))], demand=TWO)
    assert needed(kernel, case, 0) == []


def test_a_list_that_does_not_help_is_refused(kernel: ModuleType) -> None:
    assert needed(kernel, singles(1, 1, 1), 0) is None


def test_a_core_brings_all_that_its_workload_has_on_the_node(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, cards=(at,)) for at in range(3)]
    case = Case([Place([0, 0, 0])], pods, demand=Demand(1, 1000, 0, 0, 0))
    assert needed(kernel, case, 1) == [1, 0, 2]


def test_surplus_stays_only_after_its_core_does(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, cards=(at,), lost=at) for at in range(3)]
    work = [Work(surplus=1)]
    one = Case([Place([0, 0, 0])], pods, work=work, demand=Demand(1, 1000, 0, 0, 0))
    assert needed(kernel, one, 0, 1) == [0]
    three = Case([Place([0, 0, 0])], pods, work=work, demand=Demand(3, 1000, 0, 0, 0))
    assert needed(kernel, three, 0, 1) == [0, 1, 2]


def test_who_is_named_twice_leaves_once(kernel: ModuleType) -> None:
    assert needed(kernel, singles(1, 1), 0, 0, 1, 1) == [0, 1]
