"""Kyverno's admission controller as a process beside a control plane, on loopback.

It registers its webhooks itself; its settings are those of its Helm chart.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.kyverno import PROGRAM, PROGRAMS, kinds, values
from tests.support.neighbour import Neighbour

NAMESPACE: Final = "kyverno"
READY_S: Final = 120.0
#: In place of ten seconds, which a busy machine may exceed.
TIMEOUT_S: Final = 20
_SETTINGS: Final = "kyverno-settings"
_OWN: Final = ("-l", "webhook.kyverno.io/managed-by=kyverno", "--ignore-not-found")
_CONFIGURATIONS: Final = "mutatingwebhookconfigurations,validatingwebhookconfigurations"


class Kyverno(Neighbour):
    """One admission controller, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, own: dict[str, Any]) -> None:
        """`own` are the values of `config` that differ from the chart's."""
        self._plane = plane
        self._own_settings = own
        self._port, metrics = free_ports(2)
        name = f"system:serviceaccount:{NAMESPACE}"
        argv = [
            str(PROGRAMS.path(PROGRAM)),
            f"--kubeconfig={plane.kubeconfig}",
            f"--serverIP={LOOPBACK}:{self._port}",
            f"--webhookServerHost={LOOPBACK}",
            f"--webhookServerPort={self._port}",
            f"--webhookTimeout={TIMEOUT_S}",
            "--caSecretName=kyverno-ca",
            "--tlsSecretName=kyverno-tls",
            f"--backgroundServiceAccountName={name}:background",
            f"--reportsServiceAccountName={name}:reports",
            f"--metricsHost={LOOPBACK}",
            f"--metricsPort={metrics}",
            "--disableLogColor",
            "--v=1",
            "--controllerRuntimeMetricsAddress=0",
        ]
        log = Path(os.environ.get("BALLAST_KYVERNO_LOG", plane.logs / f"{PROGRAM}.log"))
        env = os.environ | {
            "INIT_CONFIG": _SETTINGS,
            "KYVERNO_DEPLOYMENT": PROGRAM,
            "KYVERNO_NAMESPACE": NAMESPACE,
            "KYVERNO_POD_NAME": PROGRAM,
            "KYVERNO_ROLE_NAME": PROGRAM,
            "KYVERNO_SERVICEACCOUNT_NAME": PROGRAM,
            "KYVERNO_SVC": PROGRAM,
            "METRICS_CONFIG": "kyverno-metrics",
        }
        self._process = Process(PROGRAM, argv, log, env)

    def install(self) -> None:
        """Apply its CRDs, its namespace, its settings, and the rights that it looks for."""
        apply_kinds(self._plane, kinds())
        self._plane.make_namespace(NAMESPACE)
        meta = {"name": _SETTINGS, "namespace": NAMESPACE}
        data = settings(self._own_settings)
        self._apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
        self._apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "kyverno-test"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [
                    {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": each}
                    for each in ("background", "reports")
                ],
            }
        )

    def start(self) -> None:
        """Start it; returns when it is ready."""
        super().start()
        self._process.wait_until(lambda: is_healthy(self._port, "/health/readiness"), READY_S)

    def kill(self) -> None:
        """End it; its webhooks stay."""
        self._process.kill()

    def stop(self) -> None:
        """End it, and delete its webhooks."""
        self.kill()
        run_kubectl(self._plane, "delete", _CONFIGURATIONS, *_OWN)

    def _apply(self, body: dict[str, Any]) -> None:
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=json.dumps(body))


def settings(own: dict[str, Any]) -> dict[str, str]:
    """The chart's ConfigMap with these values, without filters for the chart's own objects."""
    config = yaml.safe_load(values().read_text("utf-8"))["config"] | own
    config["webhooks"]["namespaceSelector"]["matchExpressions"][0]["values"].append(NAMESPACE)
    filters = [each for each in config["resourceFilters"] if "{{" not in each]
    return {
        "resourceFilters": " ".join([*filters, *config["resourceFiltersInclude"]]),
        "webhooks": json.dumps(config["webhooks"]),
        "excludeGroups": ",".join(config["excludeGroups"]),
    }
