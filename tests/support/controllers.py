"""Controllers of kubernetes-sigs, and others made like them, as processes beside a control plane,
with their own webhooks."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.neighbour import Neighbour

READY_S: Final = 120.0


@dataclass(frozen=True)
class Parts:
    """The parts of a controller: its program, the files with its CRDs, the file with its webhook
    configurations, the API group of its configuration, and the label of its pods. `is_of_sigs`: its
    configuration says where the certificates are, as those of kubernetes-sigs do."""

    name: str
    program: Path
    kinds: Sequence[Path]
    webhooks: Path
    config_group: str
    pod_label: str = ""
    is_of_sigs: bool = True


class SigsController(Neighbour):
    """One controller, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, work: Path, parts: Parts) -> None:
        self._plane = plane
        self._parts = parts
        # Where a program that cannot be told looks, below the folder for temporary files.
        self._certificates = work / parts.name / "k8s-webhook-server" / "serving-certs"
        self._certificates.mkdir(parents=True)
        self._authority = Authority(f"{parts.name}-test-ca")
        self._webhook_port, self._health_port = free_ports(2)
        config: dict[str, Any] = {
            "apiVersion": f"{parts.config_group}/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "webhook": {"host": LOOPBACK, "port": self._webhook_port},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self._health_port}"},
        }
        if parts.is_of_sigs:
            config["internalCertManagement"] = {"enable": False}
            config["webhook"]["certDir"] = str(self._certificates)
        else:
            config["certManagement"] = {"enable": False}
        file = work / f"{parts.name}.yaml"
        file.write_text(yaml.safe_dump(config))
        argv = [str(parts.program), f"--config={file}", f"--kubeconfig={plane.kubeconfig}"]
        log = os.environ.get(f"BALLAST_{parts.name.upper()}_LOG", plane.logs / f"{parts.name}.log")
        env = os.environ | {"TMPDIR": str(work / parts.name)}
        self._process = Process(parts.name, argv, Path(log), env)

    def install(self) -> None:
        """Apply its CRDs."""
        apply_kinds(self._plane, self._parts.kinds)

    def start(self) -> None:
        """Start it; returns when its webhooks answer."""
        pair = self._authority.serving([self._parts.name], [LOOPBACK])
        (self._certificates / "tls.crt").write_bytes(pair.certificate)
        (self._certificates / "tls.key").write_bytes(pair.key)
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )
        run_kubectl(self._plane, "apply", "-f-", stdin=yaml.safe_dump_all(self._webhooks()))

    def stop(self) -> None:
        """End it, and delete its webhooks."""
        self._process.kill()
        for each in self._webhooks():
            name = each["metadata"]["name"]
            run_kubectl(self._plane, "delete", each["kind"], name, "--ignore-not-found")

    def _webhooks(self) -> list[dict[str, Any]]:
        """Its webhook configurations, named and restricted as in its kustomization."""
        url = f"https://{LOOPBACK}:{self._webhook_port}"
        bundle = base64.b64encode(self._authority.certificate).decode("ascii")
        made = []
        for document in yaml.safe_load_all(self._parts.webhooks.read_text("utf-8")):
            document["metadata"]["name"] = f"{self._parts.name}-{document['metadata']['name']}"
            for webhook in document["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
                if webhook["rules"][0]["resources"] == ["pods"]:
                    ours = {"key": self._parts.pod_label, "operator": "Exists"}
                    webhook["objectSelector"] = {"matchExpressions": [ours]}
            made.append(document)
        return made
