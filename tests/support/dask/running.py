"""Dask's operator as a process beside a control plane. No Dask runs in its pods."""

import os
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.dask import PROGRAMS, definitions
from tests.support.neighbour import Neighbour

READY_S: Final = 90.0
SPEC_TIMEOUT_S: Final = 60.0


class Dask(Neighbour):
    """One operator, with the administrator's rights."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._port = free_port()
        argv = [
            str(PROGRAMS.path("kopf")),
            "run",
            "--module=dask_kubernetes.operator.controller",
            "--standalone",
            "--all-namespaces",
            f"--liveness=http://{LOOPBACK}:{self._port}/healthz",
        ]
        log = Path(os.environ.get("BALLAST_DASK_LOG", plane.logs / "dask.log"))
        self._process = Process("dask", argv, log, os.environ | {"KUBECONFIG": plane.kubeconfig})

    def install(self) -> None:
        """Apply its CRDs."""
        apply_kinds(self._plane, definitions())

    def start(self) -> None:
        """Start it; returns when it is ready."""
        self._process.start()
        self._process.wait_until(lambda: is_healthy(self._port, "/healthz", is_tls=False), READY_S)


def cluster(name: str, n_workers: int, resources: str) -> dict[str, Any]:
    """The DaskCluster that Dask's own command makes, as `KubeCluster` does."""
    words = ("kubernetes", "gen", "cluster", f"--name={name}", f"--n-workers={n_workers}")
    done = subprocess.run(
        [str(PROGRAMS.path("dask")), *words, f"--resources={resources}"],
        capture_output=True,
        text=True,
        timeout=SPEC_TIMEOUT_S,
        check=True,
    )
    return dict(yaml.safe_load(done.stdout))
