"""The Vertical Pod Autoscaler's admission controller and updater as processes beside a control
plane. The recommender is not run: a test writes what it would recommend."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.process import Process
from tests.support.vpa import ADMISSION, PROGRAMS, UPDATER, definitions

READY_S: Final = 60.0
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_CONFIGURATION: Final = f"{_WEBHOOKS}/vpa-webhook-config"


class Vpa:
    """Both programs, with the administrator's rights. The updater looks every two seconds.

    The webhook listens on all addresses, which no flag restricts; it is called on loopback.
    """

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._certificates = work / "vpa"
        self._certificates.mkdir()
        port, *metrics = free_ports(3)
        common = ("--status-lease-namespace", "--admission-controller-status-lease-namespace")
        admission, updater = (
            [
                str(PROGRAMS.path(name)),
                f"--kubeconfig={plane.kubeconfig}",
                f"--address={LOOPBACK}:{metric}",
                f"{flag}=default",
            ]
            for name, flag, metric in zip((ADMISSION, UPDATER), common, metrics, strict=True)
        )
        admission += [
            f"--client-ca-file={self._certificates / 'ca.crt'}",
            f"--tls-cert-file={self._certificates / 'tls.crt'}",
            f"--tls-private-key={self._certificates / 'tls.key'}",
            f"--port={port}",
            "--register-by-url=true",
            f"--webhook-address=https://{LOOPBACK}",
            f"--webhook-port={port}",
        ]
        # Evictions are not limited by the share of a workload's replicas.
        updater += ["--updater-interval=2s", "--eviction-tolerance=1"]
        logs = Path(os.environ.get("BALLAST_VPA_LOGS", plane.logs))
        self._admission = Process(ADMISSION, admission, logs / f"{ADMISSION}.log")
        self._updater = Process(UPDATER, updater, logs / f"{UPDATER}.log")

    @property
    def is_alive(self) -> bool:
        """Whether both are running."""
        return self._admission.is_alive and self._updater.is_alive

    def install(self) -> None:
        """Apply its CRDs."""
        apply_kinds(self._plane, [definitions()])

    def start(self) -> None:
        """Start both; returns when the webhook is registered, which takes ten seconds."""
        authority = Authority("vpa-test-ca")
        pair = authority.serving(["vpa"], [LOOPBACK])
        for name, content in (
            ("ca.crt", authority.certificate),
            ("tls.crt", pair.certificate),
            ("tls.key", pair.key),
        ):
            (self._certificates / name).write_bytes(content)
        self._admission.start()
        self._admission.wait_until(lambda: self._plane.admin.has(_CONFIGURATION), READY_S)
        self._updater.start()

    def stop(self) -> None:
        """End both, and delete the webhook."""
        self._updater.kill()
        self._admission.kill()
        if self._plane.admin.has(_CONFIGURATION):
            self._plane.admin.delete(_CONFIGURATION)
