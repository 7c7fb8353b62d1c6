"""One result of a step, as a line of JSON."""

import sys

import msgspec


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """A measurement. Without samples it cannot pass; `is_good` is None without a bar."""

    what: str
    value: str
    n_samples: int
    is_good: bool | None = None
    #: The expected value, if it differs between the results of a step.
    expected: str = ""


def tell(result: Result) -> None:
    """Write it at once: a step may be killed at any time."""
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    sys.stdout.buffer.flush()
