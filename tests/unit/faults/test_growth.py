"""Steady growth from check point to check point fails a soak, fluctuation does not."""

import os

import pytest

from tests.faults.growth import FEWEST, Growth, memory_mib, open_files


def grown(name: str, values: list[float]) -> Growth:
    growth = Growth()
    for value in values:
        growth.add({name: value})
    return growth


@pytest.mark.parametrize(
    ("name", "step"),
    [("control MiB", 3.0), ("serve files", 20.0), ("rows", 8.0), ("events", 120.0)],
)
def test_steady_growth_is_found(name: str, step: float) -> None:
    (found,) = grown(name, [100 + step * at for at in range(12)]).findings()
    assert found.startswith(f"{name} grew from ")


def test_what_fills_in_the_first_third_and_then_wavers_passes() -> None:
    filling, settled = [60.0, 90.0, 98.0, 99.0], [100.0, 101.0, 99.0, 102.0, 100.0, 98.0, 101.0]
    assert grown("control MiB", filling + settled).findings() == []


def test_five_percent_of_memory_is_the_limit() -> None:
    assert grown("control MiB", [100.0] * 8 + [106.9] * 4).findings() == []
    assert grown("control MiB", [100.0] * 8 + [107.1] * 4).findings() != []


def test_too_few_samples_prove_nothing() -> None:
    assert grown("rows", [1.0] * (FEWEST - 1)).findings() != []
    assert Growth().findings() == ["nothing was sampled"]


def test_every_series_has_a_line_that_tells_its_halves() -> None:
    assert list(grown("rows", [5.0, 6.0, 7.0, 8.0, 8.0, 9.0]).lines()) == [
        "rows: first 5, last 9, most 9, medians 7.5 and 8.5, 6 samples"
    ]


def test_memory_and_files_of_a_process_are_read_and_of_a_dead_one_nothing() -> None:
    assert memory_mib(os.getpid()) > 1
    before = open_files(os.getpid())
    with open(os.devnull):
        assert open_files(os.getpid()) == before + 1
    assert (memory_mib(2**22 + 1), open_files(2**22 + 1)) == (0.0, 0)
