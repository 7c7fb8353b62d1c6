"""The shipped webhook configurations, directed to a server on this machine.

Only the address of the webhook is replaced, since a Service can be reached only inside a cluster;
rules, conditions, failure policy and timeout stay as shipped.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.admin import AdminApi, ApiRefusedError
from tests.support.controlplane.handles import wait_for
from tests.support.controlplane.ports import LOOPBACK

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"

_FOLDER = Path(__file__).parents[2] / "manifests" / "base" / "webhooks"
#: The webhooks for pods and their owners, and the webhooks for Ballast's kinds.
SHIPPED = _FOLDER / "configuration.yaml"
KINDS = _FOLDER / "validation.yaml"
#: Time within which the API server calls a registered webhook.
IN_FORCE_S: Final = 90.0


def webhook_configurations(port: int, ca: bytes, source: Path = SHIPPED) -> list[dict[str, Any]]:
    """The configurations in `source` for a server on `port` of loopback.

    `ca` is the PEM bundle that verifies the server's certificate.
    """
    documents = list(yaml.safe_load_all(source.read_text("utf-8")))
    for document in documents:
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://{LOOPBACK}:{port}{path}",
                "caBundle": base64.b64encode(ca).decode("ascii"),
            }
    return documents


def register_webhooks(admin: AdminApi, port: int, ca: bytes) -> list[str]:
    """Create all shipped configurations, as in `webhook_configurations`; returns their paths."""
    paths = []
    for source in (SHIPPED, KINDS):
        for document in webhook_configurations(port, ca, source):
            registry = f"{REGISTRATION}/{document['kind'].lower()}s"
            admin.post(registry, document)
            paths.append(f"{registry}/{document['metadata']['name']}")
    return paths


def is_admitting(admin: AdminApi, namespace: str) -> bool:
    """Whether the API server calls the webhooks and they know the project of `namespace`."""
    container = {"name": "main", "image": "example.invalid/none"}
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"containers": [container]},
    }
    try:
        made = admin.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", probe)
    except ApiRefusedError:
        return False
    return "schedulingGates" in made["spec"]


@contextmanager
def webhooks_in_force(admin: AdminApi, port: int, ca: bytes, namespace: str) -> Iterator[None]:
    """Context in which the API server calls all shipped webhooks; none are called after it.

    A project must list `namespace`.
    """
    paths = register_webhooks(admin, port, ca)
    try:
        wait_for(lambda: is_admitting(admin, namespace), IN_FORCE_S, "a pod with the gate")
        yield
    finally:
        for path in paths:
            admin.delete(path)
        wait_for(lambda: not is_admitting(admin, namespace), IN_FORCE_S, "one without it")
