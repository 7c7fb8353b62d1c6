"""The packing policies of the FGD paper, kernel and twin."""

from array import array
from dataclasses import dataclass
from types import ModuleType

import pytest

from extender.api.demand import Demand
from extender.kernels.typical import Scores
from extender.lab.kernels import baselines as compiled
from extender.state.nodes import NodeTable
from tests.twins import baselines_twin as twin
from tests.unit.kernels.test_fragments import gpus, nodes_with

pytestmark = pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "twin"])

WHOLE_CPU = 128_000


@dataclass
class Baseline:
    rule: int
    tags: "array[int]"


def scores(
    kernel: ModuleType, rule: int, table: NodeTable, demand: Demand, tags: list[int] | None = None
) -> list[int]:
    found = Scores.of(len(table))
    baseline = Baseline(rule, array("Q", tags or [0] * len(table)))
    kernel.score_nodes(table, baseline, demand, array("i", range(len(table))), found)
    return list(found.score)


def test_dot_product_prefers_nodes_with_little_of_what_the_pod_wants(kernel: ModuleType) -> None:
    table = nodes_with([0] * 8, [1000] * 4 + [0] * 4, cpu_milli=WHOLE_CPU)
    found = scores(kernel, kernel.DOT_PRODUCT, table, gpus(1000, 4, WHOLE_CPU // 2))
    # 1 - (1 * 1/2 + 1 * 1/2) / 2, and 1 - (1 * 1/2 + 1/2 * 1/2) / 2 = 0.625, truncated.
    assert found == [50, 62]


def test_best_fit_prefers_the_least_left_over(kernel: ModuleType) -> None:
    table = nodes_with([0] * 8, [1000] * 4 + [0] * 4, cpu_milli=WHOLE_CPU)
    found = scores(kernel, kernel.BEST_FIT, table, gpus(1000, 4, WHOLE_CPU // 2))
    assert found == [50, 75]


def test_clustering_prefers_its_own_kind_then_mixed_then_empty_then_others(
    kernel: ModuleType,
) -> None:
    fraction, one_gpu = 1 << 0, 1 << 1
    table = nodes_with(*[[400] + [0] * 7] * 4)
    tags = [one_gpu, fraction | one_gpu, 0, fraction]
    # 400 of 8000 milli in use add 25 * 400 // 8000 = 1.
    assert scores(kernel, kernel.CLUSTERING, table, gpus(1000), tags) == [76, 51, 26, 1]
    assert scores(kernel, kernel.CLUSTERING, table, gpus(300), tags) == [1, 51, 26, 76]


def test_packing_prefers_shared_cards_then_used_nodes_then_small_ones(kernel: ModuleType) -> None:
    table = nodes_with([700, 0], [1000, 0], [0, 0], [0] * 8)
    assert scores(kernel, kernel.PACKING, table, gpus(300)) == [97, 49, 31, 25]
    assert scores(kernel, kernel.PACKING, table, gpus(1000)) == [49, 49, 31, 25]


def test_pods_without_gpus_are_all_the_same_to_clustering_and_packing(kernel: ModuleType) -> None:
    table = nodes_with([700, 0], [])
    for rule in (kernel.CLUSTERING, kernel.PACKING):
        assert scores(kernel, rule, table, gpus(0, 0, 1000), [1, 0]) == [0, 0]


def test_misfits_score_minus_one(kernel: ModuleType) -> None:
    table = nodes_with([500], [0], [0], [0])
    table.free_cpu_milli[1] = 999
    table.free_memory_mib[2] = 0
    demand = Demand(devices=1, milli=1000, cpu_milli=1000, memory_mib=1)
    for rule in range(4):
        found = scores(kernel, rule, table, demand)
        assert found[:3] == [-1, -1, -1]
        assert found[3] >= 0


def test_scores_of_nodes_beyond_all_sizes_are_never_negative(kernel: ModuleType) -> None:
    table = nodes_with([0] * 40, cpu_milli=10**8)
    for rule in range(4):
        assert 0 <= scores(kernel, rule, table, gpus(1000, 40, 10**8))[0] <= 100
