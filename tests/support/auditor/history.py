"""One change of one object at one revision, and recordings of such changes.

A history has all writes of all objects in one order. A recording is a file of JSON lines, one
change each, from which a history can be judged again (`replay`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from msgspec import Struct

#: Folder of the followed objects, below the API server's prefix -> kind.
FOLDERS: Final = {
    "pods": "Pod",
    "minions": "Node",
    "events": "Event",
    "ballast.dev/gpunodes": "GpuNode",
    "ballast.dev/gpupodgroups": "GpuPodGroup",
    "ballast.dev/gpuprojects": "GpuProject",
    "ballast.dev/gpudepartments": "GpuDepartment",
    "ballast.dev/gpunodepools": "GpuNodePool",
}
NAMESPACED: Final = frozenset({"Pod", "Event", "GpuPodGroup"})


#: The value of a deleted object.
DELETED: Final = msgspec.Raw(b"null")


class Change(Struct, frozen=True, gc=False):
    """`value` is the object's stored JSON, `DELETED` if it was deleted at this revision.

    `seen_s` is the observer's monotonic clock. `is_initial`: the object existed when the audit
    began, so only its state can be judged, not how it arose.
    """

    revision: int
    seen_s: float
    kind: str
    namespace: str
    name: str
    value: msgspec.Raw
    is_initial: bool = False

    @property
    def is_deletion(self) -> bool:
        """Whether the object was deleted at this revision."""
        return bytes(self.value) == b"null"

    @property
    def subject(self) -> str:
        """`Kind namespace/name`, for messages."""
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


def locate(key: str) -> tuple[str, str, str] | None:
    """(kind, namespace, name) of a key below the API server's prefix; None: not followed."""
    first, _, rest = key.partition("/")
    folder = first
    if "." in first:
        second, _, rest = rest.partition("/")
        folder = f"{first}/{second}"
    kind = FOLDERS.get(folder)
    if kind is None:
        return None
    if kind in NAMESPACED:
        namespace, _, name = rest.partition("/")
        return kind, namespace, name
    return kind, "", rest


class Recording:
    """Appends changes to a file; the caller closes it."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")

    def write(self, change: Change) -> None:
        """Append one change."""
        self._file.write(msgspec.json.encode(change) + b"\n")

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


def replay(path: Path) -> Iterator[Change]:
    """The changes of a recording, in order."""
    decoder = msgspec.json.Decoder(Change)
    with path.open("rb") as file:
        for line in file:
            yield decoder.decode(line)


def to_raw(value: Any) -> msgspec.Raw:
    """The stored form of a plain object, for histories that tests write."""
    return msgspec.Raw(msgspec.json.encode(value))
