"""`rows ROW SECONDS`: one row of `gpu_shim.bench`."""

import asyncio
import sys
from collections.abc import Sequence

from gpu_shim.bench.__main__ import measure
from gpu_shim.kit.place import driver
from gpu_shim.kit.results import Result, tell


def main(arguments: Sequence[str]) -> None:
    """Run the row and report its lines, each with the benchmark's bar."""
    row, seconds = int(arguments[0]), float(arguments[1])
    _, lines = asyncio.run(measure([row], seconds, 250, driver()))
    for line in lines:
        tell(Result(line.what, line.value, line.n_samples, line.is_good, line.bar))


if __name__ == "__main__":
    main(sys.argv[1:])
