"""The shipped webhook configuration, pointed at a server on this machine.

Only where the API server finds the webhook is replaced (a Service is reached inside a cluster
only); rules, conditions, failure policy and timeout stay as shipped.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

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
