"""Uninstalling exactly as in docs/install.md, with running and pending pods."""

import base64
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.manifests.one_project import SEEN_S, add_project, pods, uids
from tests.support import workloads
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.controlplane.ports import LOOPBACK
from tests.support.installation import ROOT, Installation, Program
from tests.support.webhook_config import is_admitting

pytestmark = pytest.mark.controlplane

OVERLAYS = ROOT / "manifests" / "overlays"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VIEW = "v1alpha1.view.ballast.dev"
GUIDE = ROOT / "docs" / "install.md"


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path) -> Iterator[Program]:
    """The overlay applied, its programs running beside it; one node of two cards. The API of
    `view` is there and nothing answers for it."""
    plane = cluster.control_plane
    for overlay in ("crds", "default", "view"):
        cluster.kubectl("apply", "--server-side", f"-k{OVERLAYS / overlay}")
    add_project(cluster, 2)
    cluster.add_gpu_nodes(1, 2)
    installation = Installation(plane)
    webhooks = installation.webhooks(tmp_path)
    try:
        webhooks.start()
        _point_at(cluster, webhooks.port, (tmp_path / "ca.crt").read_bytes())
        installation.start()
        yield webhooks
    finally:
        installation.stop()
        webhooks.kill()
        cluster.kubectl("delete", "apiservice", VIEW, "--ignore-not-found")
        _restore(cluster)


def test_cluster_goes_on_as_if_ballast_had_never_been(cluster: Cluster, programs: Program) -> None:
    _submit(cluster, "Deployment", "served", 5)
    _submit(cluster, "Job", "trained", 2)
    wait_for(lambda: len(uids(cluster, are_bound=True)) == 4, SEEN_S, "two full cards")
    wait_for(lambda: len(pods(cluster)) == 7, SEEN_S, "three pods that wait")
    running, waiting = uids(cluster, are_bound=True), uids(cluster, are_bound=False)

    _follow(cluster, "beside")
    _follow(cluster, "uninstall")
    programs.kill()
    _submit(cluster, "Deployment", "new", 1)
    listed = _follow(cluster, "list")
    assert len(listed.splitlines()) == 1 + len(waiting)

    cluster.start_scheduler(None)
    _follow(cluster, "replace")
    wait_for(lambda: len(uids(cluster, are_bound=True)) == 8, SEEN_S, "everything on the node")
    assert running <= uids(cluster, are_bound=True)
    assert not waiting & uids(cluster, are_bound=True)
    left = cluster.kubectl("get", _kinds(), "-A", "-l", "app.kubernetes.io/part-of=ballast")
    assert left == ""
    assert (_quota(cluster), _rows(cluster)) == (2, running)

    _follow(cluster, "definitions")
    assert cluster.kubectl("get", "crd", "-o", "name") == ""
    assert running <= uids(cluster, are_bound=True)


def _quota(cluster: Cluster) -> int:
    """What the project of the scene may use."""
    project = cluster.control_plane.admin.get(f"{workloads.API}/gpuprojects/vision")
    return int(project["spec"]["nodePools"][0]["gpu"]["quota"])


def _rows(cluster: Cluster) -> set[str]:
    """UIDs of the pods that have a row in the ledger."""
    nodes = cluster.control_plane.admin.get(f"{workloads.API}/gpunodes")["items"]
    return {row["uid"] for node in nodes for row in node["spec"]["rows"]}


def _restore(cluster: Cluster) -> None:
    """Bring our kinds back for the tests that follow, and wait until they are served."""
    plane = cluster.control_plane
    plane.reset()
    kinds = [each["metadata"]["name"].split(".")[0] for each in plane.admin.get(CRDS)["items"]]
    assert len(kinds) >= 6
    wait_for(
        lambda: all(plane.admin.has(f"{workloads.API}/{kind}") for kind in kinds),
        SEEN_S,
        f"served kinds {kinds}",
    )


def _follow(cluster: Cluster, step: str) -> str:
    """Run the command of the guide that is marked as this step; what it printed."""
    found = re.search(rf"<!-- tested: {step} -->\n```\n(.+)\n```", GUIDE.read_text("utf-8"))
    assert found, step
    program, *words = shlex.split(found.group(1))
    assert program == "kubectl"
    at_root = [str(ROOT / word) if word.startswith("manifests/") else word for word in words]
    return cluster.kubectl(*at_root)


def _point_at(cluster: Cluster, port: int, ca: bytes) -> None:
    """Let the API server find the webhooks on this machine: there is no Service network."""
    admin = cluster.control_plane.admin
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        path = f"{REGISTRATION}/{kind}"
        for configuration in admin.get(path)["items"]:
            for webhook in configuration["webhooks"]:
                where = webhook["clientConfig"].pop("service")["path"]
                webhook["clientConfig"] = {
                    "url": f"https://{LOOPBACK}:{port}{where}",
                    "caBundle": base64.b64encode(ca).decode(),
                }
            admin.delete(f"{path}/{configuration['metadata']['name']}")
            fresh = {"name": configuration["metadata"]["name"]}
            labels = configuration["metadata"]["labels"]
            admin.post(path, configuration | {"metadata": fresh | {"labels": labels}})
    wait_for(lambda: is_admitting(admin, cluster.namespace), SEEN_S, "a gate on a pod")


def _submit(cluster: Cluster, kind: str, name: str, n_pods: int) -> None:
    """`n_pods` that ask for half a card each, as a user writes them."""
    group = "apps" if kind == "Deployment" else "batch"
    spec: dict[str, Any] = {"template": _pod_template(kind, name)}
    if kind == "Deployment":
        spec |= {"replicas": n_pods, "selector": {"matchLabels": {"app": name}}}
    else:
        spec |= {"parallelism": n_pods, "completions": n_pods}
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    path = f"/apis/{group}/v1/namespaces/{cluster.namespace}/{kind.lower()}s"
    cluster.control_plane.admin.post(path, body)


def _pod_template(kind: str, name: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": name}, "annotations": {"gpu-fraction": "0.5"}},
        "spec": {
            "restartPolicy": "Always" if kind == "Deployment" else "Never",
            "containers": [{"name": "main", "image": "example"}],
        },
    }


def _kinds() -> str:
    """Everything that an overlay may bring."""
    return (
        "deployments,daemonsets,services,configmaps,serviceaccounts,networkpolicies,"
        "poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings,priorityclasses,"
        "mutatingwebhookconfigurations,validatingwebhookconfigurations,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,namespaces,"
        "apiservices"
    )
