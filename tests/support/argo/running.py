"""Argo's workflow-controller as a process beside a control plane."""

import os
from pathlib import Path
from typing import Any, Final

from tests.support.argo import PROGRAM, PROGRAMS, definitions
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour

READY_S: Final = 60.0
CONFIG: Final = "workflow-controller-configmap"
_CONFIGS: Final = "/api/v1/namespaces/default/configmaps"
#: What it logs once it follows Workflows.
STARTED: Final = "Starting Workflow Controller"


class Argo(Neighbour):
    """One controller, with the administrator's rights; its executor does not run in the pods."""

    def __init__(self, plane: ControlPlane, **env: str) -> None:
        """`env` are its environment variables."""
        self._plane = plane
        argv = [
            str(PROGRAMS.path(PROGRAM)),
            f"--kubeconfig={plane.kubeconfig}",
            "--namespace=default",
            "--executor-image=example.invalid/argoexec",
        ]
        log = Path(os.environ.get("BALLAST_ARGO_LOG", plane.logs / f"{PROGRAM}.log"))
        full = os.environ | {"LEADER_ELECTION_DISABLE": "true"} | env
        self._process = Process(PROGRAM, argv, log, full)

    def install(self) -> None:
        """Apply its CRDs and its configuration, without metrics, whose port is fixed."""
        apply_kinds(self._plane, definitions())
        if not self._plane.admin.has(f"{_CONFIGS}/{CONFIG}"):
            body: dict[str, Any] = {
                "metadata": {"name": CONFIG},
                "data": {"metricsConfig": "enabled: false\n"},
            }
            self._plane.admin.post(_CONFIGS, body)

    def start(self) -> None:
        """Start it; returns when it runs."""
        earlier = self._n_starts()
        self._process.start()
        self._process.wait_until(lambda: self._n_starts() > earlier, READY_S)

    def _n_starts(self) -> int:
        path = self._process.log_path
        return path.read_text("utf-8").count(STARTED) if path.exists() else 0
