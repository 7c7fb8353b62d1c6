"""Everything of ours is installed and nothing of it runs: what still can be made, and what can't.

Last, the whole cluster is stopped and started again, first the API server, then ours.
"""

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import fresh_namespace
from tests.integration.webhooks.conftest import (
    BASE,
    CONFIGURATIONS,
    PROJECTS,
    SEEN_S,
    VALIDATIONS,
    manifest,
    project_of,
)
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.installation import Program
from tests.support.webhook_config import register_webhooks
from webhooks import certs

pytestmark = pytest.mark.controlplane

Body = dict[str, Any]
HALF = {"gpu-fraction": "0.5"}
OTHERS = "somebody"
NO_WEBHOOK = "the webhook is down"
RESTRICTED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
HARDENED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass(slots=True)
class Cluster:
    """A cluster in which Ballast is installed, and its webhook, which does not run yet."""

    api: Api
    webhooks: Program

    def create(self, path: str, body: Body) -> Body:
        """The object as it would be stored; ApiRefusedError where it is refused."""
        made: Body = self.api.control_plane.admin.post(f"{path}?dryRun=All", body)
        return made

    def create_pod(self, body: Body, namespace: str = "") -> Body:
        """A pod as it would be stored, in the project's namespace or another."""
        where = namespace or self.api.namespace
        return self.create(f"/api/v1/namespaces/{where}/pods", body)

    def refusal(self, body: Body) -> str:
        """The words with which a pod of the project is refused, or none."""
        try:
            self.create_pod(body)
        except ApiRefusedError as error:
            return str(error)
        return ""


@pytest.fixture(scope="module")
def cluster_without_us(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The shipped rights, policies and configurations; the program ended at once, or never ran."""
    api = Api(control_plane, fresh_namespace(control_plane))
    for folder in ("rbac", "priority-classes", "policies"):
        api.kubectl("apply", "--server-side", "-k", str(BASE / folder))
    admin, port = control_plane.admin, free_port()
    admin.post(PROJECTS, project_of(api.namespace))
    control_plane.make_namespace(OTHERS)
    register_webhooks(admin, port, certs.make().ca)
    cluster = Cluster(api, _program(api, port, tmp_path_factory.mktemp("certs")))
    try:
        wait_for(lambda: NO_WEBHOOK in cluster.refusal(manifest("p", HALF)), SEEN_S, "the policies")
        yield cluster
    finally:
        cluster.webhooks.kill()
        for kind in ("mutating", "validating"):
            api.kubectl("delete", f"{kind}webhookconfiguration", "ballast-webhooks")
        api.kubectl("delete", "-k", str(BASE / "policies"))


def _program(api: Api, port: int, folder: Path) -> Program:
    account = api.control_plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, "ballast-webhooks")
    argv = [
        "webhooks",
        f"--listen={LOOPBACK}:{port}",
        f"--cert-dir={folder}",
        "--secret=ballast-webhooks-tls",
        "--cert-check-every=0.5",
        f"--kubeconfig={account}",
    ]
    return Program("webhooks", argv, port, api.control_plane.logs / "webhooks-restarted.log")


def asking_for(resource: str, **spec: Any) -> Body:
    body = manifest("asking", {}, **spec)
    body["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    return body


MANAGED = {
    "half a card": manifest("half", HALF),
    "memory": manifest("memory", {"gpu-memory": "8192"}),
    "milli": asking_for("ballast.dev/gpu-milli"),
    "a whole card of our scheduler": asking_for(
        "nvidia.com/gpu", schedulerName="ballast-scheduler"
    ),
    "an instance of our scheduler": asking_for(
        "nvidia.com/mig-1g.10gb", schedulerName="ballast-scheduler"
    ),
}


@pytest.mark.parametrize("body", MANAGED.values(), ids=MANAGED)
def test_managed_pod_is_refused_with_a_clear_word(cluster_without_us: Cluster, body: Body) -> None:
    said = cluster_without_us.refusal(body)
    assert NO_WEBHOOK in said
    assert "deployment ballast-webhooks in namespace ballast-system" in said


UNRELATED = {
    "a pod": (manifest("plain"), OTHERS),
    "a pod in the project's namespace": (manifest("plain"), ""),
    "a whole card of the cluster's scheduler": (asking_for("nvidia.com/gpu"), OTHERS),
    "another scheduler's share": (asking_for("nvidia.com/gpumem"), OTHERS),
    "a pod on a node": (manifest("bound", nodeName="n0"), OTHERS),
    "a pod of the cluster": (manifest("proxy", HALF, hostPID=True), "kube-system"),
}


@pytest.mark.parametrize(("body", "namespace"), UNRELATED.values(), ids=UNRELATED)
def test_unrelated_pod_is_made_as_it_is(
    cluster_without_us: Cluster, body: Body, namespace: str
) -> None:
    made = cluster_without_us.create_pod(body, namespace)
    assert "schedulingGates" not in made["spec"]
    assert made["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("account", ["ballast-webhooks", "ballast-control", "ballast-scheduler"])
def test_our_own_pods_start(cluster_without_us: Cluster, account: str) -> None:
    body = manifest("own", {}, serviceAccountName=account, securityContext=RESTRICTED)
    body["spec"]["containers"][0]["securityContext"] = HARDENED
    assert cluster_without_us.create_pod(body, SYSTEM_NAMESPACE)


def test_nodes_leases_and_deployments_are_written(cluster_without_us: Cluster) -> None:
    node = {"metadata": {"name": "n1"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    cluster_without_us.create("/api/v1/nodes", node)
    lease = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}}
    cluster_without_us.create(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease
    )
    labels = {"app": "web"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": manifest("x")["spec"]},
    }
    path = f"/apis/apps/v1/namespaces/{OTHERS}/deployments"
    cluster_without_us.create(path, {"metadata": {"name": "web"}, "spec": spec})


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("gpudepartments", {}), ("gpunodepools", {"nodeSelector": {"a": "b"}}), ("gputopologies", {})],
)
def test_our_own_kinds_can_be_written(cluster_without_us: Cluster, kind: str, spec: Body) -> None:
    name = {
        "gpudepartments": "GpuDepartment",
        "gpunodepools": "GpuNodePool",
        "gputopologies": "GpuTopology",
    }[kind]
    body = {"apiVersion": "ballast.dev/v1alpha1", "kind": name, "metadata": {"name": "new"}}
    cluster_without_us.create(f"/apis/ballast.dev/v1alpha1/{kind}", body | {"spec": spec})


def test_cluster_that_was_stopped_whole_comes_back(cluster_without_us: Cluster) -> None:
    plane = cluster_without_us.api.control_plane
    for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
        plane.kill(name)
    for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
        plane.restart(name)
    # First our own pods: nothing of ours runs that could let them in.
    own = manifest("own", {}, securityContext=RESTRICTED)
    own["spec"]["containers"][0]["securityContext"] = HARDENED
    wait_for(lambda: _is_made(cluster_without_us, own), SEEN_S, "a pod of ours after the restart")
    assert NO_WEBHOOK in cluster_without_us.refusal(manifest("early", HALF))
    # Then they run, with a certificate that the API server does not know yet.
    before = _bundle(plane)
    cluster_without_us.webhooks.start()
    wait_for(lambda: _is_gated(cluster_without_us), SEEN_S, "a pod of the project, gated")
    assert _bundle(plane) != before
    wait_for(lambda: _bundle(plane, VALIDATIONS) == _bundle(plane), SEEN_S, "the same CA for both")


def _is_made(cluster: Cluster, body: Body) -> bool:
    with contextlib.suppress(ApiRefusedError, OSError):
        return bool(cluster.create_pod(body, SYSTEM_NAMESPACE))
    return False


def _is_gated(cluster: Cluster) -> bool:
    with contextlib.suppress(ApiRefusedError):
        return "schedulingGates" in cluster.create_pod(manifest("late", HALF))["spec"]
    return False


def _bundle(plane: ControlPlane, path: str = CONFIGURATIONS) -> bytes:
    found = plane.admin.get(f"{path}/ballast-webhooks")
    return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])
