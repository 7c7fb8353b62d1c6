"""A failpoint ends the process at the write that it names, and at no other."""

import os
import signal
import subprocess
import sys

import pytest

REACH = """
from extender.kube.failpoint import reach
for said in {!r}:
    reach(*said.split())
print("alive")
"""


def run(point: str, *reached: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", REACH.format(reached)],
        env=os.environ | {"BALLAST_FAILPOINT": point},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_process_ends_when_the_point_is_reached_as_often_as_it_says() -> None:
    assert run("after PATCH pods:2", *["after PATCH pods"] * 2).returncode == -signal.SIGKILL
    assert run("after PATCH pods:3", *["after PATCH pods"] * 2).stdout == "alive\n"


def test_other_writes_and_the_other_side_pass() -> None:
    others = "before PATCH pods", "after POST pods", "after PATCH pods/status"
    assert run("after PATCH pods", *others).stdout == "alive\n"
    assert run("", *others).stdout == "alive\n"


@pytest.mark.parametrize("text", ["control.released", "after GET pods", "after PATCH pods:0"])
def test_what_names_no_point_is_refused(text: str) -> None:
    done = run(text)
    assert done.returncode == 1
    assert f"BALLAST_FAILPOINT={text}: no such point" in done.stderr
