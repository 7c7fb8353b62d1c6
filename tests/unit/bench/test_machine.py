"""CPU use of other programs is separated from that of the benchmark and its children."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.machine import beside_others, tree_cpu_s

#: Uses a second of a processor, then creates the file that it is given.
_SPIN = """
import pathlib, sys, time
while time.process_time() < 1: pass
pathlib.Path(sys.argv[1]).touch()
"""
#: Starts the rest of its arguments and ends at once, so that nothing of ours is the parent.
_LEAVE = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


def test_a_child_that_has_ended_counts_as_ours(tmp_path: Path) -> None:
    before_s = tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", _SPIN, str(tmp_path / "done")], check=True)
    assert tree_cpu_s(os.getpid()) - before_s > 0.5


def test_a_program_of_another_parent_does_not(tmp_path: Path) -> None:
    done = tmp_path / "done"
    before_s = tree_cpu_s(os.getpid())
    spin = [sys.executable, "-c", _SPIN, str(done)]
    subprocess.run([sys.executable, "-c", _LEAVE, *spin], check=True)
    for _ in range(600):
        if done.exists():
            break
        time.sleep(0.1)
    assert done.exists()
    assert tree_cpu_s(os.getpid()) - before_s < 0.5


def test_each_figure_says_what_others_used() -> None:
    (figure,) = beside_others(lambda: [Figure("n", 1.0, "s", 2.0)])
    assert figure.foreign_cores is not None
    assert figure.ratio == 0.5
