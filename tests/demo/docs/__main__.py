"""`python -m tests.demo.docs`; exits with 0 if all commands of the documentation work as printed.

Starts the demonstration, runs the commands that it suggests and those of the pages, and ends it.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.demo.docs.pages import Printed, missing, read, suggested
from tests.demo.docs.stage import ROOT, Ended, Stage, exports_of
from tests.demo.docs.table import CODES, ENDLESS, NOT_RUN, PAGES
from tests.support.controlplane.handles import wait_for
from tests.support.controlplane.process import ControlPlaneError

DEMO_S: Final = 600.0
END_S: Final = 60.0


def main() -> int:
    """Run all commands, one line for each."""
    printed = [each for page in PAGES for each in read(page, (ROOT / page).read_text())]
    folder = Path(tempfile.mkdtemp(prefix="ballast-docs-"))
    try:
        with demo(folder / "demo.txt") as text:
            stage = Stage(exports_of(text), folder)
            trial = Trial(stage)
            trial.run(suggested(text), {})
            trial.run(printed, stage.names())
    finally:
        shutil.rmtree(folder)
    return trial.conclude(unused_exclusions(printed))


@contextlib.contextmanager
def demo(path: Path) -> Iterator[str]:
    """A demonstration that keeps running; yields its output, which is written to `path`."""
    print("starting the demonstration", flush=True)
    with path.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.demo"],
            cwd=ROOT,
            env=os.environ | {"KEEP": "1"},
            stdout=output,
            start_new_session=True,
        )
    try:
        wait_for(
            lambda: process.poll() is not None or "\nLogs: " in path.read_text(),
            DEMO_S,
            "the demonstration's end of output",
        )
        if process.poll() is not None:
            raise ControlPlaneError(f"the demonstration did not come up: {path.read_text()}")
        yield path.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(END_S)


class Trial:
    """The commands that were run, and the faults that were found."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._done: dict[str, Ended] = {}
        self._n_left = 0
        self._faults: list[str] = []

    def run(self, printed: list[Printed], names: Mapping[str, str]) -> None:
        """Run and judge each command, unless the same text was run before."""
        for each in printed:
            if reason_not_run(each.command):
                self._n_left += 1
                continue
            command = named(each.command, names)
            endless = ENDLESS.get(command, "")
            ended = self._done.get(command)
            if ended is None:
                ended = self._stage.run(command, is_endless=bool(endless))
            self._done[command] = ended
            found = judge(each, ended, endless)
            print(f"{'FAILED' if found else 'ok':6} {ended.took_s:5.1f} s  {each}", flush=True)
            self._faults += [f"{each}\n  {fault}" for fault in found]

    def conclude(self, others: list[str]) -> int:
        """Print all faults, `others` included; returns the exit code."""
        faults = [*self._faults, *others]
        print(*faults, sep="\n")
        print(
            f"{len(self._done)} commands run, {self._n_left} left out with a reason,"
            f" {len(faults)} faults"
        )
        return 1 if faults or not self._done else 0


def judge(printed: Printed, ended: Ended, endless: str) -> list[str]:
    """The differences from what the page shows."""
    codes = {0}
    for beginning, others in CODES.items():
        if printed.command.startswith(beginning):
            codes |= others
    faults = []
    if ended.code not in codes:
        faults.append(f"exit code {ended.code}, not {sorted(codes)}: {ended.output[-2000:]}")
    elif re.search("^Error: ", ended.output, re.MULTILINE):
        faults.append(f"an error: {ended.output[-2000:]}")
    if endless not in ended.output:
        faults.append(f"does not print {endless}: {ended.output[-2000:]}")
    lacks = missing(printed, ended.output)
    if lacks:
        faults.append(f"the page shows {lacks}, the command does not: {ended.output[-4000:]}")
    return faults


def reason_not_run(command: str) -> str:
    """Why the command is not run; empty if it is."""
    return next((why for at, why in NOT_RUN.items() if command.startswith(at)), "")


def unused_exclusions(printed: list[Printed]) -> list[str]:
    """Exclusions that match no command of the pages."""
    return [
        f"no page has a command that begins with {at}; remove it from NOT_RUN"
        for at in NOT_RUN
        if not any(each.command.startswith(at) for each in printed)
    ]


def named(command: str, names: Mapping[str, str]) -> str:
    """The command with this cluster's names for its placeholders, and without its comment."""
    command = re.sub(r"  +# .*", "", command)
    for placeholder, name in names.items():
        command = re.sub(rf"(?<![\w-]){re.escape(placeholder)}(?!\w)", name, command)
    return command


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ControlPlaneError as error:
        print(f"error: {error}")
        sys.exit(1)
