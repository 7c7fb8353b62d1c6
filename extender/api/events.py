"""The events that a reflector sends to its listener.

If an object is replaced by another of the same name, the listener gets `Removed` for the old UID
and `Upserted` for the new one, so it may key by UID. `Synced` follows the first complete list of a
kind.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, frozen=True)
class Upserted:
    """The object was created or changed; `obj` is a projection or kind of `extender.api`."""

    obj: Any


@dataclass(slots=True, frozen=True)
class Removed:
    """The object of type `kind` with this UID was deleted.

    `version` is a resource version at or after the deletion; empty if unknown.
    """

    kind: type
    uid: str
    namespace: str
    name: str
    version: str = ""


@dataclass(slots=True, frozen=True)
class Synced:
    """All objects of type `kind` in the first list have been delivered."""

    kind: type


Event = Upserted | Removed | Synced
