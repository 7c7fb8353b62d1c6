"""Names in a snapshot file: as they are, or hashed, so that a file may leave the organisation."""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final

#: Labels whose values every cluster has: they say what a node is, not whose.
_PUBLIC: Final = ("nvidia.com/", "kubernetes.io/os", "kubernetes.io/arch", "ballast.dev/")
_SHOWN: Final = 8


@dataclass(slots=True)
class Names:
    """Writes names of one file. Hashed, a name has the same hash wherever it stands in the file,
    and another one in the next file: the salt is thrown away, so names cannot be looked up."""

    is_anonymous: bool = False
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def node(self, name: str) -> str:
        """Of a node."""
        return self._hashed("node", name)

    def namespace(self, name: str) -> str:
        """Of a namespace."""
        return self._hashed("ns", name)

    def job(self, name: str) -> str:
        """Of a workload or a budget."""
        return self._hashed("job", name)

    def pod(self, name: str) -> str:
        """Of a pod."""
        return self._hashed("pod", name)

    def user(self, name: str) -> str:
        """Of a user."""
        return self._hashed("user", name)

    def queue(self, name: str) -> str:
        """Of a project, or of a department with its prefix."""
        prefix, slash, last = name.rpartition("/")
        return f"{prefix}{slash}{self._hashed('queue', last)}"

    def value(self, key: str, value: str) -> str:
        """The value of a node label; host names are names of nodes."""
        if key == "kubernetes.io/hostname":
            return self.node(value)
        if key.startswith(_PUBLIC) or value.isdecimal():
            return value
        return self._hashed("value", value)

    def _hashed(self, kind: str, name: str) -> str:
        if not self.is_anonymous or not name:
            return name
        # Of the name alone, so that a pool, a node and a label that are called alike stay alike.
        digest = hashlib.blake2b(name.encode(), key=self._salt, digest_size=_SHOWN // 2).hexdigest()
        return f"{kind}-{digest}"
