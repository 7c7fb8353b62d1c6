"""JSON Patch (RFC 6902), written by making the change on the document and comparing.

There is one operation for each member of `metadata` and `spec` that changed, and its value is all
that the member is now: the API server decodes and writes every level above a path again, so a deep
path costs it more than a long value. For the same reason no operation can miss its parent; a patch
that fails as a whole would, under `failurePolicy: Ignore`, let the object through unchanged.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

Key = str | int
Operation = dict[str, Any]

#: How deep an operation reaches: `/spec/containers`.
DEPTH: Final = 2


class PatchBuilder:
    """Brings a document, given as JSON, to the state asked for, and tells what makes it so.

    What already is as asked costs no operation, so building twice in a row gives an empty patch.
    """

    def __init__(self, text: bytes | msgspec.Raw) -> None:
        self.document: dict[str, Any] = msgspec.json.decode(text)
        self._before: dict[str, Any] = msgspec.json.decode(text)

    @property
    def ops(self) -> list[Operation]:
        """The operations that make the document that came into what it is now."""
        return list(_difference("", self._before, self.document, DEPTH))

    def set(self, path: tuple[Key, ...], value: Any) -> None:
        """Makes the member at `path` equal `value`; missing or null parents become objects."""
        self._made_parent(path)[path[-1]] = value

    def append(self, path: tuple[Key, ...], value: Any) -> None:
        """Makes the list at `path` hold `value`; a missing or null list becomes one."""
        parent, key = self._made_parent(path), path[-1]
        if parent.get(key) is None:
            parent[key] = [value]
        elif value not in parent[key]:
            parent[key].append(value)

    def remove(self, path: tuple[Key, ...]) -> None:
        """Takes the member at `path` away where it is there."""
        found: Any = self.document
        for key in path[:-1]:
            found = found.get(key) if isinstance(found, dict) else found[key]
            if found is None:
                return
        found.pop(path[-1], None)

    def _made_parent(self, path: tuple[Key, ...]) -> Any:
        """What holds the last key of `path`."""
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
        # For == alone 1 is True.
        elif key not in before or value != was or type(value) is not type(was):
            # Of a member that is there already it is a replacement (RFC 6902, 4.1).
            yield {"op": "add", "path": _below(at, key), "value": value}
    for key in before.keys() - after.keys():
        yield {"op": "remove", "path": _below(at, key)}


def _below(at: str, key: str) -> str:
    return f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
