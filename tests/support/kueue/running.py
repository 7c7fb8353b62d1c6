"""Kueue as a process beside a control plane, with its own CRDs, webhooks and conversion.

The Secret of its certificate is written to files, as a kubelet would. Its Service resolves to
loopback by name, since there is no Service network.
"""

import base64
import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.kueue import PROGRAMS, manifests

NAMESPACE: Final = "kueue-system"
API: Final = "/apis/kueue.x-k8s.io/v1beta2"
READY_S: Final = 120.0
_SERVICE: Final = "kueue-webhook-service"
_SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
_KINDS: Final = (
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Secret",
    "ValidatingWebhookConfiguration",
)


class Kueue:
    """One Kueue, with the administrator's rights."""

    def __init__(
        self, plane: ControlPlane, work: Path, *, dispatcher: str = "", ready_s: int = 0
    ) -> None:
        """`dispatcher` names an external dispatcher, on a manager cluster. With `ready_s`, admitted
        Workloads are evicted if their pods are not Ready after this time."""
        self._plane = plane
        self._certificates = work / "certificates"
        self._certificates.mkdir(parents=True)
        self._webhook_port, self._health_port = free_ports(2)
        config = work / "config.yaml"
        more: dict[str, Any] = {}
        if dispatcher:
            more["multiKueue"] = {"dispatcherName": dispatcher}
        if ready_s:
            more["waitForPodsReady"] = {"timeout": f"{ready_s}s"}
        config.write_text(yaml.safe_dump(self._config() | more))
        argv = [
            str(PROGRAMS.path("kueue")),
            f"--config={config}",
            # Its port is fixed, and three Kueues run on one machine.
            "--feature-gates=VisibilityOnDemand=false",
            "--zap-log-level=3",
        ]
        env = os.environ | {"KUBECONFIG": plane.kubeconfig, "GOGC": "400"}
        self.log_path = plane.logs / "kueue.log"
        self._process = Process("kueue", argv, self.log_path, env)

    def install(self) -> None:
        """Apply Kueue's CRDs and webhooks from its own manifests."""
        documents = yaml.safe_load_all(manifests())
        wanted = [self._led(each) for each in documents if each["kind"] in _KINDS]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _SERVICE, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": LOOPBACK},
        }
        text = yaml.safe_dump_all([*wanted, service])
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=text)

    def start(self) -> None:
        """Start it; returns when it serves its webhooks."""
        self._process.start()
        self._process.wait_until(self._has_certificate, READY_S)
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def _has_certificate(self) -> bool:
        data = self._plane.admin.get(_SECRET).get("data") or {}
        if not data.get("tls.crt"):
            return False
        for name in ("tls.key", "tls.crt"):
            (self._certificates / name).write_bytes(base64.b64decode(data[name]))
        return True

    def _config(self) -> dict[str, Any]:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": LOOPBACK,
                "port": self._webhook_port,
                "certDir": str(self._certificates),
            },
            "leaderElection": {"leaderElect": False},
            "integrations": {"frameworks": ["batch/job"]},
        }

    def _led(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document with its webhooks directed to Kueue's port."""
        hooks = document.get("webhooks", [])
        conversion = document.get("spec", {}).get("conversion", {}).get("webhook")
        for hook in (*hooks, *filter(None, [conversion])):
            hook["clientConfig"]["service"]["port"] = self._webhook_port
        return document
