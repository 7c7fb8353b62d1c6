"""`python -m tests.faults [--seed N] [--minutes M] [KIND ...]`: faults under load, with a verdict.

`--hours N` is a soak: only faults that do not end our programs, and neither the programs nor their
objects may grow.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from tests.faults.growth import Growth
from tests.faults.kinds import KINDS, OF_A_SOAK, RESTORE
from tests.faults.runs import append_run, sum_lines
from tests.faults.trial import opened

#: A line for each run; remove it to begin anew.
RUNS: Final = Path("build/faults.jsonl")


def main() -> int:
    """The exit status: 1 if anything was violated, missed or grew, or the run proves nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws faults and load")
    parser.add_argument("--minutes", type=float, default=20.0, help="go on at least so long")
    parser.add_argument("--hours", type=float, default=0.0, help="a soak of so many hours")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these kinds")
    options = parser.parse_args()
    known = (*KINDS, RESTORE)
    chosen = tuple(options.kinds) or (OF_A_SOAK if options.hours else known)
    if unknown := set(chosen) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    growth = Growth() if options.hours else None
    minutes = 60 * options.hours or options.minutes
    return asyncio.run(_run(options.seed, 60 * minutes, chosen, growth))


async def _run(seed: int, lasts_s: float, kinds: tuple[str, ...], growth: Growth | None) -> int:
    ends_s = time.monotonic() + lasts_s
    async with opened(seed, kinds, growth) as trial:
        try:
            await trial.run(ends_s)
        finally:
            append_run(RUNS, seed, trial.tally)
    found = growth.findings() if growth else []
    for line in (*(growth.lines() if growth else ()), *(f"GROWTH {each}" for each in found)):
        print(line, flush=True)
    for line in (*trial.tally.lines(), *sum_lines(RUNS)):
        print(line, flush=True)
    return 0 if trial.tally.is_passed and not found else 1


if __name__ == "__main__":
    sys.exit(main())
