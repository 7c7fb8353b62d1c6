"""The shipped webhook configuration, pointed at a server on this machine.

Only where the API server finds the webhook is replaced (a Service is reached inside a cluster
only); rules, conditions, failure policy and timeout stay as shipped.
"""

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.admin import AdminApi

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"

_FOLDER = Path(__file__).parents[2] / "manifests" / "base" / "webhooks"
#: The webhooks for pods and what makes them, and those for our own kinds.
SHIPPED = _FOLDER / "configuration.yaml"
KINDS = _FOLDER / "validation.yaml"


def webhook_configurations(url: str, ca: bytes, source: Path = SHIPPED) -> list[dict[str, Any]]:
    """The configurations in `source` for a server at `url` ("https://127.0.0.1:8443").

    `ca` is the PEM bundle that signed the server's certificate.
    """
    documents = list(yaml.safe_load_all(source.read_text("utf-8")))
    for document in documents:
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"{url}{path}",
                "caBundle": base64.b64encode(ca).decode("ascii"),
            }
    return documents


def register_webhooks(admin: AdminApi, url: str, ca: bytes) -> list[str]:
    """Create all shipped configurations, as in `webhook_configurations`; returns their paths."""
    paths = []
    for source in (SHIPPED, KINDS):
        for document in webhook_configurations(url, ca, source):
            registry = f"{REGISTRATION}/{document['kind'].lower()}s"
            admin.post(registry, document)
            paths.append(f"{registry}/{document['metadata']['name']}")
    return paths
