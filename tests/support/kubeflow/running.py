"""Kubeflow's operators as processes beside a control plane."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.kubeflow import MPI, PROGRAMS, TRAINING, manifests
from tests.support.neighbour import Neighbour

READY_S: Final = 60.0
#: What the MPI operator logs once it follows MPIJobs.
STARTED: Final = "Started workers"


class Operator(Neighbour):
    """One operator, with the administrator's rights; its webhooks do not run."""

    def __init__(self, plane: ControlPlane, name: str, flags: Sequence[str]) -> None:
        self._plane = plane
        self._name = name
        log = os.environ.get(f"BALLAST_{name.upper().replace('-', '_')}_LOG")
        argv = [str(PROGRAMS.path(name)), *flags]
        path = Path(log) if log else plane.logs / f"{name}.log"
        self._process = Process(name, argv, path, dict(os.environ))

    def install(self) -> None:
        """Apply its CRDs, without those of an operator that has its own."""
        found = sorted(manifests(self._name).glob("**/kubeflow.org_*.yaml"))
        mine = [each for each in found if (self._name == MPI) == (each.stem.endswith("mpijobs"))]
        apply_kinds(self._plane, mine)

    def start(self) -> None:
        """Start it; returns when it is ready."""
        self._process.start()
        self._process.wait_until(self._is_ready(), READY_S)

    def _is_ready(self) -> Callable[[], bool]:
        raise NotImplementedError


class TrainingOperator(Operator):
    """The training operator, if so with the name of a scheduler for gangs."""

    def __init__(self, plane: ControlPlane, gang_scheduler: str = "") -> None:
        self._port = free_port()
        flags = [
            f"--kubeconfig={plane.kubeconfig}",
            f"--health-probe-bind-address={LOOPBACK}:{self._port}",
            f"--gang-scheduler-name={gang_scheduler}",
        ]
        super().__init__(plane, TRAINING, flags)

    def _is_ready(self) -> Callable[[], bool]:
        return lambda: is_healthy(self._port, "/readyz", is_tls=False)


class MpiOperator(Operator):
    """The MPI operator."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, MPI, [f"--kubeConfig={plane.kubeconfig}"])

    def _is_ready(self) -> Callable[[], bool]:
        path = self._process.log_path
        earlier = path.read_text().count(STARTED) if path.exists() else 0
        return lambda: path.read_text().count(STARTED) > earlier
