"""The webhooks as installed: own account, own certificate, the shipped rules."""

import json
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from tests.conftest import fresh_namespace
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.installation import Program
from tests.support.webhook_config import REGISTRATION, webhooks_in_force

BASE = Path(__file__).parents[3] / "manifests" / "base"
CONFIGURATIONS = f"{REGISTRATION}/mutatingwebhookconfigurations"
VALIDATIONS = f"{REGISTRATION}/validatingwebhookconfigurations"
PROJECTS = "/apis/ballast.dev/v1alpha1/gpuprojects"
SEEN_S = 90.0


@dataclass(slots=True)
class Admission:
    """A running webhook that the API server calls, and a namespace of project `vision`."""

    api: Api
    program: Program
    ca: Path

    def create(self, pod: dict[str, Any], *, is_stored: bool = True) -> dict[str, Any]:
        """The pod as the API server made it, which is stored or only tried."""
        query = "" if is_stored else "?dryRun=All"
        path = f"/api/v1/namespaces/{self.api.namespace}/pods{query}"
        made: dict[str, Any] = self.api.control_plane.admin.post(path, pod)
        return made

    def refusal(self, pod: dict[str, Any]) -> str:
        """The words with which the pod is refused; empty when it is not."""
        try:
            self.create(pod, is_stored=False)
        except ApiRefusedError as error:
            return str(error)
        return ""

    def n_reviews(self) -> int:
        """How many reviews the webhook answered so far."""
        context = ssl.create_default_context(cafile=str(self.ca))
        url = f"https://{LOOPBACK}:{self.program.port}/metrics"
        with urllib.request.urlopen(url, context=context, timeout=60) as answer:
            text = answer.read().decode()
        found = re.findall(r"^ballast_webhook_reviews_total\{.*\} (\S+)$", text, re.MULTILINE)
        return int(sum(map(float, found)))


@pytest.fixture(scope="module")
def admission(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admission]:
    """Webhooks under their own service account, called by the API server.

    One for a module: its tests make pods of different names, or only try them.
    """
    api = Api(control_plane, fresh_namespace(control_plane))
    cert_dir = tmp_path_factory.mktemp("certs")
    for folder in ("rbac", "priority-classes"):
        api.kubectl("apply", "--server-side", "-k", str(BASE / folder))
    program = _program(api, cert_dir)
    program.start()
    admission = Admission(api, program, cert_dir / "ca.crt")
    admin, ca = api.control_plane.admin, admission.ca.read_bytes()
    admin.post(PROJECTS, project_of(api.namespace))
    try:
        with webhooks_in_force(admin, program.port, ca, api.namespace):
            yield admission
    finally:
        program.kill()


@pytest.fixture(scope="module")
def policies(admission: Admission) -> Iterator[Admission]:
    """The same with the shipped policies in force, in a namespace that is known as a project's."""
    api = admission.api
    api.kubectl("label", "namespace", api.namespace, f"{names.LABEL_MANAGED}=true")
    api.kubectl("apply", "--server-side", "-k", str(BASE / "policies"))
    # Only a policy refuses a pod on a node of its author's choice.
    placed = manifest("placed", {"gpu-fraction": "0.5"}, nodeName="n0")
    try:
        wait_for(
            lambda: "nodeName is preset" in admission.refusal(placed),
            SEEN_S,
            "the policies in force",
        )
        yield admission
    finally:
        api.kubectl("delete", "-k", str(BASE / "policies"))


def _program(api: Api, cert_dir: Path) -> Program:
    account = api.control_plane.kubeconfig_for_service_account("ballast-system", "ballast-webhooks")
    port = free_port()
    argv = [
        "webhooks",
        f"--listen={LOOPBACK}:{port}",
        f"--cert-dir={cert_dir}",
        f"--kubeconfig={account}",
    ]
    return Program("webhooks", argv, port, api.control_plane.logs / "ballast-webhooks.log")


def project_of(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuProject",
        "metadata": {"name": "vision"},
        "spec": {"department": "research", "namespaces": [namespace]},
    }


def manifest(name: str, notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod as a user writes it."""
    containers = [{"name": "main", "image": "example.invalid/none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes or {}},
        "spec": {"containers": containers, **spec},
    }


def apply_body(admission: Admission, body: dict[str, Any], *, dry: bool = True) -> str:
    """What kubectl says, warnings included; the API server's words where it refuses."""
    plane = admission.api.control_plane
    argv = [plane.program("kubectl"), f"--kubeconfig={plane.kubeconfig}", "apply", "-f", "-"]
    done = subprocess.run(
        [*argv, *(["--dry-run=server"] if dry else [])],
        input=json.dumps(body),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr
