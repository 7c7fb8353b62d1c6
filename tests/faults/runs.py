"""Totals over several runs: each appends a line to a file, and the sum is printed."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.faults.kinds import CUTS, RESTORE, SPLIT_BRAIN, STALLS
from tests.faults.tally import Tally

#: Goals of all runs together.
GOALS: Final = {
    "revisions": 1_000_000,
    "Bindings": 50_000,
    "crashes": 1340,
    SPLIT_BRAIN: 200,
    STALLS: 200,
    CUTS: 500,
    "restores": 50,
}
CRASH_POINTS: Final = 67
FAILURES: Final = ("safety violations", "liveness misses")


def append_run(path: Path, seed: int, tally: Tally) -> None:
    """Append a line for this run; creates the file and its folder if needed."""
    counts = {
        "revisions": tally.revisions,
        "Bindings": tally.binds,
        "crashes": tally.crashes.total(),
        **{name: tally.counted[name] for name in (SPLIT_BRAIN, STALLS, CUTS)},
        "restores": tally.done[RESTORE],
        "faults": tally.done.total(),
        "safety violations": len(tally.violations),
        "liveness misses": len(tally.misses),
    }
    run = {"seed": seed, "counts": counts, "crashes by point": tally.crashes}
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")


def sum_lines(path: Path) -> Iterator[str]:
    """The closing lines about all runs in the file."""
    runs: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    counts, crashes = Counter[str](), Counter[str]()
    for run in runs:
        counts.update(run["counts"])
        crashes.update(run["crashes by point"])
    yield f"all runs in {path}: seeds {', '.join(str(run['seed']) for run in runs)}"
    yield "  " + ", ".join(f"{counts[name]} of {goal} {name}" for name, goal in GOALS.items())
    least = min(crashes.values(), default=0)
    yield f"  crashes at {len(crashes)} of {CRASH_POINTS} points, at each {least} or more"
    yield "  " + ", ".join(f"{counts[name]} {name}" for name in FAILURES)
