"""Parts of the benchmark are named on the command line."""

from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench.__main__ import main
from tests.bench.figures import Figure


def test_an_unknown_part_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "rest", "thoughput"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "unknown: thoughput; known: shapes, quiet," in capsys.readouterr().err


def test_what_was_measured_before_a_part_fails_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail() -> list[Figure]:
        raise TimeoutError("a pod was not bound in 240 s")

    monkeypatch.chdir(tmp_path)
    parts = {"first": lambda: [Figure("pods bound", 7.0, "pods/s")], "second": fail}
    monkeypatch.setattr(bench, "IN_MEMORY", parts)
    monkeypatch.setattr("sys.argv", ["bench", "first", "second"])
    with pytest.raises(TimeoutError, match="240 s"):
        main()
    assert "pods bound" in capsys.readouterr().out
    assert "pods bound" in Path("build/bench.json").read_text()
