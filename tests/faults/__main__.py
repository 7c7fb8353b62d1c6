"""`python -m tests.faults [--seed N] [--minutes M] [KIND ...]`: faults under load, judged."""

import argparse
import asyncio
import sys
import time

from tests.faults.kinds import KINDS, RESTORE
from tests.faults.trial import opened


def main() -> int:
    """Exit status: 1 if something was violated or missed, or the run proves nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws faults and load")
    parser.add_argument("--minutes", type=float, default=20.0, help="go on at least so long")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these kinds")
    options = parser.parse_args()
    known = (*KINDS, RESTORE)
    chosen = tuple(options.kinds) or known
    if unknown := set(chosen) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return asyncio.run(_run(options.seed, 60 * options.minutes, chosen))


async def _run(seed: int, lasts_s: float, kinds: tuple[str, ...]) -> int:
    ends_s = time.monotonic() + lasts_s
    async with opened(seed, kinds) as trial:
        await trial.run(ends_s)
    for line in trial.tally.lines():
        print(line, flush=True)
    return 0 if trial.tally.is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
