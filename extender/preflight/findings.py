"""The finding of a check: its severity, what was found, and what to do."""

from enum import Enum

from msgspec import Struct

from extender.api.listing import listed


class State(Enum):
    """OK; WARN: it works with restrictions; FAIL: it does not work."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class PreflightFinding(Struct, frozen=True):
    """One line of the table."""

    check: str
    state: State
    found: str
    advice: str = ""


def some(names: list[str]) -> str:
    """The first three names, and the number of further ones."""
    return listed(sorted(names), 3)
