"""cert-manager issues the certificate of the webhooks, writes its CA into their configurations, and
renews it while they are called. Skipped unless `make cert-manager` has built it."""

import json
import re
import shlex
import ssl
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from extender.api import names
from tests.integration.webhooks.conftest import PROJECTS, SEEN_S, manifest, project_of
from tests.support.cert_manager import PROGRAMS
from tests.support.cert_manager.running import CertManager
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import Installation, Program
from tests.support.overlays import MANIFESTS
from tests.support.webhook_config import REGISTRATION

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.parametrize("cluster", [None], indirect=True),
    pytest.mark.timeout(400),
    pytest.mark.skipif(not PROGRAMS.has(), reason="no cert-manager: make cert-manager builds it"),
]
PAGE: Final = MANIFESTS.parent / "docs" / "install.md"
SECRET: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/secrets/ballast-webhooks-tls"
TEAM: Final = "team-vision"


@dataclass(slots=True)
class Issued:
    """Webhooks that serve what cert-manager issues, called by the API server by their Service."""

    cluster: Cluster
    program: Program
    folder: Path

    def mount(self) -> bytes:
        """Write the Secret into the webhooks' folder, as kubelet does; returns the leaf."""
        for name, text in self.cluster.control_plane.admin.get(SECRET)["data"].items():
            (self.folder / name).write_bytes(b64decode(text))
        return (self.folder / "tls.crt").read_bytes()

    def served(self) -> bytes:
        """The leaf that the webhooks serve."""
        return ssl.get_server_certificate((LOOPBACK, self.program.port)).encode()

    def gates(self) -> list[str]:
        """Gates of a new pod with a share of a GPU; raises what the API server says."""
        pod = manifest("probe", {"gpu-fraction": "0.5"})
        admin = self.cluster.control_plane.admin
        made = admin.post(f"/api/v1/namespaces/{TEAM}/pods?dryRun=All", pod)
        return [each["name"] for each in made["spec"].get("schedulingGates", ())]

    def is_called(self) -> bool:
        try:
            return self.gates() == [names.GATE]
        except ApiRefusedError:  # not trusted yet
            return False


def commands() -> list[str]:
    """The commands of the page for this overlay."""
    text = PAGE.read_text("utf-8").partition("## With cert-manager")[2].partition("\n## ")[0]
    return re.findall(r"^kubectl (.+)$", text, re.MULTILINE)


def configurations(cluster: Cluster) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, webhook configuration of ours), both of them."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        path = f"{REGISTRATION}/{kind}/ballast-webhooks"
        yield path, cluster.control_plane.admin.get(path)


def resolve_to(cluster: Cluster, port: int) -> None:
    """Let the Service lead to this port of loopback: there is no Service network."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ballast-webhooks", "namespace": names.SYSTEM_NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": LOOPBACK},
    }
    cluster.kubectl("replace", "--force", "-f-", stdin=json.dumps(service))
    for path, document in configurations(cluster):
        patch = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/service/port", "value": port}
            for at in range(len(document["webhooks"]))
        ]
        kind, name = path.split("/")[-2:]
        cluster.kubectl("patch", kind, name, "--type=json", "-p", json.dumps(patch))


@pytest.fixture
def issued(cluster: Cluster, tmp_path: Path) -> Iterator[Issued]:
    manager = CertManager(cluster.control_plane, tmp_path)
    manager.install()
    manager.start()
    program = None
    try:
        for command in commands():
            cluster.kubectl(*shlex.split(command))
        folder = tmp_path / "tls"
        folder.mkdir()
        program = Installation(cluster.control_plane).webhooks(folder)
        found = Issued(cluster, program, folder)
        found.mount()
        resolve_to(cluster, program.port)
        cluster.control_plane.make_namespace(TEAM)
        cluster.control_plane.admin.post(PROJECTS, project_of(TEAM))
        program.start()
        yield found
    finally:
        manager.stop()
        if program:
            program.kill()


def test_webhooks_are_trusted_and_stay_so_while_their_certificate_is_renewed(
    issued: Issued,
) -> None:
    wait_for(issued.is_called, SEEN_S, "a pod that the webhook changed")
    ca = (issued.folder / "ca.crt").read_bytes()
    bundles = {
        webhook["clientConfig"]["caBundle"]
        for _, document in configurations(issued.cluster)
        for webhook in document["webhooks"]
    }
    assert [b64decode(each) for each in bundles] == [ca]
    first = issued.mount()
    # As `cmctl renew` does.
    renew = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}
    issued.cluster.kubectl(
        "patch", "certificate", "ballast-webhooks", "-n", names.SYSTEM_NAMESPACE,
        "--subresource=status", "--type=json", "-p",
        json.dumps([{"op": "add", "path": "/status/conditions/-", "value": renew}]),
    )  # fmt: skip

    def is_renewed() -> bool:
        assert issued.gates() == [names.GATE]
        return issued.mount() != first

    wait_for(is_renewed, SEEN_S, "another leaf in the Secret")
    leaf = issued.mount()

    def is_served() -> bool:
        assert issued.gates() == [names.GATE]
        return issued.served().strip() == leaf.strip()

    wait_for(is_served, SEEN_S, "the webhooks to serve it")
    assert (issued.folder / "ca.crt").read_bytes() == ca
