"""YuniKorn's scheduler and its admission controller as processes beside a control plane.

They are in no registry: BALLAST_YUNIKORN names a folder with the programs `shim` and
`admissioncontroller`, built from their sources (`go build ./pkg/cmd/shim`, and the other).
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl
from tests.support.controlplane.ports import LOOPBACK
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.neighbour import OnlyNeighbour

FOLDER: Final = os.environ.get("BALLAST_YUNIKORN", "")
NAMESPACE: Final = "yunikorn"
WEBHOOKS: Final = "yunikorn-admission-controller-mutations"
READY_S: Final = 120.0
#: Both ports are fixed.
SCHEDULER_PORT: Final = 9080
WEBHOOK_PORT: Final = 9089
_SERVICE: Final = "yunikorn-admission-controller-service"
_QUEUES: Final = {
    "partitions": [
        {
            "name": "default",
            "placementrules": [{"name": "tag", "value": "namespace", "create": True}],
            "queues": [{"name": "root", "submitacl": "*"}],
        }
    ]
}


class _Program(OnlyNeighbour):
    """One of the programs, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, program: str, settings: dict[str, str]) -> None:
        self._plane = plane
        self._settings = settings
        self._lock_path = Path(FOLDER) / f".{program}"
        env = os.environ | {"KUBECONFIG": plane.kubeconfig, "NAMESPACE": NAMESPACE}
        log = plane.logs / f"yunikorn-{program}.log"
        self._process = Process(program, [str(Path(FOLDER) / program)], log, env)

    def install(self) -> None:
        """Make its namespace and apply its settings, as its Helm chart does."""
        self._plane.make_namespace(NAMESPACE)
        queues = {"queues.yaml": yaml.safe_dump(_QUEUES)}
        data: dict[str, dict[str, Any]] = {
            "yunikorn-defaults": queues,
            "yunikorn-configs": self._settings,
        }
        for name, values in data.items():
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "data": values,
            }
            self._apply(body)

    def _apply(self, body: dict[str, Any]) -> None:
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=json.dumps(body))


class Scheduler(_Program):
    """The scheduler."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "shim", {})

    def start(self) -> None:
        """Start it; returns when it is ready."""
        super().start()
        self._process.wait_until(
            lambda: is_healthy(SCHEDULER_PORT, "/ws/v1/scheduler/healthcheck", is_tls=False),
            READY_S,
        )


class AdmissionController(_Program):
    """The admission controller; its webhook fails closed here."""

    def __init__(self, plane: ControlPlane, **settings: str) -> None:
        """`settings` are those of `admissionController.filtering`."""
        prefix = "admissionController.filtering"
        super().__init__(
            plane,
            "admissioncontroller",
            {f"{prefix}.{key}": value for key, value in settings.items()},
        )

    def install(self) -> None:
        """Also make its Secret, and a Service that resolves to loopback by name."""
        super().install()
        spec = {"type": "ExternalName", "externalName": LOOPBACK}
        objects: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("Secret", "admission-controller-secrets", {}),
            ("Service", _SERVICE, {"spec": spec}),
        )
        for kind, name, more in objects:
            meta = {"name": name, "namespace": NAMESPACE}
            self._apply({"apiVersion": "v1", "kind": kind, "metadata": meta} | more)

    def start(self) -> None:
        """Start it; returns when its webhook is in force."""
        super().start()
        self._process.wait_until(lambda: is_healthy(WEBHOOK_PORT, "/health"), READY_S)
        for kind, name in (
            ("mutatingwebhookconfiguration", WEBHOOKS),
            ("validatingwebhookconfiguration", "yunikorn-admission-controller-validations"),
        ):
            patch = [
                {
                    "op": "add",
                    "path": "/webhooks/0/clientConfig/service/port",
                    "value": WEBHOOK_PORT,
                },
                {"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
                {"op": "add", "path": "/webhooks/0/timeoutSeconds", "value": 30},
            ]
            words = ("patch", kind, name, "--type=json", "-p", json.dumps(patch))
            run_kubectl(self._plane, *words)

    def stop(self) -> None:
        """Delete its webhooks, and end it."""
        words = ("-l", "app=yunikorn", "--ignore-not-found")
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            run_kubectl(self._plane, "delete", kind, *words)
        super().stop()
