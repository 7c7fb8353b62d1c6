"""Our kube-scheduler as shipped, with its own account, beside the cluster's own."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.integration.manifests.one_project import (
    SEEN_S,
    OwnScheduler,
    add_project,
    pods,
    submit,
    wait_bound,
)
from tests.support.auditor import Auditor
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.schedulerconfig import read_scheduler_config
from tests.support.installation import SCHEDULER, Installation, Program
from tests.support.overlays import MANIFESTS

pytestmark = pytest.mark.controlplane

EXISTING = MANIFESTS / "overlays" / "existing-scheduler"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ballast-system/leases/ballast-scheduler"
PLAIN: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "plain"},
    "spec": {"containers": [{"name": "main", "image": "example"}]},
}


@pytest_asyncio.fixture
async def installation(cluster: Cluster, audited: Auditor) -> AsyncIterator[Installation]:
    """The controller and nothing that schedules; one node of two cards, one project."""
    plane = cluster.control_plane
    plane.kill("kube-scheduler")
    add_project(cluster, 2)
    cluster.add_gpu_nodes(1, 2)
    installation = Installation(plane)
    installation.control.start()
    try:
        yield installation
        await audited.finish()
    finally:
        installation.stop()


def test_shipped_configuration_works_under_the_account_that_it_ships_with(
    cluster: Cluster, installation: Installation
) -> None:
    plane = cluster.control_plane
    installation.serve.start()
    config = read_scheduler_config(SCHEDULER)
    with OwnScheduler(plane, config, f"http://{LOOPBACK}:{installation.serve.port}"):
        submit(cluster, "halves", 3, 500)
        wait_bound(cluster, 3)
    assert plane.admin.get(LEASE)["spec"]["leaseTransitions"] >= 0


def test_scheduler_that_is_there_already_gets_a_profile_and_the_extender(
    cluster: Cluster, installation: Installation, tmp_path: Path
) -> None:
    plane = cluster.control_plane
    subprocess.run([str(EXISTING / "certificates.sh"), str(tmp_path)], check=True)
    port, serve = _extender(plane, tmp_path)
    config = _configuration(tmp_path)
    plane.start_scheduler(config, extender_url=f"https://{LOOPBACK}:{port}")
    serve.start()
    try:
        submit(cluster, "halves", 3, 500)
        wait_bound(cluster, 3)
        cards = [each["metadata"]["annotations"]["ballast.dev/cards"] for each in pods(cluster)]
        assert all(":500:" in each for each in cards)
    finally:
        serve.kill()
    # Pods of others need neither the extender nor the profile.
    plane.admin.post(f"/api/v1/namespaces/{cluster.namespace}/pods", PLAIN)
    wait_for(lambda: _has_node(cluster, "plain"), SEEN_S, "a plain pod on a node")


def test_client_of_another_authority_is_not_heard(tmp_path: Path) -> None:
    """What the script makes is enough by itself: another run of it is another authority."""
    for name in ("ours", "theirs"):
        subprocess.run([str(EXISTING / "certificates.sh"), str(tmp_path / name)], check=True)
    verify = ["openssl", "verify", "-CAfile", str(tmp_path / "ours" / "ca.crt")]
    ours = subprocess.run([*verify, str(tmp_path / "ours" / "client.crt")], check=False)
    theirs = subprocess.run([*verify, str(tmp_path / "theirs" / "client.crt")], check=False)
    assert (ours.returncode == 0, theirs.returncode == 0) == (True, False)


def _extender(plane: ControlPlane, certificates: Path) -> tuple[int, Program]:
    """Where the verbs are, and `serve` with the arguments of the Deployment."""
    documents = yaml.safe_load_all((EXISTING / "extender.yaml").read_text("utf-8"))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    port, health = free_port(), free_port()
    replaced = {
        "--listen": f"{LOOPBACK}:{port}",
        "--tls-cert": certificates / "server.crt",
        "--tls-key": certificates / "server.key",
        "--client-ca": certificates / "ca.crt",
        "--metrics-listen": f"{LOOPBACK}:{health}",
    }
    given = [each.split("=", 1) for each in container["args"]]
    arguments = [f"{name}={replaced.get(name, value)}" for name, value in given]
    account = plane.kubeconfig_for_service_account("ballast-system", "ballast-scheduler")
    argv = ["extender", *container["command"][1:], *arguments, f"--kubeconfig={account}"]
    return port, Program("serve", argv, health, plane.logs / "ballast-extender.log")


def _configuration(certificates: Path) -> Path:
    """The documented configuration with this run's certificates."""
    config = read_scheduler_config(EXISTING / "scheduler-config.yaml")
    (extender,) = config["extenders"]
    for key in ("caFile", "certFile", "keyFile"):
        extender["tlsConfig"][key] = str(certificates / Path(extender["tlsConfig"][key]).name)
    target = certificates / "scheduler-config.yaml"
    target.write_text(yaml.safe_dump(config))
    return target


def _has_node(cluster: Cluster, name: str) -> bool:
    return any(
        each["metadata"]["name"] == name and each["spec"].get("nodeName") for each in pods(cluster)
    )
