"""Who may ask: kube-apiserver alone, which has authenticated and authorised the user before.

It shows a client certificate of the CA in the ConfigMap `extension-apiserver-authentication`; the
user's name comes in a header of the request.
https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from extender.kube.client import Client
from extender.kube.errors import Misconfigured

_CONFIG: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


@dataclass(slots=True, frozen=True)
class FrontProxy:
    """The CA (PEM) that signed kube-apiserver's certificate, and the names that it may have: any
    where there are none."""

    ca: str
    names: frozenset[str]


async def read_front_proxy(client: Client) -> FrontProxy:
    """What the cluster says of its API servers; raises Misconfigured where aggregation is off."""
    config = msgspec.json.decode(await client.get_raw(_CONFIG), type=_ConfigMap)
    ca = config.data.get("requestheader-client-ca-file", "")
    if not ca:
        raise Misconfigured(
            "this cluster has no aggregation layer: kube-apiserver runs without"
            " --requestheader-client-ca-file"
        )
    names = msgspec.json.decode(
        config.data.get("requestheader-allowed-names", "[]"), type=list[str]
    )
    return FrontProxy(ca, frozenset(names))
