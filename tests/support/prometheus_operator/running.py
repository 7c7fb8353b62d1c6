"""The Prometheus operator as a process beside a control plane."""

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.certificates import write_private
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour
from tests.support.prometheus_operator import OPERATOR, PROGRAMS, kinds

NAMESPACE: Final = "monitoring"
READY_S: Final = 60.0


class PrometheusOperator(Neighbour):
    """One operator, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._port = free_port()
        argv = [
            str(PROGRAMS.path(OPERATOR)),
            f"--apiserver={plane.url}",
            *self._identity(work),
            f"--web.listen-address={LOOPBACK}:{self._port}",
            "--kubelet-endpoints=false",
            "--kubelet-endpointslice=false",
        ]
        self._process = Process("prometheus-operator", argv, work / "prometheus-operator.log")

    def _identity(self, work: Path) -> list[str]:
        """Flags for the administrator's certificate: it takes no kubeconfig."""
        config = json.loads(Path(self._plane.kubeconfig).read_text("utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        parts = {
            "ca-file": cluster["certificate-authority-data"],
            "cert-file": user["client-certificate-data"],
            "key-file": user["client-key-data"],
        }
        for name, encoded in parts.items():
            write_private(work / name, b64decode(encoded))
        return [f"--{name}={work / name}" for name in parts]

    def install(self) -> None:
        """Apply its CRDs, and make the namespace of Prometheus."""
        apply_kinds(self._plane, kinds())
        self._plane.make_namespace(NAMESPACE)

    def start(self) -> None:
        """Start it; returns when it is ready."""
        self._process.start()
        self._process.wait_until(lambda: is_healthy(self._port, "/healthz", is_tls=False), READY_S)

    def configuration(self, prometheus: str) -> Any:
        """What it made of all monitors for a Prometheus in `NAMESPACE`; None if not yet."""
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        for secret in self._plane.admin.get(path)["items"]:
            if secret["metadata"]["name"] == f"prometheus-{prometheus}" and secret.get("data"):
                packed = b64decode(secret["data"]["prometheus.yaml.gz"])
                return yaml.safe_load(gzip.decompress(packed))
        return None

    def rule_groups(self, prometheus: str) -> list[str]:
        """Names of the groups of rules that it gives this Prometheus."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        return [
            group["name"]
            for each in self._plane.admin.get(path)["items"]
            if each["metadata"]["name"].startswith(f"prometheus-{prometheus}-rulefiles-")
            for text in each.get("data", {}).values()
            for group in yaml.safe_load(text)["groups"]
        ]
