"""`run PART` on the machine with the GPU: steps in order, each within its time limit.

Every line is written to the file at once, so that results are kept when the time is over.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from gpu_shim.kit.parts import LONGEST_S, PARTS, Step
from gpu_shim.kit.results import Result

#: Reserved at the end of a part for the last line.
_RESERVE_S: Final = 10.0


def run_part(
    part: str, steps: Sequence[Step], report: TextIO, longest_s: float = LONGEST_S
) -> bool:
    """Run the steps; returns whether all passed. Steps without time left are reported as such."""
    ends = time.monotonic() + longest_s - _RESERVE_S
    outcomes = [_run_step(part, step, ends, report) for step in steps]
    return all(outcome in {"passed", "measured"} for outcome in outcomes)


def _run_step(part: str, step: Step, ends: float, report: TextIO) -> str:
    begin = time.monotonic()
    budget_s = min(step.budget_s, ends - begin)
    about = {"part": part, "step": step.name, "expected": step.expected}
    outcome, results = "no time left", list[Result]()
    if budget_s > 0:
        program = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", f"gpu_shim.kit.{step.command[0]}", *step.command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            for line in _lines(program, begin + budget_s):
                _write(report, about | {"at_s": _since(begin)} | line)
                if "what" in line:
                    results.append(msgspec.convert(line, Result))
            code = program.wait(max(0.1, begin + budget_s - time.monotonic()))
            outcome = outcome_of(results, code)
        except (TimeoutError, subprocess.TimeoutExpired):
            outcome = "timed out"
        finally:
            _end(program)
    _write(report, about | {"outcome": outcome, "took_s": _since(begin)})
    return outcome


def outcome_of(results: Sequence[Result], code: int) -> str:
    """The outcome of a step; without samples it cannot pass."""
    if code or any(each.is_good is False for each in results):
        return "failed"
    if not results or any(each.n_samples < 1 for each in results):
        return "nothing sampled"
    return "passed" if any(each.is_good for each in results) else "measured"


def _lines(program: "subprocess.Popen[bytes]", ends: float) -> Iterator[dict[str, Any]]:
    """Objects that the program writes; raises TimeoutError at `ends`."""
    assert program.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(program.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, ends - time.monotonic())):
                raise TimeoutError
            chunk = os.read(program.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield _read(line)


def _read(line: bytes) -> dict[str, Any]:
    try:
        read = json.loads(line)
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {"said": line.decode(errors="replace")}


def _write(report: TextIO, line: dict[str, Any]) -> None:
    text = json.dumps(line)
    for file in (report, sys.stdout):
        file.write(f"{text}\n")
        file.flush()


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 2)


def _end(program: "subprocess.Popen[bytes]") -> None:
    """Kill the program and its children: a step has its own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def main(arguments: Sequence[str]) -> int:
    """`run PART [STEP ...]`: results go to PART.jsonl in `$OUT`, or here."""
    part, *only = arguments or [""]
    steps = [each for each in PARTS.get(part, ()) if not only or each.name in only]
    if not steps:
        known = "; ".join(f"{name}: {', '.join(s.name for s in of)}" for name, of in PARTS.items())
        sys.stderr.write(f"no such part or step. There are {known}\n")
        return 2
    report = Path(os.environ.get("OUT", ".")) / f"{part}.jsonl"
    with report.open("a", encoding="utf-8") as file:
        return 0 if run_part(part, steps, file) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
