"""The output of preflight."""

import click
import pytest

from extender.cli.checks import checked
from extender.preflight.findings import PreflightFinding, State

FINDINGS = [
    PreflightFinding("NRI", State.FAIL, "not available on gpu-0", "use another overlay " * 4),
    PreflightFinding("policies", State.OK, "installed"),
]


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    checked.print_findings(FINDINGS, no_headers=False)
    return [click.unstyle(line).rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_finding_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.split()[0] for line in printed(capsys)] == ["CHECK", "FAIL", "OK"]


def test_a_finding_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    # `wide_console` takes the terminal's width only where standard output is one.
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = printed(capsys)
    assert max(map(len, lines)) <= 80
    assert lines[1].endswith("not available on gpu-0")
    assert lines[2].strip().startswith("use another overlay")
