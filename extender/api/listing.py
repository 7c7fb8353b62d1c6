"""Lists of names in messages."""

from collections.abc import Iterable


def listed(names: Iterable[str], most: int) -> str:
    """The first `most` names in the order given, and the number of further ones."""
    found = list(names)
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more} more" if more > 0 else "")
