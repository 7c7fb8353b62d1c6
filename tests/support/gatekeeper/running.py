"""Gatekeeper's controller manager as a process beside a control plane, on loopback.

Its webhooks have the names and rules of its manifest, but fail closed.
"""

import base64
import os
from pathlib import Path
from typing import Final

import yaml

from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.gatekeeper import PROGRAM, PROGRAMS, manifests
from tests.support.neighbour import Neighbour
from tests.support.overlays import Document, of_kind

NAMESPACE: Final = "gatekeeper-system"
READY_S: Final = 60.0
#: In place of one and three seconds, which a busy machine may exceed.
TIMEOUT_S: Final = 10
_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Gatekeeper(Neighbour):
    """One controller manager without the audit, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._work = work / PROGRAM
        self._work.mkdir()
        self._authority = Authority("gatekeeper-test-ca")
        self._webhooks: list[Document] = []
        self._port, self._health_port, metrics = free_ports(3)
        argv = [
            str(PROGRAMS.path(PROGRAM)),
            f"--kubeconfig={plane.kubeconfig}",
            f"--host={LOOPBACK}",
            f"--port={self._port}",
            f"--health-addr={LOOPBACK}:{self._health_port}",
            f"--cert-dir={self._work}",
            "--disable-cert-rotation",
            f"--exempt-namespace={NAMESPACE}",
            "--operation=webhook,mutation-webhook,mutation-controller,generate",
            f"--prometheus-port={metrics}",
        ]
        log = Path(os.environ.get("BALLAST_GATEKEEPER_LOG", plane.logs / f"{PROGRAM}.log"))
        env = os.environ | {"POD_NAMESPACE": NAMESPACE, "POD_NAME": PROGRAM}
        self._process = Process(PROGRAM, argv, log, env)

    def install(self) -> None:
        """Apply its CRDs, and make its namespace, its certificate, and a pod that stands for it,
        which owns what it tells of its state."""
        file = self._work / "kinds.yaml"
        documents = list(filter(None, yaml.safe_load_all(manifests().read_text("utf-8"))))
        file.write_text(yaml.safe_dump_all(of_kind(documents, "CustomResourceDefinition")))
        self._webhooks = [self._as_ours(each) for each in of_kind(documents, *_CONFIGURATIONS)]
        apply_kinds(self._plane, [file])
        self._plane.make_namespace(NAMESPACE)
        pod = {
            "metadata": {"name": PROGRAM},
            "spec": {
                "schedulerName": "none",
                "containers": [{"name": "manager", "image": "example.invalid/none"}],
            },
        }
        self._plane.admin.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        pair = self._authority.serving([PROGRAM], [LOOPBACK])
        (self._work / "tls.crt").write_bytes(pair.certificate)
        (self._work / "tls.key").write_bytes(pair.key)

    def start(self) -> None:
        """Start it; returns when its webhooks are registered and it is ready."""
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )
        text = yaml.safe_dump_all(self._webhooks)
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=text)

    def stop(self) -> None:
        """Delete its webhooks, and end it."""
        for each in self._webhooks:
            name = each["metadata"]["name"]
            run_kubectl(self._plane, "delete", each["kind"], name, "--ignore-not-found")
        self._process.kill()

    def _as_ours(self, document: Document) -> Document:
        """The configuration with webhooks on loopback that fail closed."""
        bundle = base64.b64encode(self._authority.certificate).decode("ascii")
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            url = f"https://{LOOPBACK}:{self._port}{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": bundle}
            webhook["failurePolicy"] = "Fail"
            webhook["timeoutSeconds"] = TIMEOUT_S
        return document
