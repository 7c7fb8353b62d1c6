"""Which units leave a node for one more pod: the same holds for kernel and twin."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels import clearing
from tests.twins import clearing_twin
from tests.unit.kernels.herds import Case, Giver, Place, Pod, Work

pytestmark = pytest.mark.parametrize("kernel", [clearing, clearing_twin], ids=["compiled", "twin"])


def chosen(kernel: ModuleType, case: Case, ix: int = 0) -> set[int] | None:
    out = array("i", [99] * (case.herd.most_pods + 1))
    n = kernel.Clearing(*case.arguments).choose(ix, out)
    return None if n < 0 else set(out[:n])


def node_of(*pods: Pod, n_cards: int = 4, **rest: object) -> Case:
    """One node without a card free, with pods of workloads of their own."""
    for w, pod in enumerate(pods):
        pod.owner = w
    work = [Work() for _ in pods]
    return Case([Place([0] * n_cards)], pods, **{"work": work, **rest})  # type: ignore[arg-type]


def test_nobody_leaves_where_there_is_room(kernel: ModuleType) -> None:
    assert chosen(kernel, Case([Place([1000])], [])) == set()


def test_nothing_helps_where_nobody_may_leave(kernel: ModuleType) -> None:
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


def test_who_holds_cpu_leaves_where_only_cpu_is_short(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, memory=9), Pod(owner=1, cpu=2, lost=4), Pod(owner=2, cpu=3, lost=5)]
    case = Case([Place([], cpu=1)], pods, work=[Work()] * 3, demand=Demand(0, 0, 0, 3, 0))
    assert chosen(kernel, case) == {1}


def test_a_slot_is_freed_by_anybody(kernel: ModuleType) -> None:
    case = Case([Place([], slots=0)], [Pod(lost=2), Pod(owner=1)], [Work()] * 2, demand=Demand())
    assert chosen(kernel, case) == {1}


def test_what_is_counted_is_freed_by_who_holds_it(kernel: ModuleType) -> None:
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


def test_a_card_costs_what_those_lose_who_are_needed_on_it(kernel: ModuleType) -> None:
    # The small ones leave the first card before the half, and one of them in vain.
    first = [Pod(cards=(0,), milli=milli, lost=lost) for milli, lost in ((500, 8), (250, 6))]
    second = [Pod(cards=(1,), milli=500, lost=lost) for lost in (13, 2)]
    case = node_of(
        *first, Pod(cards=(0,), milli=250, lost=7), *second, n_cards=2, demand=Demand(1, 750)
    )
    assert chosen(kernel, case) == {0, 1}


def test_one_more_leaves_where_that_lets_a_dearer_one_stay(kernel: ModuleType) -> None:
    # A unit with half of two cards makes one of them free with the second pod, the other with the
    # third; alone the second is the cheaper, together the third is.
    case = Case(
        [Place([0, 0, 500, 250])],
        [
            Pod(owner=0, cards=(2, 3), milli=500, lost=11),
            Pod(owner=1, cards=(1,), lost=3),
            Pod(owner=2, cards=(3,), milli=250, lost=2),
            Pod(owner=3, cards=(0,), lost=12),
        ],
        work=[Work()] * 4,
        demand=Demand(2, 1000),
    )
    assert chosen(kernel, case) == {0, 2}
