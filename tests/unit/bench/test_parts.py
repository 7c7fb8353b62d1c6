"""Parts of the benchmark are named on the command line."""

import pytest

from tests.bench.__main__ import main


def test_an_unknown_part_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "rest", "thoughput"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "unknown: thoughput; known: shapes, quiet," in capsys.readouterr().err
