"""Finds the parts of a document that create pods."""

from collections.abc import Callable
from typing import Any, Final

#: At most this many entries of a list are read.
MAX_ENTRIES: Final = 64
Document = dict[str, Any]


def find_parts(
    value: Any, path: str, is_wanted: Callable[[Document], object]
) -> dict[str, Document]:
    """The wanted mappings in a part of a document, by their paths; none inside another one."""
    if isinstance(value, list):
        inner = {f"{path}[{ix}]": each for ix, each in enumerate(value[:MAX_ENTRIES])}
    elif not isinstance(value, dict):
        return {}
    elif is_wanted(value):
        return {path: value}
    else:
        inner = {f"{path}.{key}": each for key, each in value.items()}
    return {
        found: part
        for at, each in inner.items()
        for found, part in find_parts(each, at, is_wanted).items()
    }
