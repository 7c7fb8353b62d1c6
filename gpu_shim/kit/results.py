"""One result of a step, as a line of JSON."""

import sys

import msgspec


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was measured. Without samples it can't pass; `is_good` is None where no bar is set."""

    what: str
    value: str
    n_samples: int
    is_good: bool | None = None
    #: What is to be expected, where it is said per result and not per step.
    expected: str = ""


def tell(result: Result) -> None:
    """Write it at once: a step may be ended at any time."""
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    sys.stdout.buffer.flush()
