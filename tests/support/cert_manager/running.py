"""cert-manager as processes beside a control plane; its own webhooks are not run."""

from pathlib import Path

import yaml

from tests.support.cert_manager import CAINJECTOR, CONTROLLER, PROGRAMS, definitions
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.process import Process


class CertManager:
    """Its controller and its cainjector, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._work = work
        flags = [f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false"]
        self._processes = [
            Process(each, [str(PROGRAMS.path(each)), *flags, *more], work / f"{each}.log")
            for each, more in (
                (CONTROLLER, [f"--metrics-listen-address={LOOPBACK}:{free_port()}"]),
                (CAINJECTOR, []),
            )
        ]

    def install(self) -> None:
        """Apply its CRDs."""
        file = self._work / "cert-manager.yaml"
        file.write_text(yaml.safe_dump_all(definitions()), "utf-8")
        apply_kinds(self._plane, [file])

    def start(self) -> None:
        """Start both; returns at once."""
        for each in self._processes:
            each.start()

    def stop(self) -> None:
        """End both."""
        for each in self._processes:
            each.kill()
