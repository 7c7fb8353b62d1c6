"""JSON Patch (RFC 6902): change a copy of the document, and compare it with the original.

There is one operation for each changed member of `metadata` and `spec`, with the whole new value:
the API server decodes and encodes every level above a path again, so a deep path costs more than a
long value. At this depth the parent always exists. A patch that fails as a whole would, under
`failurePolicy: Ignore`, let the object through unchanged.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

Key = str | int
Operation = dict[str, Any]

#: How deep an operation reaches: `/spec/containers`.
DEPTH: Final = 2


class PatchBuilder:
    """Edits a JSON document and computes the operations that lead to the edited state.

    A change that is already in place needs no operation, so building twice gives an empty patch.
    """

    def __init__(self, text: bytes | msgspec.Raw) -> None:
        self.document: dict[str, Any] = msgspec.json.decode(text)
        self._before: dict[str, Any] = msgspec.json.decode(text)

    @property
    def ops(self) -> list[Operation]:
        """The operations that turn the original document into the current one."""
        return list(_difference("", self._before, self.document, DEPTH))

    def set(self, path: tuple[Key, ...], value: Any) -> None:
        """Sets the member at `path`; missing or null parents become objects."""
        self._made_parent(path)[path[-1]] = value

    def append(self, path: tuple[Key, ...], value: Any) -> None:
        """Adds `value` to the list at `path` unless it is there; creates a missing or null list."""
        parent, key = self._made_parent(path), path[-1]
        if parent.get(key) is None:
            parent[key] = [value]
        elif value not in parent[key]:
            parent[key].append(value)

    def remove(self, path: tuple[Key, ...]) -> None:
        """Removes the member at `path` if it exists."""
        found: Any = self.document
        for key in path[:-1]:
            found = found.get(key) if isinstance(found, dict) else found[key]
            if found is None:
                return
        found.pop(path[-1], None)

    def _made_parent(self, path: tuple[Key, ...]) -> Any:
        """The object or list that contains the last key of `path`, created if it is missing."""
        found: Any = self.document
        for key in path[:-1]:
            below = found.get(key) if isinstance(found, dict) else found[key]
            if below is None:
                below = found[key] = {}
            found = below
        return found


def _difference(
    at: str, before: dict[str, Any], after: dict[str, Any], depth: int
) -> Iterator[Operation]:
    """Operations below the JSON Pointer (RFC 6901) `at`, down to `depth` levels."""
    for key, value in after.items():
        was = before.get(key)
        if depth > 1 and isinstance(value, dict) and isinstance(was, dict):
            yield from _difference(_below(at, key), was, value, depth - 1)
        # 1 == True, so the types are compared too.
        elif key not in before or value != was or type(value) is not type(was):
            # "add" replaces an existing member (RFC 6902, 4.1).
            yield {"op": "add", "path": _below(at, key), "value": value}
    for key in before.keys() - after.keys():
        yield {"op": "remove", "path": _below(at, key)}


def _below(at: str, key: str) -> str:
    return f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
