"""The tables of typical pods, and the costs of card models."""

import pytest

from extender.kernels.typical import TypicalPod, fgd_measure
from extender.lab.openb.measures import cost_of_models, frag_measure

T4, G2 = 0b01, 0b10


def test_fgd_has_a_point_for_each_percent_of_the_logistic_curve() -> None:
    steps = fgd_measure([TypicalPod(0, 1, 500, 3), TypicalPod(0, 1, 1000, 4)]).steps
    assert len(steps) == 99
    # 50 at no change; 1000 milli, weighed by 7, are one unit of the exponent.
    assert steps[49] == 0
    assert steps[73] <= 7 * 1000 * 1.0986 < steps[74]


def test_frag_scales_weights_to_a_fixed_sum_by_largest_remainder() -> None:
    typical = frag_measure([TypicalPod(0, 1, 100 * at, 1) for at in (1, 2, 3)])
    assert list(typical.weight) == [1366, 1365, 1365]
    assert len(typical.chance) == 4096 + 1


def test_frag_leaves_out_pods_too_rare_to_count() -> None:
    typical = frag_measure([TypicalPod(0, 1, 500, 10**6), TypicalPod(0, 1, 1000, 1)])
    assert list(typical.milli) == [500]


@pytest.mark.parametrize("measure", [fgd_measure, frag_measure])
def test_measure_without_typical_pods_is_refused(measure: type) -> None:
    with pytest.raises(ValueError, match="between 1 and 512"):
        measure([])


def test_typical_pod_with_cards_but_no_share_of_them_is_refused() -> None:
    with pytest.raises(ValueError, match="milli"):
        fgd_measure([TypicalPod(0, 1, 0)])


def test_models_cost_the_same_where_no_pod_names_models() -> None:
    cost = cost_of_models([TypicalPod(0, 1, 500, 9)], {0: 1000, 1: 9000})
    assert list(cost[:3]) == [10, 10, 0]


def test_model_that_half_of_the_demand_names_is_dear() -> None:
    pods = [TypicalPod(0, 1, 1000, 1, T4), TypicalPod(0, 1, 1000, 1, T4 | G2)]
    # T4 has a fifth of the free GPU: (1/2 / 1/5 + 1/2) of the mean pressure; G2 has 1/2 of it.
    assert list(cost_of_models(pods, {0: 2000, 1: 8000})[:2]) == [30, 5]


def test_models_without_free_gpu_and_demand_without_gpu_cost_nothing_special() -> None:
    pods = [TypicalPod(0, 1, 1000, 1, T4), TypicalPod(0, 1, 1000, 1)]
    assert list(cost_of_models(pods, {0: 0, 1: 8000})[:2]) == [5, 5]
    assert list(cost_of_models([TypicalPod(500, 0, 0)], {0: 1000})[:1]) == [0]
