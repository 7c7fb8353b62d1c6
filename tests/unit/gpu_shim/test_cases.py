"""Case files of time slicing: reading, running in virtual time, and the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_shim.cases.load import load
from gpu_shim.cases.outcome import differences
from gpu_shim.cases.virtual import run
from gpu_shim.cli import time_slicing

OWN = Path(__file__).parents[2] / "scenarios" / "cases" / "time-slicing" / "own.yaml"

CASE = """
- id: one
  mode: strict
  lease: "0.25"
  precision: "0.05"
  plan: "5"
  workloads:
  - {name: a, asks: {gpu-fraction: "0.25"}, request: "1/4", limit: "1/4", busy: true}
  expect:
    share: {a: "1/4"}
    leases: {a: [5, 5]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.yaml"
    path.write_text(CASE)
    return path


def command(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(time_slicing, ["run", *arguments])
    return done.exit_code, done.output.splitlines()


def rewrite(file: Path, old: str, new: str) -> Path:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def wrong(file: Path) -> list[str]:
    """What is different in the only case of the file."""
    (case,) = load([file]).cases
    return differences(case, run(case))


def failures(path: Path) -> dict[str, list[str]]:
    """What is different, case by case, in a file that has more than a few."""
    loaded = load([path])
    assert not loaded.broken
    assert len(loaded.cases) > 20
    found = {case.id: differences(case, run(case)) for case in loaded.cases}
    return {name: each for name, each in found.items() if each}


def test_every_shared_case_comes_out_exactly(shared: Path) -> None:
    assert failures(shared / "scenarios" / "time-slicing.yaml") == {}


def test_every_case_of_our_own_comes_out_exactly() -> None:
    assert failures(OWN) == {}


def test_the_last_line_counts(file: Path) -> None:
    assert command(str(file)) == (0, ["passed  one", "1 passed, 0 failed, 0 skipped"])


def test_json_is_one_object_for_each_case_before_the_count(file: Path) -> None:
    _, lines = command(str(file), "-o", "json")
    assert json.loads(lines[0])["held"] == {"a": "25/2"}
    assert lines[1] == "1 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  plan:", "  quantum: 3\n  plan:", "unknown field quantum"),
        ("busy: true", "busy: true, colour: red", "unknown field workloads[0].colour"),
        ('lease: "0.25"', "lease: soon", "field lease: 'soon' is not a number"),
        ("mode: strict", "mode: lax", "field mode"),
        ("gpu-fraction", "gpu-share", "unknown field workloads[0].asks.gpu-share"),
        ('share: {a: "1/4"}', 'share: {z: "1/4"}', "expect names 'z', which is not a workload"),
    ],
)
def test_what_is_wrong_names_file_case_and_field(file: Path, old: str, new: str, said: str) -> None:
    code, lines = command(str(rewrite(file, old, new)))
    assert code == 1
    assert f"{file}: one: " in lines[1]
    assert said in lines[1]
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('share: {a: "1/4"}', 'share: {a: "1/3"}', "a: due 25/2 s of 50, expected 50/3"),
        ("[5, 5]", "[6, 6]", "a: 5 leases in a plan, expected 6 to 6"),
        ('plan: "5"', 'plan: "4"', "plan is 5 s, expected 4"),
        ('limit: "1/4"', 'limit: "1"', "a: limit is 1/4, expected 1"),
        ("leases:", "refused: a\n    leases:", "refused is none, expected a"),
    ],
)
def test_a_case_that_expects_something_else_fails_and_says_what(
    file: Path, old: str, new: str, said: str
) -> None:
    assert said in " | ".join(wrong(rewrite(file, old, new)))


def test_a_stated_limit_below_the_fraction_lowers_the_automatic_request(file: Path) -> None:
    rewrite(
        file,
        'gpu-fraction: "0.25"}, request: "1/4"',
        'gpu-fraction: "0.5", gpu-compute-limit: "0.25"}',
    )
    assert wrong(file) == []


def test_a_stated_request_above_the_fraction_raises_the_automatic_limit(file: Path) -> None:
    rewrite(file, 'gpu-fraction: "0.25"', 'gpu-fraction: "0.1", gpu-compute-request: "0.25"')
    assert wrong(file) == []


def test_intervals_off_the_lease_grid_are_due_exactly_and_held_to_a_lease(file: Path) -> None:
    rewrite(file, "mode: strict", "window: 10\n  mode: fair")
    rewrite(file, 'limit: "1/4", busy: true', 'busy: [[0, "3.1"], ["3.1", "4.3"]]')
    rewrite(file, 'share: {a: "1/4"}\n    leases: {a: [5, 5]}', 'seconds: {a: "4.3"}')
    assert wrong(file) == []


def test_a_lease_that_is_no_whole_number_of_nanoseconds_is_rounded(file: Path) -> None:
    rewrite(file, 'lease: "0.25"', 'lease: "1/3"')
    rewrite(file, 'plan: "5"', 'plan: "20/3"')
    assert wrong(file) == []


def test_files_that_are_no_cases_are_passed_over_in_a_folder(file: Path) -> None:
    (file.parent / "other.yaml").write_text("kind: Pod\n")
    assert command(str(file.parent))[1][-1] == "1 passed, 0 failed, 0 skipped"


def test_a_file_that_is_no_yaml_is_a_failure(file: Path) -> None:
    file.write_text("{")
    code, lines = command(str(file))
    assert code == 1
    assert str(file) in lines[1]


def test_the_same_id_twice_is_a_failure(file: Path) -> None:
    file.write_text(CASE + CASE)
    assert command(str(file))[1][-1] == "1 passed, 1 failed, 0 skipped"
