"""A command prints all of its output or reports why it could not."""

import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from extender.cli.terminal.output import plain

CASE = '{"scenario": "v1", "id": "x", "nodes": []}\n'


@pytest.fixture
def case(tmp_path: Path) -> str:
    path = tmp_path / "case.json"
    path.write_text(CASE)
    return str(path)


def ballast(*args: str, stdout: IO[Any] | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "extender", *args],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "args", [("run",), ("run", "-o", "json"), ("show",), ("show", "-o", "json")]
)
def test_disk_that_is_full_is_one_sentence(args: tuple[str, ...], case: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = ballast("scenario", *args, case, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "Error: standard output: No space left on device\n"


def test_reader_that_goes_away_is_no_error_to_tell(case: str) -> None:
    pipe = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    pipe.wait(timeout=60)
    done = ballast("scenario", "run", case, stdout=pipe.stdin)
    assert done.returncode == 1
    assert done.stderr == ""


def test_plain_text_is_in_one_line_and_can_be_printed() -> None:
    assert plain("näher") == "näher"
    assert plain("a\nb\x1b[1m\udc80") == "a\\nb\\x1b[1m\\udc80"
