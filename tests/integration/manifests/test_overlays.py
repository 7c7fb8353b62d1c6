"""Every overlay on a real API server: accepted without a warning, and its pods admitted."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from extender.api.names import SYSTEM_NAMESPACE
from tests.support.controlplane.handles import Api, Cluster, apply_crds, wait_for
from tests.support.controlplane.nodes import GpuNodes
from tests.support.overlays import MANIFESTS, WHOLE, name_of, of_kind, rendered

pytestmark = pytest.mark.controlplane

ADMITTED_S = 30.0


@pytest.mark.parametrize("overlay", WHOLE)
def test_overlay_is_applied_and_its_pods_are_admitted(
    api: Api, foreign_kinds: Path, overlay: str
) -> None:
    if overlay == "cert-manager":
        apply_crds(api.control_plane, foreign_kinds)
    _apply(api, MANIFESTS / "overlays" / overlay)
    wanted = {
        name_of(each): each["spec"]["replicas"] for each in of_kind(rendered(overlay), "Deployment")
    }
    # Pod Security refuses pods and not Deployments, so pods have to be there.
    wait_for(lambda: _pods(api) == wanted, ADMITTED_S, f"{wanted} pods; last {_pods(api)}")


def test_monitoring_is_understood_beside_another_overlay(api: Api, foreign_kinds: Path) -> None:
    apply_crds(api.control_plane, foreign_kinds)
    _apply(api, MANIFESTS / "overlays" / "monitoring", "--dry-run=server")


def _apply(api: Api, folder: Path, *options: str) -> None:
    api.kubectl("apply", "--server-side", "--warnings-as-errors", *options, f"-k{folder}")


def _pods(api: Api) -> dict[str, int]:
    """Name of each Deployment and how many pods were made for it."""
    found = json.loads(api.kubectl("get", "pods", f"-n{SYSTEM_NAMESPACE}", "-o", "json"))
    counted: dict[str, int] = {}
    for pod in found["items"]:
        name = f"ballast-{pod['metadata']['labels']['app.kubernetes.io/component']}"
        counted[name] = counted.get(name, 0) + 1
    return counted


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_replicas_of_high_availability_are_on_different_nodes(cluster: Cluster) -> None:
    cluster.add_gpu_nodes(3, 0)
    _apply(cluster, MANIFESTS / "overlays" / "high-availability")

    def places() -> list[tuple[str, str]]:
        found = cluster.control_plane.admin.get(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods")
        component = "app.kubernetes.io/component"
        return [
            (each["metadata"]["labels"][component], each["spec"]["nodeName"])
            for each in found["items"]
            if each["spec"].get("nodeName")
        ]

    wait_for(lambda: len(places()) == 2 + 2 + 3, ADMITTED_S, "a node for each replica")
    assert len(set(places())) == 2 + 2 + 3


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_our_own_pods_keep_off_gpu_nodes(cluster: Cluster) -> None:
    """One node without GPUs, and it has the taint of a control plane."""
    labels = {"nvidia.com/gpu.present": "true"}
    cluster.add_nodes(GpuNodes(2, prefix="gpu", labels=labels))
    cluster.add_nodes(GpuNodes(1, gpus=0, prefix="plain"))
    taint = "node-role.kubernetes.io/control-plane:NoSchedule"
    cluster.kubectl("taint", "node", "plain-0000", taint)
    _apply(cluster, MANIFESTS / "overlays" / "without-gpu-shim")

    def nodes() -> list[str]:
        found = cluster.control_plane.admin.get(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods")
        return [each["spec"].get("nodeName", "") for each in found["items"]]

    wait_for(lambda: nodes() == ["plain-0000"] * 4, ADMITTED_S, "all pods on the plain node")


def test_requests_of_our_accounts_have_a_priority_level_of_their_own(api: Api) -> None:
    _apply(api, MANIFESTS / "base" / "rbac")
    _apply(api, MANIFESTS / "base" / "flow-control")
    kubeconfig = api.control_plane.kubeconfig_for_service_account(
        SYSTEM_NAMESPACE, "ballast-control"
    )
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/ballast-control"

    document = json.loads(Path(kubeconfig).read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)

    def schema_of(path: str) -> str:
        headers = {"Authorization": f"Bearer {user['token']}"}
        asked = urllib.request.Request(cluster["server"] + path, headers=headers)
        try:
            with urllib.request.urlopen(asked, context=tls) as answer:
                uid = answer.headers["X-Kubernetes-PF-FlowSchema-UID"]
        except urllib.error.HTTPError as error:
            uid = error.headers["X-Kubernetes-PF-FlowSchema-UID"]
        schemas = api.control_plane.admin.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas")
        names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in schemas["items"]}
        return str(names[uid])

    wanted = {lease: "ballast-leader-election", "/api/v1/pods": "ballast"}
    wait_for(lambda: {path: schema_of(path) for path in wanted} == wanted, ADMITTED_S, f"{wanted}")
