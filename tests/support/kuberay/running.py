"""KubeRay's operator as a process beside a control plane."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.kuberay import PROGRAMS, definitions
from tests.support.neighbour import Neighbour

READY_S: Final = 60.0


class KubeRay(Neighbour):
    """One operator, with the administrator's rights; Ray's dashboard does not run."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._health_port = free_port()
        argv = [
            str(PROGRAMS.path("kuberay")),
            f"--kubeconfig={plane.kubeconfig}",
            "--metrics-addr=0",
            f"--health-probe-bind-address={LOOPBACK}:{self._health_port}",
            "--enable-leader-election=false",
        ]
        log = Path(os.environ.get("BALLAST_KUBERAY_LOG", plane.logs / "kuberay.log"))
        self._process = Process("kuberay", argv, log, dict(os.environ))

    def install(self) -> None:
        """Apply its CRDs."""
        apply_kinds(self._plane, definitions())

    def start(self) -> None:
        """Start it; returns when it is ready."""
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )
