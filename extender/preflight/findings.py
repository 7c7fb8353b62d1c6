"""The finding of a check: its severity, what was found, and what to do."""

from enum import Enum

from msgspec import Struct


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


def some(names: list[str], at_most: int = 3) -> str:
    """The first few names, and the number of further ones."""
    shown = ", ".join(sorted(names)[:at_most])
    more = len(names) - at_most
    return f"{shown} and {more} more" if more > 0 else shown
