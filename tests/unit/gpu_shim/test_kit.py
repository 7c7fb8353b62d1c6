"""The runner of the GPU kit: time limits, immediate output, and no pass without samples."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpu_shim.bench import __main__ as bench
from gpu_shim.bench.figures import Bar, Line
from gpu_shim.bench.rows import points_off
from gpu_shim.bench.stage import StageTenant
from gpu_shim.kit import make, rows, runner
from gpu_shim.kit.parts import LONGEST_S, PARTS, Step
from gpu_shim.kit.results import Result
from gpu_shim.policy.leases import LeaseSettings


@pytest.mark.parametrize("part", PARTS)
def test_the_steps_of_a_part_have_time_within_nine_minutes(part: str) -> None:
    assert sum(step.budget_s for step in PARTS[part]) <= LONGEST_S - 10
    names = [step.name for step in PARTS[part]]
    assert len(set(names)) == len(names)
    assert all(step.expected for step in PARTS[part])


@pytest.mark.parametrize(
    ("results", "code", "outcome"),
    [
        ([Result("a", "1", 5, is_good=True)], 0, "passed"),
        ([Result("a", "1", 5)], 0, "measured"),
        ([Result("a", "1", 5, is_good=True), Result("b", "0", 0)], 0, "nothing sampled"),
        ([Result("a", "1", 0, is_good=True)], 0, "nothing sampled"),
        ([], 0, "nothing sampled"),
        ([Result("a", "1", 5, is_good=True), Result("b", "2", 5, is_good=False)], 0, "failed"),
        ([Result("a", "1", 5, is_good=True)], 1, "failed"),
    ],
)
def test_what_a_step_comes_to(results: list[Result], code: int, outcome: str) -> None:
    assert runner.outcome_of(results, code) == outcome


P99_MS = 29.7


@pytest.mark.parametrize(
    ("bar", "outcome"),
    [
        (Bar(P99_MS, "ms at p99", most=5), "failed"),
        (Bar(P99_MS, "ms at p99", most=30), "passed"),
        (Bar(96.9, "%", least=97), "failed"),
        (Bar(97.0, "%", least=97), "passed"),
        (Bar(26.5, "%", least=24, most=26), "failed"),
        (Bar(float("nan"), "%", least=24), "failed"),
        (Bar(float("nan"), "%", most=26), "failed"),
    ],
)
def test_a_row_that_misses_its_bar_has_failed(
    bar: Bar,
    outcome: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    async def measured(*_: object) -> tuple[dict[str, str], list[Line]]:
        return {}, [Line(11, "met", "1", (Bar(1, "s", most=1),)), Line(11, "w", "v", (bar,), 640)]

    monkeypatch.setattr(rows, "measure", measured)
    rows.main(["11", "5"])
    told = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert runner.outcome_of([msgspec.convert(each, Result) for each in told], 0) == outcome
    assert told[1]["expected"] == str(bar)


def test_a_bar_says_nothing_of_what_was_not_sampled_and_no_bar_is_no_pass() -> None:
    met = Bar(0, "points", most=1)
    assert Line(2, "w", "v", (met,), n_samples=0).is_good is None
    assert Line(2, "w", "v").is_good is None
    assert Line(2, "w", "v", (met, Bar(2, "points", most=1))).is_good is False


def test_a_share_may_be_off_by_a_point_and_what_one_lease_is_of_the_time() -> None:
    ours: Any = SimpleNamespace(settings=LeaseSettings(), seconds=25.0)
    assert points_off(ours) == pytest.approx(2)
    assert points_off(ours, longest_s=1) == pytest.approx(5)


def test_bars_are_reported_in_words() -> None:
    bars = (Bar(3, "ms", most=5), Bar(3, "%", least=97), Bar(3, "%", 24, 26))
    assert Line(1, "w", "v", bars).bar == "at most 5 ms, at least 97 %, 24 to 26 %"


def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, budget_s: float) -> Step:
    """A step that runs this program."""
    package = tmp_path / "gpu_shim" / "kit"
    package.mkdir(parents=True)
    (tmp_path / "gpu_shim" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "scripted.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return Step("scripted", ("scripted",), budget_s, "as written")


LINE = 'print(\'{"what": "w", "value": "v", "n_samples": 3, "is_good": true}\', flush=True)\n'


def test_a_step_that_lasts_too_long_is_ended_and_its_lines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = scripted(tmp_path, monkeypatch, f"import time\n{LINE}time.sleep(60)\n", 1.5)
    lines: list[Any] = []
    # A busy machine may take seconds to start a program.
    for budget_s in (1.5, 6, 24):
        report, begin = io.StringIO(), time.monotonic()
        assert not runner.run_part("x", [replace(step, budget_s=budget_s)], report)
        assert time.monotonic() - begin < budget_s + 10
        *lines, end = map(json.loads, report.getvalue().splitlines())
        assert end["outcome"] == "timed out"
        if lines:
            break
    assert [(line["value"], line["expected"]) for line in lines] == [("v", "as written")]


def test_a_step_for_which_no_time_is_left_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, report = scripted(tmp_path, monkeypatch, LINE, 5), io.StringIO()
    assert not runner.run_part("x", [step], report, longest_s=1)
    assert json.loads(report.getvalue())["outcome"] == "no time left"


def test_what_a_step_says_besides_is_kept_and_a_good_result_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import sys\nprint('a word', file=sys.stderr, flush=True)\n{LINE}"
    step, report = scripted(tmp_path, monkeypatch, text, 20), io.StringIO()
    assert runner.run_part("x", [step], report)
    said, line, end = map(json.loads, report.getvalue().splitlines())
    assert said["said"] == "a word"
    assert line["n_samples"] == 3
    assert end["outcome"] == "passed"


def test_every_package_of_the_kit_is_pinned() -> None:
    lock = (make.ROOT / "requirements.lock").read_text("utf-8").splitlines()
    assert {line.split("==")[0] for line in lock} >= set(make.PACKAGES)


class Stage:
    """Plays one tenant with kernels of this length by the card's clock."""

    def __init__(self, took_ms: float) -> None:
        self.took_ms = took_ms

    async def play(self, tenants: list[StageTenant], shim: str) -> dict[str, Any]:
        assert shim == "none"
        ns = int(self.took_ms * 1e6)
        answer = {"n": 50, "runs": [[at * 2 * ns, at * 2 * ns + ns] for at in range(9)]}
        return {tenants[0].name: SimpleNamespace(answers=[answer])}


async def test_rows_are_measured_with_kernels_that_take_the_time_that_they_should() -> None:
    stage: Any = Stage(took_ms=4.6)
    assert await bench.calibrate(stage) == round(200_000 * 5 / 4.6)
    stage.took_ms = 0.007
    with pytest.raises(ValueError, match=r"took 0.007 ms instead of about 5 ms"):
        await bench.calibrate(stage)
