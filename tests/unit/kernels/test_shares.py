"""The division of a surplus, compiled and twin."""

from array import array
from types import ModuleType

import pytest

from extender.kernels import shares as compiled
from tests.twins import shares_twin as twin

pytestmark = pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "twin"])


def divide(
    kernel: ModuleType, surplus: int, weights: list[int], rooms: list[int], granule: int = 1000
) -> tuple[list[int], int]:
    out = array("q", [7] * len(weights))
    left = kernel.divide(
        surplus, array("q", weights), array("q", rooms), array("q", [granule] * len(weights)), out
    )
    return list(out), left


def test_surplus_goes_by_weight(kernel: ModuleType) -> None:
    assert divide(kernel, 8000, [3, 1], [9000, 9000]) == ([6000, 2000], 0)


def test_a_queue_that_wants_less_leaves_the_remainder_to_others(kernel: ModuleType) -> None:
    rooms = [10000, 3000, 10000, 2000]
    assert divide(kernel, 20000, [1, 2, 3, 4], rooms) == ([5000, 3000, 10000, 2000], 0)


def test_weight_zero_gets_nothing_and_what_no_queue_may_have_remains(kernel: ModuleType) -> None:
    assert divide(kernel, 5000, [0, 1], [9000, 2000]) == ([0, 2000], 3000)


def test_whole_gpus_go_by_largest_remainder(kernel: ModuleType) -> None:
    assert divide(kernel, 9000, [5, 3, 2], [9000] * 3) == ([4000, 3000, 2000], 0)


def test_ties_go_to_the_first(kernel: ModuleType) -> None:
    assert divide(kernel, 10000, [1, 1, 1], [10000] * 3) == ([4000, 3000, 3000], 0)


def test_grant_never_exceeds_the_room_and_the_rest_goes_on(kernel: ModuleType) -> None:
    # KAI gives one of two queues that want 0.6 of one GPU the whole of it.
    assert divide(kernel, 1000, [1, 1], [600, 600]) == ([600, 400], 0)


def test_fractional_claimants_are_served_to_the_milli(kernel: ModuleType) -> None:
    assert divide(kernel, 1000, [1, 1], [9000, 9000], granule=1) == ([500, 500], 0)
    assert divide(kernel, 1000, [1, 1, 1], [9000] * 3, granule=1) == ([334, 333, 333], 0)


def test_nothing_to_divide_gives_nothing(kernel: ModuleType) -> None:
    assert divide(kernel, 0, [1], [5]) == ([0], 0)
    assert divide(kernel, 5, [], []) == ([], 5)


def test_products_beyond_64_bits_are_exact(kernel: ModuleType) -> None:
    huge = 10**15
    assert divide(kernel, 4 * huge, [huge, 3 * huge], [9 * huge] * 2) == ([huge, 3 * huge], 0)


def test_parts_are_rounded_to_what_fractional_work_can_use(kernel: ModuleType) -> None:
    assert divide(kernel, 1000, [3, 1], [1000, 2000], granule=500) == ([1000, 0], 0)
    assert divide(kernel, 1000, [1, 1], [1000, 1000], granule=250) == ([500, 500], 0)


def test_many_claimants_are_divided_among_exactly(kernel: ModuleType) -> None:
    weights = [1 + at % 7 for at in range(1000)]
    grants, left = divide(kernel, 5_000_000, weights, [20_000] * 1000)
    assert (sum(grants), left) == (5_000_000, 0)
    assert all(grant % 1000 == 0 for grant in grants)
