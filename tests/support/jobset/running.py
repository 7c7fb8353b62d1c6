"""JobSet's controller as a process beside a control plane, with its own webhooks."""

import base64
import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import apply_kinds, run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.jobset import jobset_path, manifests

READY_S: Final = 60.0


class JobSets:
    """One controller, which has the administrator's rights."""

    def __init__(self, plane: ControlPlane, work: Path) -> None:
        self._plane = plane
        self._certificates = work / "jobset"
        self._certificates.mkdir()
        self._authority = Authority("jobset-test-ca")
        self._webhook_port, self._health_port = free_ports(2)
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {
                "host": LOOPBACK,
                "port": self._webhook_port,
                "certDir": str(self._certificates),
            },
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self._health_port}"},
        }
        file = work / "jobset.yaml"
        file.write_text(yaml.safe_dump(config))
        argv = [str(jobset_path()), f"--config={file}", f"--kubeconfig={plane.kubeconfig}"]
        log = Path(os.environ.get("BALLAST_JOBSET_LOG", plane.logs / "jobset.log"))
        self._process = Process("jobset", argv, log, dict(os.environ))

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process.is_alive

    def install(self) -> None:
        """Its kinds."""
        files = (manifests() / "components" / "crd" / "bases").glob("*.yaml")
        apply_kinds(self._plane, sorted(files))

    def start(self) -> None:
        """Start it; returns when its webhooks answer."""
        pair = self._authority.serving(["jobset"], [LOOPBACK])
        (self._certificates / "tls.crt").write_bytes(pair.certificate)
        (self._certificates / "tls.key").write_bytes(pair.key)
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )
        run_kubectl(self._plane, "apply", "-f-", stdin=yaml.safe_dump_all(self._webhooks()))

    def stop(self) -> None:
        """End it, and take its webhooks back."""
        self._process.kill()
        for each in self._webhooks():
            name = each["metadata"]["name"]
            run_kubectl(self._plane, "delete", each["kind"], name, "--ignore-not-found")

    def _webhooks(self) -> list[dict[str, Any]]:
        """Those of the module, as its kustomization narrows and names them."""
        url = f"https://{LOOPBACK}:{self._webhook_port}"
        bundle = base64.b64encode(self._authority.certificate).decode("ascii")
        source = manifests() / "components" / "webhook" / "manifests.yaml"
        made = []
        for document in yaml.safe_load_all(source.read_text("utf-8")):
            document["metadata"]["name"] = f"jobset-{document['metadata']['name']}"
            for webhook in document["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
                if webhook["rules"][0]["resources"] == ["pods"]:
                    ours = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
                    webhook["objectSelector"] = {"matchExpressions": [ours]}
            made.append(document)
        return made
