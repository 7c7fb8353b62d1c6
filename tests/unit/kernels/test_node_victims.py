"""Which pods are evicted from a node for another pod, and the cost, kernel and twin."""

from array import array
from dataclasses import replace
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels import node_victims
from tests.twins import node_victims_twin
from tests.unit.kernels.cases import Case, Giver, Place, Pod, Work

pytestmark = pytest.mark.parametrize(
    "kernel", [node_victims, node_victims_twin], ids=["compiled", "twin"]
)


def room_in(kernel: ModuleType, case: Case, *node_ixs: int) -> "node_victims.NodeVictims":
    """With the costs of all nodes."""
    nodes = array("i", node_ixs or range(len(case.places)))
    found: node_victims.NodeVictims = kernel.NodeVictims(
        case.table, nodes, case.candidates, case.eligibility, case.demand, *case.extras
    )
    found.update(nodes)
    return found


def chosen(kernel: ModuleType, case: Case, ix: int = 0) -> set[int] | None:
    out = array("i", [99] * (case.candidates.most_pods + 1))
    n = room_in(kernel, case).choose(ix, out)
    return None if n < 0 else set(out[:n])


def high(kernel: ModuleType, case: Case) -> int:
    """The first integer of the cost of node 0."""
    return room_in(kernel, case).cost(0)[0]


def node_of(*pods: Pod, n_cards: int = 4, **rest: object) -> Case:
    """One node without a card free, with pods of workloads of their own."""
    for w, pod in enumerate(pods):
        pod.owner = w
    work = [Work() for _ in pods]
    return Case([Place([0] * n_cards)], pods, **{"work": work, **rest})  # type: ignore[arg-type]


def test_no_pod_leaves_where_the_new_one_fits(kernel: ModuleType) -> None:
    assert chosen(kernel, Case([Place([1000])], [])) == set()


def test_a_node_is_impossible_where_no_pod_may_leave(kernel: ModuleType) -> None:
    assert chosen(kernel, Case([Place([0])], [])) is None
    assert chosen(kernel, node_of(Pod(cards=(0,), is_here=False))) is None


def test_the_pod_that_loses_least_leaves(kernel: ModuleType) -> None:
    case = node_of(*[Pod(cards=(at,), lost=lost) for at, lost in enumerate((5, 2, 7, 3))])
    assert chosen(kernel, case) == {1}


def test_halves_of_one_card_are_cheaper_than_of_two(kernel: ModuleType) -> None:
    halves = [Pod(cards=(card,), milli=500, lost=1) for card in (0, 0, 1, 1)]
    halves[0].lost = 9
    assert chosen(kernel, node_of(*halves, n_cards=2)) == {2, 3}


def test_one_big_pod_is_taken_where_it_loses_less_than_many(kernel: ModuleType) -> None:
    small = [Pod(cards=(card,), lost=3) for card in range(4)]
    big = Pod(cards=(4, 5, 6, 7), lost=11)
    case = node_of(*small, big, n_cards=8, demand=Demand(4, 1000, 0, 0, 0))
    assert chosen(kernel, case) == {4}


def test_eight_of_one_card_leave_for_one_of_eight(kernel: ModuleType) -> None:
    pods = [Pod(cards=(card,)) for card in range(8)]
    case = node_of(*pods, n_cards=8, demand=Demand(8, 1000, 0, 0, 0))
    assert chosen(kernel, case) == set(range(8))


def test_a_pod_with_cpu_leaves_where_only_cpu_is_short(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, memory=9), Pod(owner=1, cpu=2, lost=4), Pod(owner=2, cpu=3, lost=5)]
    case = Case([Place([], cpu=1)], pods, work=[Work()] * 3, demand=Demand(0, 0, 0, 3, 0))
    assert chosen(kernel, case) == {1}


def test_any_pod_frees_a_slot(kernel: ModuleType) -> None:
    case = Case([Place([], slots=0)], [Pod(lost=2), Pod(owner=1)], [Work()] * 2, demand=Demand())
    assert chosen(kernel, case) == {1}


def test_a_counted_resource_is_freed_by_a_pod_that_holds_it(kernel: ModuleType) -> None:
    case = Case(
        [Place([], extra=(1, 0))],
        [Pod(extra=(5, 0)), Pod(owner=1, extra=(0, 1), lost=9)],
        work=[Work()] * 2,
        demand=Demand(),
        extra_need=(1, 1),
    )
    assert chosen(kernel, case) == {1}


def test_the_bigger_goes_first_where_that_lets_both_go(kernel: ModuleType) -> None:
    # Above its floor the queue has 250 milli-GPU and a milli-CPU: when the small pod has taken the
    # GPU there is nothing that the big one could give, but not the other way round.
    pods = [Pod(cards=(0,), milli=250, cpu=4), Pod(cards=(0,), milli=750, lost=9)]
    queue = Giver((1000, 4, 0), ((750, 3, 0), (0, 0, 0)), path=(0,))
    assert chosen(kernel, node_of(*pods, n_cards=1, givers=[queue])) == {0, 1}


def test_cards_too_small_are_not_freed(kernel: ModuleType) -> None:
    case = node_of(Pod(cards=(0,)), demand=Demand(1, 0, 20000, 0, 0))
    assert chosen(kernel, case) is None


def test_a_gang_is_taken_last_of_what_loses_the_same(kernel: ModuleType) -> None:
    case = Case(
        [Place([0, 0, 0])],
        [Pod(owner=0, cards=(0,)), Pod(owner=0, cards=(1,)), Pod(owner=1, cards=(2,), lost=1)],
        work=[Work(), Work()],
    )
    assert chosen(kernel, case) == {0, 1}
    assert chosen(kernel, Case(case.places, case.pods, [Work(), Work(surplus=1)])) == {2}


def test_a_card_costs_what_the_victims_needed_on_it_lose(kernel: ModuleType) -> None:
    # The small ones leave the first card before the half, and one of them in vain.
    first = [Pod(cards=(0,), milli=milli, lost=lost) for milli, lost in ((500, 8), (250, 6))]
    second = [Pod(cards=(1,), milli=500, lost=lost) for lost in (13, 2)]
    case = node_of(
        *first, Pod(cards=(0,), milli=250, lost=7), *second, n_cards=2, demand=Demand(1, 750)
    )
    assert chosen(kernel, case) == {0, 1}


def one_of(*pods: Pod, work: list[Work] | None = None, n: int = 1, **rest: object) -> Case:
    """Pods with a card each, of which the new pod wants n."""
    for card, pod in enumerate(pods):
        pod.cards = pod.cards or (card,)
    cards = [0] * (1 + max(card for pod in pods for card in pod.cards))
    demand = Demand(n, 1000, 0, 0, 0)
    return Case([Place(cards)], pods, work or [Work()], demand=demand, **rest)  # type: ignore[arg-type]


def floored(has: int, floor: int, second: int | None = None) -> Giver:
    """A queue that gives GPU above a floor, then above a lower one."""
    tiers = 1 if second is None else 2
    floors = ((floor, 0, 0), (second or 0, 0, 0))
    return Giver((has, 0, 0), floors, tiers, path=(0,))


def test_surplus_leaves_alone_and_the_rest_as_a_whole(kernel: ModuleType) -> None:
    pods = [Pod(lost=3), Pod(lost=4), Pod(lost=5)]
    assert high(kernel, one_of(*pods, work=[Work(surplus=1)])) == 3
    assert high(kernel, one_of(*pods, work=[Work(surplus=1)], n=2)) == (1 << 52) + 12


def test_surplus_of_a_workload_that_leaves_whole_leaves_with_it(kernel: ModuleType) -> None:
    pods = [Pod(lost=at) for at in range(3)]
    assert chosen(kernel, one_of(*pods, work=[Work(surplus=1)], n=3)) == {0, 1, 2}


def test_a_workload_that_is_stuck_or_safe_gives_surplus_only(kernel: ModuleType) -> None:
    for pod, held in ((Pod(), Work(surplus=1, is_stuck=True)), (Pod(safe=1), Work(surplus=1))):
        pods = [replace(pod), replace(pod)]
        assert chosen(kernel, one_of(*pods, work=[held])) is not None
        assert chosen(kernel, one_of(*pods, work=[held], n=2)) is None


def test_protected_and_more_important_pods_stay(kernel: ModuleType) -> None:
    assert chosen(kernel, one_of(Pod(safe=2), work=[Work(surplus=1)])) is None
    for below, expected in ((5, None), (6, {0})):
        case = one_of(Pod(), work=[Work(priority=5)], below_priority=below)
        assert chosen(kernel, case) == expected


def test_moving_loses_the_whole_workload_once(kernel: ModuleType) -> None:
    pods = [Pod(may_move=True, lost=2), Pod(may_move=True, lost=2)]
    case = one_of(*pods, n=2, moves=(True,), givers=[Giver(is_mobile=True)])
    assert room_in(kernel, case).cost(0)[:2] == (0, 4)


def test_a_pod_that_may_not_move_is_evicted(kernel: ModuleType) -> None:
    for may_move, moves, is_mobile in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        givers = [Giver(is_mobile=bool(is_mobile))]
        case = one_of(Pod(may_move=bool(may_move)), moves=(bool(moves),), givers=givers)
        assert high(kernel, case) == 1 << 52


def test_work_under_its_minimum_run_time_does_not_move_either(kernel: ModuleType) -> None:
    rest = {"moves": (True,), "givers": [Giver(is_mobile=True)]}
    pods = [Pod(safe=1, may_move=True), Pod(safe=1, may_move=True)]
    assert chosen(kernel, one_of(*pods, **rest)) is None  # type: ignore[arg-type]
    surplus = one_of(*pods, work=[Work(surplus=1)], **rest)  # type: ignore[arg-type]
    assert high(kernel, surplus) == 0


def test_a_queue_gives_while_it_is_above_its_floor(kernel: ModuleType) -> None:
    for n, is_possible in ((2, True), (3, False)):
        pods = [Pod(owner=w) for w in range(3)]
        case = one_of(*pods, n=n, work=[Work()] * 3, givers=[floored(3000, 1000)])
        assert (chosen(kernel, case) is not None) == is_possible


def test_surplus_evicted_before_the_other_pods_is_released_once(kernel: ModuleType) -> None:
    pods = [Pod(), Pod(), Pod(owner=1, lost=9)]
    case = one_of(*pods, n=3, work=[Work(surplus=1), Work()], givers=[floored(3000, 0)])
    assert chosen(kernel, case) == {0, 1, 2}


def test_the_second_tier_is_more_expensive_than_anything_in_the_first(kernel: ModuleType) -> None:
    first = one_of(Pod(lost=10**9), givers=[floored(2000, 1000, 0)])
    second = one_of(Pod(), givers=[floored(1000, 1000, 0)])
    assert high(kernel, first) < high(kernel, second)


def test_a_queue_ends_below_its_floor_only_where_no_other_victim_helps(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, cards=(0, 1)), Pod(owner=1, cards=(2,), lost=10**9)]
    for some, expected in ((pods, {1}), (pods[:1], {0})):
        case = one_of(*some, work=[Work(), Work()], givers=[floored(3000, 2000)])
        assert chosen(kernel, case) == expected


def test_every_queue_of_the_path_keeps_its_floor(kernel: ModuleType) -> None:
    parent = Giver((1000, 0, 0), ((1000, 0, 0), (0, 0, 0)))
    leaf = Giver((1000, 0, 0), path=(0, 1))
    assert chosen(kernel, one_of(Pod(), givers=[leaf, parent])) is None
    assert chosen(kernel, one_of(Pod(), givers=[Giver(tiers=0)])) is None


def test_a_higher_rank_is_more_expensive_than_any_lost_work(kernel: ModuleType) -> None:
    for may_move in (False, True):
        pods = [
            Pod(owner=0, lost=10**12, may_move=may_move),
            Pod(owner=1, lost=1, may_move=may_move),
        ]
        work = [Work(rank=0), Work(rank=1, surplus=1)]
        case = one_of(*pods, work=work, moves=(True,), givers=[Giver(is_mobile=True)])
        assert chosen(kernel, case) == {0}


def test_the_youngest_then_the_first_in_turn_leaves_of_equal_pods(kernel: ModuleType) -> None:
    pods = [Pod(owner=0), Pod(owner=1), Pod(owner=2, turn=1)]
    assert chosen(kernel, one_of(*pods, work=[Work(age=1), Work(), Work()])) == {1}
    assert chosen(kernel, one_of(*pods, work=[Work(age=1), Work(age=1), Work()])) == {2}


def test_capacity_measures_memory_cpu_and_counted_resources_on_each_node(
    kernel: ModuleType,
) -> None:
    demand = Demand(1, 0, 8192, 2, 0)
    places = [Place([0], mib=16384, cpu=2, extra=(0,)), Place([1000], mib=4096, extra=(9,))]
    pods = [Pod(cards=(0,), cpu=2, extra=(5,))]
    for needed, expected in ((2, 2), (3, 1), (6, 0)):
        case = Case(places, pods, demand=demand, extra_need=(needed,))
        assert room_in(kernel, case).capacity(9) == expected


def three_nodes(*lost: int) -> Case:
    """A full node for each pod."""
    pods = [Pod(node, node, cards=(0,), lost=each) for node, each in enumerate(lost)]
    return Case([Place([0])] * len(lost), pods, work=[Work()] * len(lost))


def test_the_cheapest_node_is_found_the_first_of_equals(kernel: ModuleType) -> None:
    assert room_in(kernel, three_nodes(5, 2, 2)).cheapest() == 1
    assert room_in(kernel, three_nodes(5, 2, 2), 2, 0, 1).cheapest() == 0


def test_room_that_is_there_costs_nothing(kernel: ModuleType) -> None:
    case = Case([Place([0]), Place([1000])], [Pod(cards=(0,))])
    room = room_in(kernel, case)
    assert room.cost(1) == (0, 0, 0) < room.cost(0)
    assert room.cheapest() == 1


def test_nodes_on_which_nothing_helps_are_never_the_cheapest(kernel: ModuleType) -> None:
    room = room_in(kernel, Case([Place([0]), Place([])], [Pod(cards=(0,), is_here=False)]))
    assert room.cost(0)[0] == kernel.IMPOSSIBLE
    assert room.cheapest() == -1


def test_a_cost_holds_until_it_is_worked_out_again(kernel: ModuleType) -> None:
    case = three_nodes(5, 2, 3)
    room = room_in(kernel, case)
    case.candidates.is_here[1] = 0
    assert room.cheapest() == 1
    room.update(array("i", [1]))
    assert room.cheapest() == 2


def test_the_cheapest_is_known_after_any_change(kernel: ModuleType) -> None:
    case, order_of = three_nodes(4, 3, 2, 1, 0), (4, 2, 0, 3, 1)
    room, out = room_in(kernel, case, *order_of), array("i", [9, 9])
    order = []
    while (at := room.cheapest()) >= 0:
        assert room.choose(order_of[at], out) == 1
        order.append(out[0])
        room.exclude(at)
    assert order == [4, 3, 2, 1, 0]
    room.update(array("i", [1, 3]))
    assert room.cheapest() == 3


def test_choosing_brings_the_cost_up_to_date(kernel: ModuleType) -> None:
    case = three_nodes(5, 2, 3)
    room, out = room_in(kernel, case), array("i", [9, 9])
    assert room.choose(1, out) == 1
    assert out[0] == 1
    case.candidates.is_here[1] = 0
    assert room.choose(1, out) == -1
    assert room.cheapest() == 2


def test_an_excluded_node_comes_back_with_its_next_cost(kernel: ModuleType) -> None:
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
    before = [room.cost(at) for at in range(3)]
    assert room.choose(2, out) == 1
    assert out[0] == 2
    room.update(array("i", range(3)))
    assert [room.cost(at) for at in range(3)] == before
