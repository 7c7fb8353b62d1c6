"""KEDA's operator and metrics server as processes beside a control plane, on loopback.

The control plane's CA issues the certificate that the operator would create for all of KEDA. The
programs read nothing of the machine except their kubeconfig.
"""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.aggregated import EXTERNAL_METRICS, AggregatedApi
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.keda import PROGRAMS, manifests

NAMESPACE: Final = "keda"
READY_S: Final = 60.0
_SERVICE: Final = "keda-metrics-apiserver"


class Keda:
    """One KEDA without its admission webhooks, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._api = AggregatedApi(plane, EXTERNAL_METRICS, NAMESPACE, _SERVICE)
        self._certificates = work / "keda"
        self._certificates.mkdir()
        self._adapter_port, grpc, self._health_port, pages = free_ports(4)
        env = os.environ | {
            "KUBECONFIG": plane.kubeconfig,
            "POD_NAMESPACE": NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
            # All namespaces.
            "WATCH_NAMESPACE": "",
        }
        logs = Path(os.environ.get("BALLAST_KEDA_LOGS", plane.logs))
        operator = [
            str(PROGRAMS.path("keda-operator")),
            f"--cert-dir={self._certificates}",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={LOOPBACK}:{self._health_port}",
            f"--metrics-service-bind-address={LOOPBACK}:{grpc}",
            "--zap-encoder=console",
        ]
        adapter = [
            str(PROGRAMS.path("keda-adapter")),
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._adapter_port}",
            f"--port={pages}",
            f"--metrics-service-address={LOOPBACK}:{grpc}",
            f"--cert-dir={self._certificates}",
            f"--tls-cert-file={self._certificates / 'tls.crt'}",
            f"--tls-private-key-file={self._certificates / 'tls.key'}",
            *(f"--{each}-kubeconfig={plane.kubeconfig}"
              for each in ("lister", "authentication", "authorization")),
        ]  # fmt: skip
        self._operator = Process("keda-operator", operator, logs / "keda-operator.log", env)
        self._adapter = Process("keda-adapter", adapter, logs / "keda-adapter.log", env)

    @property
    def is_alive(self) -> bool:
        """Whether both programs are running."""
        return self._operator.is_alive and self._adapter.is_alive

    def install(self) -> None:
        """Apply KEDA's CRDs, its namespace and its certificate."""
        kinds = manifests() / "crd" / "bases"
        apply_kinds(self._plane, sorted(kinds.glob("*.yaml")))
        self._plane.make_namespace(NAMESPACE)
        authority = self._plane.authority
        pair = authority.serving([f"{_SERVICE}.{NAMESPACE}.svc"], [LOOPBACK], is_client=True)
        for name, content in (
            ("ca.crt", authority.certificate),
            ("tls.crt", pair.certificate),
            ("tls.key", pair.key),
        ):
            (self._certificates / name).write_bytes(content)

    def start(self) -> None:
        """Start both; returns once the API server serves the metrics server's API."""
        self._operator.start()
        self._operator.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )
        self._adapter.start()
        self._adapter.wait_until(
            lambda: is_healthy(self._adapter_port, "/readyz", is_tls=True), READY_S
        )
        self._api.add(self._adapter_port)

    def stop(self) -> None:
        """Remove their API, then end both."""
        self._api.remove()
        self._adapter.kill()
        self._operator.kill()
