"""Names in a snapshot file: plain, or hashed, so that a file can leave the organisation."""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final

#: Labels whose values reveal what a node is, but not whose; they are not hashed.
_PUBLIC: Final = ("nvidia.com/", "kubernetes.io/os", "kubernetes.io/arch", "ballast.dev/")
_SHOWN: Final = 8


@dataclass(slots=True)
class Names:
    """Converts the names of one file. A hashed name has the same hash throughout the file, but
    another one in the next file: the salt is discarded, so names cannot be looked up."""

    is_anonymous: bool = False
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def node(self, name: str) -> str:
        """The name of a node."""
        return self._hashed("node", name)

    def namespace(self, name: str) -> str:
        """The name of a namespace."""
        return self._hashed("ns", name)

    def job(self, name: str) -> str:
        """The name of a workload or a budget."""
        return self._hashed("job", name)

    def pod(self, name: str) -> str:
        """The name of a pod."""
        return self._hashed("pod", name)

    def user(self, name: str) -> str:
        """The name of a user."""
        return self._hashed("user", name)

    def queue(self, name: str) -> str:
        """The name of a project, or of a department with its prefix."""
        prefix, slash, last = name.rpartition("/")
        return f"{prefix}{slash}{self._hashed('queue', last)}"

    def value(self, key: str, value: str) -> str:
        """The value of a node label; host names are hashed as node names."""
        if key == "kubernetes.io/hostname":
            return self.node(value)
        if key.startswith(_PUBLIC) or value.isdecimal():
            return value
        return self._hashed("value", value)

    def _hashed(self, kind: str, name: str) -> str:
        if not self.is_anonymous or not name:
            return name
        # The kind is not hashed, so equal names of a pool, a node and a label stay equal.
        digest = hashlib.blake2b(name.encode(), key=self._salt, digest_size=_SHOWN // 2).hexdigest()
        return f"{kind}-{digest}"
