"""What a reflector tells its listener: an object is there, or it is gone.

A changed UID is told as `Removed` of the old and `Upserted` of the new, so a
listener may key by UID. `Synced` follows the first complete list of a kind.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, frozen=True)
class Upserted:
    """The object exists in this form now; `obj` is a projection or kind of `extender.api`."""

    obj: Any


@dataclass(slots=True, frozen=True)
class Removed:
    """The object of type `kind` with this UID is gone from the API.

    `version` is no older than the removal; empty where that is not known.
    """

    kind: type
    uid: str
    namespace: str
    name: str
    version: str = ""


@dataclass(slots=True, frozen=True)
class Synced:
    """Everything of type `kind` that existed at the first list has been delivered."""

    kind: type


Event = Upserted | Removed | Synced
