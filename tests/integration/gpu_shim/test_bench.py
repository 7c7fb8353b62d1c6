"""The figures' program on the fake driver: it reports what happened on the card."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_shim.bench.figures import busy_ns, gaps_ns, overlap_ns, parts_of_windows, quantile
from tests.integration.gpu_shim.containers import Scene


def figures(scene: Scene, tmp_path: Path, *rows: str) -> dict[str, str]:
    """What rows tell, by what was measured; leases and measurements are short."""
    report = tmp_path / "figures.json"
    short = ("--seconds", "1.2", "--lease-ms", "20", "--json", str(report))
    done = subprocess.run(
        [sys.executable, "-m", "gpu_shim.bench", *rows, *short, "--driver", str(scene.driver)],
        env={"FAKECUDA_STATE": str(scene.card.path), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["what"]: each["value"] for each in json.loads(report.read_text())["figures"]}


def test_shares_of_pairs_are_told_by_work_by_clock_and_by_account(
    scene: Scene, tmp_path: Path
) -> None:
    told = figures(scene, tmp_path, "2")
    clock = told["strict: a is due 25 %"].split("clock ")[1].split(" %")[0]
    assert abs(float(clock) - 25) < 6
    assert "overlap" in told["strict: all together"]
    assert "points" in told["strict: a is due 25 %, worst plan"]


def test_the_arbiters_own_cost_is_told_beside_what_the_machine_costs_at_least(
    scene: Scene, tmp_path: Path
) -> None:
    told = figures(scene, tmp_path, "10", "11", "12")
    n_turns = int(told["card unused at a hand-over"].split(", ")[2].split()[0])
    assert n_turns > 10
    assert told["a message and a wake-up by way of a third process"].endswith(", 400 times")
    assert told["registering, 64 programs at once"].endswith(", 640 times")
    assert float(told["arbiter at rest, part of one processor"].removesuffix(" %")) < 100


def test_without_a_gpu_it_says_so(tmp_path: Path, native: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_shim.bench", "--driver", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("skipped: ")
    assert "no GPU" in done.stdout


def test_time_of_runs_that_overlap_is_counted_once() -> None:
    assert busy_ns([(0, 10), (5, 15), (20, 30)]) == 25
    assert busy_ns([]) == 0


def test_overlap_is_time_with_two_tenants_on_the_card() -> None:
    assert overlap_ns({"a": [(0, 10), (20, 30)], "b": [(5, 25)]}) == 10
    assert overlap_ns({"a": [(0, 10), (2, 8)]}) == 0


def test_gaps_are_between_different_tenants_and_never_below_zero() -> None:
    assert gaps_ns({"a": [(0, 10), (20, 30)], "b": [(35, 40), (39, 50)]}) == [5]
    assert gaps_ns({"a": [(0, 10)], "b": [(5, 15)]}) == [0]


def test_windows_as_long_as_a_plan_leave_out_two_and_see_a_pause() -> None:
    turns = {"a": [(at, at + 5) for at in range(0, 40, 10)], "b": [(5, 10), (15, 20), (35, 40)]}
    assert parts_of_windows(turns, 10, 5) == [
        {"a": 1.0, "b": 0.0},
        {"a": 1.0, "b": 0.0},
        {"a": 0.5, "b": 0.5},
    ]
    assert parts_of_windows({"a": []}, 10, 5) == []
    assert parts_of_windows({"a": [(0, 29)]}, 10, 5) == []


@pytest.mark.parametrize(("part", "value"), [(0.5, 3), (0.99, 4), (0, 1)])
def test_a_quantile_is_one_of_the_values(part: float, value: float) -> None:
    assert quantile([4, 1, 2, 3], part) == value
