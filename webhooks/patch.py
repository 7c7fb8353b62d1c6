"""JSON Patch (RFC 6902), written by making the change on a copy of the document.

The builder works on the document as it came, not on a projection of it, because an operation
whose parent is absent fails as a whole, and a failed patch under `failurePolicy: Ignore` lets the
object through unchanged.
"""

import copy
from functools import lru_cache
from typing import Any, Final

Key = str | int
Operation = dict[str, Any]

#: Stands for the position behind the last entry of a list.
END: Final = "-"


@lru_cache(maxsize=1024)
def pointer(path: tuple[Key, ...]) -> str:
    """The JSON Pointer (RFC 6901) of a path; `~` and `/` inside a key are escaped."""
    return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)


class PatchBuilder:
    """Collects the operations that bring a document to the state asked for.

    `document` belongs to the builder and is changed. What already is as asked costs no operation,
    so building twice in a row gives an empty patch.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.ops: list[Operation] = []

    def set(self, path: tuple[Key, ...], value: Any) -> None:
        """Makes the value at `path` equal `value`; missing or null parents become objects."""
        parent = self._parent(path)
        if parent is None:
            return self._add_with_parents(path, value)
        key = path[-1]
        if isinstance(parent, dict) and key not in parent:
            self._record("add", path, value)
        elif parent[key] != value or type(parent[key]) is not type(value):
            self._record("replace", path, value)
        else:
            return None
        parent[key] = value
        return None

    def append(self, path: tuple[Key, ...], value: Any) -> None:
        """Makes the list at `path` hold `value`; a missing or null list becomes one."""
        parent = self._parent((*path, END))
        if parent is None:
            self._add_with_parents(path, [value])
        elif value not in parent:
            self._record("add", (*path, END), value)
            parent.append(value)

    def remove(self, path: tuple[Key, ...]) -> None:
        """Takes the member at `path` away where it is there."""
        parent = self._parent(path)
        if isinstance(parent, dict) and path[-1] in parent:
            self.ops.append({"op": "remove", "path": pointer(path)})
            del parent[path[-1]]

    def _parent(self, path: tuple[Key, ...]) -> Any:
        """The object or list that holds the last key of `path`, or None where it is absent."""
        found: Any = self.document
        for key in path[:-1]:
            found = found.get(key) if isinstance(found, dict) else found[int(key)]
            if found is None:
                return None
        return found

    def _add_with_parents(self, path: tuple[Key, ...], value: Any) -> None:
        """One operation that adds the topmost missing parent with everything below it."""
        depth = next(n for n in range(1, len(path) + 1) if self._parent((*path[:n], END)) is None)
        for key in reversed(path[depth:]):
            value = {key: value}
        self._record("add", path[:depth], value)
        parent = self._parent(path[:depth])
        parent[path[depth - 1]] = value

    def _record(self, op: str, path: tuple[Key, ...], value: Any) -> None:
        # A copy: what later changes make of the value in the document are operations of their own.
        kept = value if isinstance(value, str) else copy.deepcopy(value)
        self.ops.append({"op": op, "path": pointer(path), "value": kept})
