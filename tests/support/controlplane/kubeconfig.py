"""Self-contained kubeconfig files that only their owner can read."""

import base64
import json
from pathlib import Path

from tests.support.controlplane.certificates import KeyPair, write_private


def write_kubeconfig(path: Path, url: str, authority: bytes, identity: KeyPair | str) -> Path:
    """Write a kubeconfig (JSON, which is YAML) for a client certificate or a bearer token."""
    user: dict[str, str]
    if isinstance(identity, str):
        user = {"token": identity}
    else:
        user = {
            "client-certificate-data": _encode(identity.certificate),
            "client-key-data": _encode(identity.key),
        }
    cluster = {"server": url, "certificate-authority-data": _encode(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "ballast", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "ballast", "context": {"cluster": "ballast", "user": "user"}}],
        "current-context": "ballast",
    }
    return write_private(path, json.dumps(document, indent=1).encode())


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()
