"""Authenticates the only client, kube-apiserver, which has authenticated and authorised the user.

It presents a client certificate of the CA in the ConfigMap `extension-apiserver-authentication`;
the user's name comes in a header of the request.
https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import structlog

from extender.kube.client import Client
from extender.kube.errors import KubeError, Misconfigured

#: A rotation lasts longer: for a while, API servers use certificates of both CAs.
POLL_S: Final = 60.0
_CONFIG: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

_log = structlog.get_logger(__name__)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


@dataclass(slots=True, frozen=True)
class FrontProxy:
    """The CA (PEM) of kube-apiserver's certificate, and its permitted names; empty: any name."""

    ca: str
    names: frozenset[str]


async def read_front_proxy(client: Client) -> FrontProxy:
    """The cluster's front-proxy configuration; raises Misconfigured if aggregation is off."""
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


async def follow_ca(client: Client, file: Path, poll_s: float = POLL_S) -> NoReturn:
    """Write the cluster's CA into the file after each rotation."""
    while True:
        await asyncio.sleep(poll_s)
        try:
            proxy = await read_front_proxy(client)
        except KubeError as error:
            _log.warning("kept the CA of the API servers", error=str(error))
            continue
        _write(file, proxy.ca)


def _write(file: Path, ca: str) -> None:
    if ca != file.read_text(encoding="utf-8"):
        file.write_text(ca, encoding="utf-8")
