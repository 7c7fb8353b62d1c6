"""KServe's controller manager as a process beside a control plane, with its kinds and webhooks.

It is in no registry: `$BALLAST_KSERVE` is a folder with the program `kserve-controller-manager`
and with the folder `config` of the sources that it was built from.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl
from tests.support.controlplane.ports import LOOPBACK, free_ports
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process

NAMESPACE: Final = "kserve"
READY_S: Final = 60.0
_PROGRAM: Final = "kserve-controller-manager"
_HOOKS: Final = "inferenceservice.serving.kserve.io"
#: Where controller-runtime looks for the certificate, below $TMPDIR.
_CERTIFICATES: Final = Path("k8s-webhook-server", "serving-certs")
_DEPLOY: Final = '{"defaultDeploymentMode": "Standard"}'


def folder() -> Path | None:
    """The folder with the program, where one is given."""
    given = os.environ.get("BALLAST_KSERVE", "")
    return Path(given) if given and os.access(Path(given, _PROGRAM), os.X_OK) else None


class KServe:
    """One KServe without Knative and Istio, which has the administrator's rights."""

    def __init__(self, plane: ControlPlane, built: Path, work: Path) -> None:
        self._plane = plane
        self._config = built / "config"
        self._work = work
        self._authority = Authority("kserve-test-ca")
        self._webhook_port, self._health_port = free_ports(2)
        argv = [
            str(built / _PROGRAM),
            "--metrics-addr=0",
            f"--health-probe-addr={LOOPBACK}:{self._health_port}",
            f"--webhook-port={self._webhook_port}",
        ]
        env = os.environ | {
            "KUBECONFIG": plane.kubeconfig,
            "POD_NAMESPACE": NAMESPACE,
            "TMPDIR": str(work),
        }
        log = Path(os.environ.get("BALLAST_KSERVE_LOG", plane.logs / "kserve.log"))
        self._process = Process("kserve", argv, log, env)

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process.is_alive

    def install(self) -> None:
        """KServe's kinds and its configuration, and what a model server of Hugging Face needs."""
        kinds = self._config / "crd" / "full"
        for each in sorted((*kinds.glob("serving.*.yaml"), *kinds.glob("*container/serving.*"))):
            run_kubectl(self._plane, "apply", "--server-side", "-f", str(each))
        run_kubectl(
            self._plane, "wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"
        )
        self._plane.make_namespace(NAMESPACE)
        (settings,) = _documents(self._config / "configmap" / "inferenceservice.yaml")
        settings["metadata"]["namespace"] = NAMESPACE
        settings["data"]["deploy"] = _DEPLOY
        ingress = json.loads(settings["data"]["ingress"]) | {"disableIngressCreation": True}
        settings["data"]["ingress"] = json.dumps(ingress)
        parts = [settings]
        for name in ("runtimes/kserve-huggingfaceserver", "storagecontainers/default"):
            parts += _documents(self._config / f"{name}.yaml")
        self._apply(parts)

    def start(self) -> None:
        """Start it; returns when it serves its webhooks."""
        pair = self._authority.serving(["kserve"], [LOOPBACK])
        certificates = self._work / _CERTIFICATES
        certificates.mkdir(parents=True)
        (certificates / "tls.crt").write_bytes(pair.certificate)
        (certificates / "tls.key").write_bytes(pair.key)
        self._process.start()
        self._process.wait_until(
            lambda: is_healthy(self._health_port, "/readyz", is_tls=False), READY_S
        )
        self._apply(self._webhooks())

    def stop(self) -> None:
        """End it, and take its webhooks back."""
        for kind in ("mutating", "validating"):
            name = f"{kind}webhookconfiguration"
            run_kubectl(self._plane, "delete", name, _HOOKS, "--ignore-not-found")
        self._process.kill()

    def _webhooks(self) -> list[dict[str, Any]]:
        """Those for InferenceServices and their pods, as shipped."""
        bundle = base64.b64encode(self._authority.certificate).decode("ascii")
        url = f"https://{LOOPBACK}:{self._webhook_port}"
        found = [
            each
            for each in _documents(self._config / "webhook" / "manifests.yaml")
            if each["metadata"]["name"] == _HOOKS
        ]
        for hook in (hook for each in found for hook in each["webhooks"]):
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
        return found

    def _apply(self, documents: list[dict[str, Any]]) -> None:
        text = yaml.safe_dump_all(documents)
        run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=text)


def _documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]
