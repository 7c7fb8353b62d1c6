"""KServe's two controller managers as processes beside a control plane, with CRDs and webhooks.

No registry has them: `$BALLAST_KSERVE` is a folder with the programs, and with the folder `config`
of the sources from which they were built.
"""

import base64
import json
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

NAMESPACE: Final = "kserve"
READY_S: Final = 60.0
#: Where controller-runtime looks for the certificate, below $TMPDIR.
_CERTIFICATES: Final = Path("k8s-webhook-server", "serving-certs")
_DEPLOY: Final = '{"defaultDeploymentMode": "Standard"}'


@dataclass(frozen=True, slots=True)
class Part:
    """One of the programs; paths are below `config`. Only the webhooks with one name are used."""

    program: str
    kinds: Sequence[str]
    objects: Sequence[str]
    webhooks: str
    hook: str


INFERENCE_SERVICES: Final = Part(
    "kserve-controller-manager",
    ("crd/full/serving.*.yaml", "crd/full/clusterstoragecontainer/serving.*.yaml"),
    ("runtimes/kserve-huggingfaceserver.yaml", "storagecontainers/default.yaml"),
    "webhook/manifests.yaml",
    "inferenceservice.serving.kserve.io",
)
LLM_INFERENCE_SERVICES: Final = Part(
    "llmisvc-controller-manager",
    ("crd/full/llmisvc/serving.*.yaml",),
    (
        "llmisvcconfig/config-llm-template.yaml",
        "llmisvcconfig/config-llm-worker-data-parallel.yaml",
    ),
    "webhook/llmisvc/manifests.yaml",
    "llminferenceservice.serving.kserve.io",
)


def is_built() -> bool:
    """Whether the folder is given and has both programs."""
    return all(
        os.access(_folder() / part.program, os.X_OK)
        for part in (INFERENCE_SERVICES, LLM_INFERENCE_SERVICES)
    )


def _folder() -> Path:
    return Path(os.environ.get("BALLAST_KSERVE") or "/nonexistent")


class KServe(Neighbour):
    """One program of KServe, without Knative and Istio, with the administrator's rights."""

    def __init__(self, plane: ControlPlane, part: Part, work: Path) -> None:
        self._plane = plane
        self._part = part
        self._config = _folder() / "config"
        self._work = work
        self._authority = Authority("kserve-test-ca")
        self._webhook_port, self._health_port = free_ports(2)
        argv = [
            str(_folder() / part.program),
            "--metrics-addr=0",
            f"--health-probe-addr={LOOPBACK}:{self._health_port}",
            f"--webhook-port={self._webhook_port}",
        ]
        env = os.environ | {
            "KUBECONFIG": plane.kubeconfig,
            "POD_NAMESPACE": NAMESPACE,
            "TMPDIR": str(work),
        }
        log = Path(os.environ.get("BALLAST_KSERVE_LOG", plane.logs / f"{part.program}.log"))
        self._process = Process("kserve", argv, log, env)

    def install(self) -> None:
        """Apply its CRDs and KServe's configuration."""
        kinds = [path for each in self._part.kinds for path in self._config.glob(each)]
        apply_kinds(self._plane, sorted(kinds))
        self._plane.make_namespace(NAMESPACE)
        (settings,) = _documents(self._config / "configmap" / "inferenceservice.yaml")
        settings["metadata"]["namespace"] = NAMESPACE
        settings["data"]["deploy"] = _DEPLOY
        ingress = json.loads(settings["data"]["ingress"]) | {"disableIngressCreation": True}
        settings["data"]["ingress"] = json.dumps(ingress)
        self._apply([settings])

    def start(self) -> None:
        """Start it; returns when it serves its webhooks and the objects for model servers exist."""
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
        objects = [each for path in self._part.objects for each in _documents(self._config / path)]
        for each in objects:
            each["metadata"]["namespace"] = NAMESPACE
        self._apply(objects)

    def stop(self) -> None:
        """End it, and delete its webhooks."""
        for kind in ("mutating", "validating"):
            name = f"{kind}webhookconfiguration"
            run_kubectl(self._plane, "delete", name, self._part.hook, "--ignore-not-found")
        self._process.kill()

    def _webhooks(self) -> list[dict[str, Any]]:
        """The webhooks for its main kind and its pods, as shipped."""
        bundle = base64.b64encode(self._authority.certificate).decode("ascii")
        url = f"https://{LOOPBACK}:{self._webhook_port}"
        found = [
            each
            for each in _documents(self._config / self._part.webhooks)
            if each["metadata"]["name"] == self._part.hook
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
