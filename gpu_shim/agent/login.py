"""Reads the node from the agent's own token.

Kubelet requests a token bound to the agent's pod; the API server writes the pod's node into it
(Kubernetes 1.32, claim `kubernetes.io`.`node`). So the agent needs no right to read Nodes.
"""

import base64
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class _Named(Struct):
    name: str = ""
    uid: str = ""


class _Bound(Struct):
    node: _Named = field(default_factory=_Named)


class _Claims(Struct):
    bound: _Bound = field(default_factory=_Bound, name="kubernetes.io")


def node_uid(token: str, node: str) -> str:
    """UID of the Node `node` from the token; empty if it names none or another one.

    The signature is not checked: the API server does that, and the UID grants no right.
    """
    try:
        payload = token.split(".")[1]
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        named = msgspec.json.decode(text, type=_Claims).bound.node
    except (IndexError, ValueError):
        return ""
    return named.uid if named.name == node else ""


def own_node_uid(node: str, path: Path = TOKEN) -> str:
    """The same from the token that kubelet mounted; empty if there is none."""
    try:
        return node_uid(path.read_text("utf-8").strip(), node)
    except OSError:
        return ""
