"""Results: a line each, on the terminal and in the file `results.jsonl` of a folder."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Results:
    """Writes results, and counts those that are not as expected."""

    folder: Path
    n_bad: int = 0
    _started_s: float = field(default_factory=time.monotonic)

    def tell(
        self, what: str, seen: object, expected: object = "", is_good: bool | None = None
    ) -> None:
        """Write one result; `is_good` is None if nothing is asked of it."""
        line = {"at_s": since(self._started_s), "what": what, "seen": seen}
        line |= {"expected": expected} if expected != "" else {}
        line |= {"is_good": is_good} if is_good is not None else {}
        self.n_bad += is_good is False
        print(json.dumps(line), flush=True)
        with (self.folder / "results.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def since(started_s: float) -> float:
    """Seconds since then, to a tenth."""
    return round(time.monotonic() - started_s, 1)
