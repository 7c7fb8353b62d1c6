"""Case files on real processes: the command, the arbiter, the native library and workers."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_shim.cli import time_slicing
from tests.support.fakecuda import Card

#: One steady case and one refusal: more take a second or more each.
CASES = """
- id: halves
  mode: fair
  lease: "0.25"
  precision: "0.05"
  workloads:
  - {name: a, asks: {gpu-fraction: "0.5"}, busy: true}
  - {name: b, asks: {gpu-fraction: "0.5"}, busy: true}
  - {name: c, asks: {gpu-fraction: "0.5"}, busy: true}
  expect:
    share: {a: "1/2", b: "1/2"}
    refused: c
    slack: "1/20"
"""


def test_a_case_is_played_on_real_processes(
    place: Path, native: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "cases.yaml").write_text(CASES)
    monkeypatch.setenv("FAKECUDA_STATE", str(Card(place / "card").path))
    options = [
        "--mode",
        "real",
        "--driver",
        str(driver),
        "--libraries",
        str(native),
        "--plans",
        "2",
    ]
    done = CliRunner().invoke(time_slicing, ["run", str(place / "cases.yaml"), *options])
    assert done.output.splitlines() == ["passed  halves", "1 passed, 0 failed, 0 skipped"]


def test_without_a_gpu_the_command_says_so(place: Path, native: Path) -> None:
    (place / "cases.yaml").write_text(CASES)
    options = ["--mode", "real", "--driver", str(place), "--libraries", str(native)]
    done = CliRunner().invoke(time_slicing, ["run", str(place / "cases.yaml"), *options])
    assert done.exit_code == 1
    assert "has no GPU to run on" in done.output
