"""FGD in doubles, summed as by its authors, compiled and twin."""

from array import array
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels.typical import ALL_MODELS, Scores, TypicalPod
from extender.lab.kernels import published as compiled
from extender.lab.openb.measures import published_measure
from tests.twins import published_twin as twin
from tests.unit.kernels.cases import Case, Place

pytestmark = pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "twin"])

HALF, WHOLE = TypicalPod(0, 1, 500), TypicalPod(0, 1, 1000)


def wastes(kernel: ModuleType, free: list[int], *pods: TypicalPod, cpu: int = 10) -> float:
    """The milli of one node with these cards that the pods can't use."""
    table = Case([Place(free, cpu=cpu)], []).table
    measure = published_measure(pods, sum(pod.weight for pod in pods), array("i", [0]))
    kernel.measure_nodes(table, measure, array("i", [0]))
    return measure.waste[0]


def scored(kernel: ModuleType, free: list[int], demand: Demand, *pods: TypicalPod) -> Scores:
    """Of one node."""
    table, only = Case([Place(free)], []).table, array("i", [0])
    measure, scores = published_measure(pods, len(pods), array("i", [0])), Scores.of(1)
    kernel.measure_nodes(table, measure, only)
    kernel.score_nodes(table, measure, demand, only, scores)
    return scores


def test_free_cards_too_small_for_a_pod_that_fits_are_waste(kernel: ModuleType) -> None:
    assert wastes(kernel, [1000, 300, 499], HALF) == 799


def test_all_idle_cards_are_waste_for_a_pod_that_does_not_fit(kernel: ModuleType) -> None:
    assert wastes(kernel, [400, 300], HALF) == 700
    assert wastes(kernel, [1000, 300], TypicalPod(11, 1, 500)) == 1300
    assert wastes(kernel, [400, 300], TypicalPod(11, 1, 500)) == 700
    assert wastes(kernel, [1000], TypicalPod(0, 1, 500, models=ALL_MODELS - 1)) == 1000
    assert wastes(kernel, [1000], TypicalPod(0, 0, 0)) == 1000


def test_pods_count_by_their_share(kernel: ModuleType) -> None:
    assert wastes(kernel, [500], TypicalPod(0, 1, 500, 3), TypicalPod(0, 1, 1000, 1)) == 125


def test_a_fall_of_nothing_scores_fifty(kernel: ModuleType) -> None:
    scores = scored(kernel, [1000, 1000], Demand(1, 1000), WHOLE)
    assert (scores.score[0], scores.card[0]) == (50, -1)


def test_the_card_by_which_waste_falls_most_is_the_best(kernel: ModuleType) -> None:
    scores = scored(kernel, [1000, 500], Demand(1, 500), WHOLE)
    assert (scores.score[0], scores.card[0]) == (62, 1)


def test_a_pod_that_does_not_fit_has_no_score(kernel: ModuleType) -> None:
    scores = scored(kernel, [400], Demand(1, 500), WHOLE)
    assert (scores.score[0], scores.card[0]) == (-1, -1)


def test_rounding_of_shares_decides_where_nothing_changes(kernel: ModuleType) -> None:
    """Three thirds of 1000 milli are less than 1000 once they are added up one by one."""
    thirds = [TypicalPod(cpu, 1, 1000) for cpu in (0, 1, 2)]
    one_by_one = 1 / 3 * 700 + 1 / 3 * 700 + 1 / 3 * 700
    assert wastes(kernel, [700], *thirds) == one_by_one
