"""Prices of room on many nodes, compiled and twin: the same sentences hold for both."""

from array import array
from types import ModuleType

import pytest

from extender.kernels import victims
from tests.twins import victims_twin
from tests.unit.kernels.herds import Case, Place, Pod, Work

pytestmark = pytest.mark.parametrize("kernel", [victims, victims_twin], ids=["compiled", "twin"])


def three_nodes(*lost: int) -> Case:
    """A full node for each pod."""
    pods = [Pod(node, node, cards=(0,), lost=each) for node, each in enumerate(lost)]
    return Case([Place([0])] * len(lost), pods, work=[Work()] * len(lost))


def room_in(kernel: ModuleType, case: Case, *candidates: int) -> "victims.Room":
    nodes = array("i", candidates or range(len(case.places)))
    found: victims.Room = kernel.Room(
        case.table, nodes, case.herd, case.terms, case.demand, *case.extras
    )
    found.update_all()
    return found


def test_the_cheapest_node_is_found_the_first_of_equals(kernel: ModuleType) -> None:
    assert room_in(kernel, three_nodes(5, 2, 2)).cheapest() == 1
    assert room_in(kernel, three_nodes(5, 2, 2), 2, 0, 1).cheapest() == 0


def test_room_that_is_there_costs_nothing(kernel: ModuleType) -> None:
    case = Case([Place([0]), Place([1000])], [Pod(cards=(0,))])
    room = room_in(kernel, case)
    assert room.price(1) == (0, 0, 0) < room.price(0)
    assert room.cheapest() == 1


def test_nodes_on_which_nothing_helps_are_never_the_cheapest(kernel: ModuleType) -> None:
    room = room_in(kernel, Case([Place([0]), Place([])], [Pod(cards=(0,), is_here=False)]))
    assert room.price(0)[0] == kernel.IMPOSSIBLE
    assert room.cheapest() == -1


def test_a_price_holds_until_it_is_worked_out_again(kernel: ModuleType) -> None:
    case = three_nodes(5, 2, 3)
    room = room_in(kernel, case)
    case.herd.is_here[1] = 0
    assert room.cheapest() == 1
    room.update(array("i", [1]))
    assert room.cheapest() == 2


def test_the_cheapest_is_known_after_any_change(kernel: ModuleType) -> None:
    case = three_nodes(4, 3, 2, 1, 0)
    room, out = room_in(kernel, case, 4, 2, 0, 3, 1), array("i", [9, 9])
    order = []
    while (at := room.cheapest()) >= 0:
        assert room.confirm(at, out) == 1
        order.append(out[0])
        room.exclude(at)
    assert order == [4, 3, 2, 1, 0]
    room.update(array("i", [1, 3]))
    assert room.cheapest() == 3


def test_who_leaves_is_confirmed_at_the_price_that_is_known(kernel: ModuleType) -> None:
    case = three_nodes(5, 2, 3)
    room, out = room_in(kernel, case), array("i", [9, 9])
    assert room.confirm(1, out) == 1
    assert out[0] == 1
    case.herd.is_here[1] = 0
    assert room.confirm(1, out) == -1
    assert room.cheapest() == 2


def test_an_excluded_node_comes_back_with_its_next_price(kernel: ModuleType) -> None:
    room = room_in(kernel, three_nodes(5, 2, 3))
    room.exclude(1)
    assert room.cheapest() == 2
    room.update(array("i", [1]))
    assert room.cheapest() == 1


def test_capacity_counts_all_that_could_leave_up_to_what_was_asked(kernel: ModuleType) -> None:
    case = Case(
        [Place([0, 0, 1000]), Place([0])],
        [Pod(0, 0, cards=(0,)), Pod(0, 1, cards=(1,), is_here=False), Pod(1, 2, cards=(0,))],
        work=[Work()] * 3,
    )
    room = room_in(kernel, case)
    assert [room.capacity(9), room.capacity(2)] == [3, 2]


def test_choosing_leaves_nothing_behind(kernel: ModuleType) -> None:
    room, out = room_in(kernel, three_nodes(1, 1, 1)), array("i", [9, 9])
    before = [room.price(at) for at in range(3)]
    assert room.choose(2, out) == 1
    assert out[0] == 2
    room.update_all()
    assert [room.price(at) for at in range(3)] == before
