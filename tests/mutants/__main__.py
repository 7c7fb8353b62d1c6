"""`python -m tests.mutants [NAME ...]`: try all mutants, or those that begin with a NAME."""

import sys
import time

from tests.mutants.laboratory import opened
from tests.mutants.mutant import all_mutants


def main(names: tuple[str, ...]) -> int:
    """Exit status: 1 if a mutant survived or could not be tried."""
    chosen = [each for each in all_mutants() if not names or each.name.startswith(names)]
    n_bad = 0
    with opened() as laboratory:
        for mutant in chosen:
            started = time.monotonic()
            why = mutant.fault() or laboratory.survives(mutant)
            n_bad += bool(why)
            verdict = (
                f"SURVIVES: {mutant.breaks}\n{why}" if why else f"caught by {mutant.caught_by}"
            )
            print(f"{mutant.name} ({time.monotonic() - started:.1f} s): {verdict}", flush=True)
    print(f"{len(chosen) - n_bad} of {len(chosen)} mutants caught")
    return int(n_bad > 0 or not chosen)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
