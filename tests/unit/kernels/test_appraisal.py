"""Whether a pod may leave and what it costs, compiled and twin: the same holds for both."""

from array import array
from types import ModuleType

import pytest

from extender.kernels import appraisal
from tests.twins import appraisal_twin
from tests.unit.kernels.herds import Case, Giver, Place, Pod, Work

pytestmark = pytest.mark.parametrize(
    "kernel", [appraisal, appraisal_twin], ids=["compiled", "twin"]
)

ALONE, MOVE, CORE = 0, 1, 2
GPU = (0,)


def price(kernel: ModuleType, case: Case, p: int, *chosen: int) -> tuple[int, int, int, int] | None:
    found: tuple[int, int, int, int] | None
    found = kernel.Appraisal(case.herd, case.terms).price(p, array("i", chosen))
    return found


def known_price(kernel: ModuleType, case: Case, p: int, *chosen: int) -> tuple[int, int, int, int]:
    """Of one that may leave."""
    found = price(kernel, case, p, *chosen)
    assert found is not None
    return found


def case_of(*pods: Pod, work: list[Work] | None = None, **rest: object) -> Case:
    """All on one node with a card each."""
    return Case([Place([0] * len(pods))], pods, work=work or [Work()], **rest)  # type: ignore[arg-type]


def floored(has: int, floor: int, second: int | None = None) -> Giver:
    """A queue that gives GPU above a floor, then above a lower one."""
    tiers = 1 if second is None else 2
    floors = ((floor, 0, 0), (second or 0, 0, 0))
    return Giver((has, 0, 0), floors, tiers, path=(0,))


def test_surplus_goes_alone_and_the_rest_as_a_core(kernel: ModuleType) -> None:
    case = case_of(Pod(lost=3), Pod(lost=4), Pod(lost=5), work=[Work(surplus=1)])
    assert known_price(kernel, case, 0)[:2] == (ALONE, 3)
    assert known_price(kernel, case, 1, 0)[:2] == (CORE, (1 << 52) + 4 + 5)


def test_a_pod_that_is_no_surplus_takes_its_workload_along(kernel: ModuleType) -> None:
    case = case_of(Pod(is_core=True, lost=1), Pod(lost=2), work=[Work(surplus=1)])
    assert known_price(kernel, case, 0)[:2] == (CORE, (1 << 52) + 3)


def test_a_workload_that_is_stuck_or_safe_gives_surplus_only(kernel: ModuleType) -> None:
    for pod, held in (
        (Pod(), Work(surplus=1, is_stuck=True)),
        (Pod(safe=1), Work(surplus=1)),
    ):
        case = case_of(pod, pod, work=[held])
        assert price(kernel, case, 0) is not None
        assert price(kernel, case, 1, 0) is None


def test_who_is_gone_protected_or_too_important_stays(kernel: ModuleType) -> None:
    assert price(kernel, case_of(Pod(is_here=False)), 0) is None
    assert price(kernel, case_of(Pod(safe=2), work=[Work(surplus=1)]), 0) is None
    assert price(kernel, case_of(Pod(), work=[Work(priority=5)], below_priority=5), 0) is None
    assert price(kernel, case_of(Pod(), work=[Work(priority=4)], below_priority=5), 0) is not None


def test_moving_loses_the_whole_workload_once(kernel: ModuleType) -> None:
    mover = Pod(may_move=True, lost=2)
    case = case_of(mover, mover, moves=(True,), givers=[Giver(is_mobile=True)])
    assert known_price(kernel, case, 0)[:3] == (MOVE, 0, 4)
    assert known_price(kernel, case, 1, 0)[:3] == (MOVE, 0, 0)


def test_who_may_not_move_is_stopped(kernel: ModuleType) -> None:
    fixed = case_of(Pod(), moves=(True,), givers=[Giver(is_mobile=True)])
    at_home = case_of(Pod(may_move=True), moves=(True,), givers=[Giver(is_mobile=False)])
    full = case_of(Pod(may_move=True), moves=(False,), givers=[Giver(is_mobile=True)])
    for case in (fixed, at_home, full):
        assert known_price(kernel, case, 0)[0] == CORE


def test_a_queue_gives_while_it_is_above_its_floor(kernel: ModuleType) -> None:
    pods = [Pod(owner=w, cards=(w,)) for w in range(3)]
    case = case_of(*pods, work=[Work()] * 3, givers=[floored(3000, 1000)])
    assert price(kernel, case, 1, 0) is not None
    assert price(kernel, case, 2, 0, 1) is None


def test_the_second_tier_is_dearer_than_anything_in_the_first(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, cards=(0,), lost=10**9), Pod(owner=1, cards=(1,))]
    case = case_of(*pods, work=[Work(), Work()], givers=[floored(2000, 1000, 0)])
    assert known_price(kernel, case, 0)[1] < known_price(kernel, case, 1, 0)[1]


def test_ending_below_a_floor_is_dearer_than_what_is_lost(kernel: ModuleType) -> None:
    big, small = Pod(owner=0, cards=(0, 1)), Pod(owner=1, cards=(0,), lost=10**9)
    case = case_of(big, small, work=[Work(), Work()], givers=[floored(3000, 2000)])
    assert known_price(kernel, case, 1)[1] < known_price(kernel, case, 0)[1]


def test_every_queue_of_the_path_keeps_its_floor(kernel: ModuleType) -> None:
    parent = Giver((1000, 0, 0), ((1000, 0, 0), (0, 0, 0)))
    leaf = Giver((1000, 0, 0), path=(0, 1))
    assert price(kernel, case_of(Pod(cards=GPU), givers=[leaf, parent]), 0) is None


def test_a_queue_without_tiers_gives_nothing(kernel: ModuleType) -> None:
    assert price(kernel, case_of(Pod(), givers=[Giver(tiers=0)]), 0) is None


def test_age_then_turn_decide_among_equals(kernel: ModuleType) -> None:
    work = [Work(), Work(age=1), Work()]
    pods = [Pod(owner=0), Pod(owner=1), Pod(owner=2, turn=1)]
    least, old, late = (known_price(kernel, case_of(*pods, work=work), p) for p in range(3))
    assert least < late < old


def test_a_higher_rank_is_dearer_than_any_lost_work_and_than_a_whole_gang(
    kernel: ModuleType,
) -> None:
    pods = [Pod(owner=0, lost=10**12), Pod(owner=1, lost=1)]
    case = case_of(*pods, work=[Work(rank=0), Work(rank=1, surplus=1)])
    assert known_price(kernel, case, 0)[1] < known_price(kernel, case, 1)[1]


def test_among_pods_that_move_the_lower_rank_is_cheaper(kernel: ModuleType) -> None:
    pods = [Pod(owner=0, may_move=True, lost=10**12), Pod(owner=1, may_move=True)]
    case = case_of(
        *pods, work=[Work(), Work(rank=1)], moves=(True,), givers=[Giver(is_mobile=True)]
    )
    low, high = known_price(kernel, case, 0), known_price(kernel, case, 1)
    assert (low[0], high[0]) == (MOVE, MOVE)
    assert low[1:] < high[1:]


def test_work_under_its_minimum_run_time_does_not_move_either(kernel: ModuleType) -> None:
    pods = [Pod(safe=1, may_move=True)] * 2
    case = case_of(*pods, moves=(True,), givers=[Giver(is_mobile=True)])
    assert price(kernel, case, 0) is None
    surplus = case_of(*pods, work=[Work(surplus=1)], moves=(True,), givers=[Giver(is_mobile=True)])
    assert known_price(kernel, surplus, 0)[0] == MOVE


def test_surplus_that_left_before_the_rest_is_given_once(kernel: ModuleType) -> None:
    pods = [Pod(cards=(0,), lost=1), Pod(cards=(1,), lost=1), Pod(owner=1, cards=(2,))]
    work, giver = [Work(surplus=1), Work()], floored(3000, 0)
    case = Case([Place([0] * 3)], pods, work=work, givers=[giver])
    assert price(kernel, case, 2, 0, 1) is not None
