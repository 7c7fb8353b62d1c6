"""One project on a few nodes with its scheduler, for tests of the manifests."""

import json
from typing import Any

from tests.support import workloads
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process

SEEN_S = 90.0
GRACE_S = 5.0
ACCOUNT = "system:serviceaccount:ballast-system:ballast-scheduler"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:ballast-system")


def add_project(cluster: Cluster, quota: int) -> None:
    """GpuDepartment `research` with project `vision`, which is the test's namespace."""
    admin = cluster.control_plane.admin
    admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", quota))
    body = workloads.project("vision", "research", cluster.namespace, quota)
    admin.post(f"{workloads.API}/gpuprojects", body)


def submit(cluster: Cluster, name: str, n_pods: int, milli: int) -> None:
    """A Job as the webhook leaves it."""
    labels = {"ballast.dev/project": "vision"}
    body = workloads.job(name, cluster.namespace, n_pods, milli, labels=labels)
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
    cluster.control_plane.admin.post(path, body)


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    """The pods of the test's namespace that are not on their way out."""
    found = cluster.control_plane.admin.get(f"/api/v1/namespaces/{cluster.namespace}/pods")
    return [each for each in found["items"] if "deletionTimestamp" not in each["metadata"]]


def uids(cluster: Cluster, *, are_bound: bool) -> set[str]:
    """UIDs of the pods that have a node, or of those that have none."""
    return {
        each["metadata"]["uid"]
        for each in pods(cluster)
        if bool(each["spec"].get("nodeName")) == are_bound
    }


def wait_bound(cluster: Cluster, n_pods: int) -> None:
    """Until so many of the pods have a node."""
    wait_for(
        lambda: len(uids(cluster, are_bound=True)) == n_pods,
        SEEN_S,
        f"{n_pods} bound pods in {cluster.namespace}",
    )


class OwnScheduler:
    """kube-scheduler under our own account, with a configuration of which only addresses change."""

    def __init__(self, plane: ControlPlane, config: dict[str, Any], extender_url: str) -> None:
        kubeconfig = plane.kubeconfig_for(ACCOUNT, GROUPS)
        config["clientConnection"]["kubeconfig"] = kubeconfig
        config["extenders"][0]["urlPrefix"] = extender_url
        target = plane.work / "own-scheduler.json"
        target.write_text(json.dumps(config))
        self._port = free_port()
        argv = [
            plane.program("kube-scheduler"),
            f"--config={target}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._port}",
        ]
        self._process = Process("own-scheduler", argv, plane.logs / "own-scheduler.log")

    def __enter__(self) -> "OwnScheduler":
        self._process.start()
        self._process.wait_until(lambda: is_healthy(self._port, "/readyz"), SEEN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end(GRACE_S)
