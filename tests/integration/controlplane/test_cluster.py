"""kube-scheduler and kwok: pods are placed, run, end and are removed."""

import json

import pytest

from tests.support.controlplane.handles import Cluster, wait_for

WITHIN_S = 90.0


def _pod(name: str, annotations: dict[str, str] | None = None, gpus: int = 1) -> str:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "example.invalid/none", "resources": {"limits": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container]},
    }
    return json.dumps(pod)


def _phase(cluster: Cluster, name: str) -> str:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"
    phase: str = cluster.control_plane.admin.get(path)["status"]["phase"]
    return phase


def _create(cluster: Cluster, manifest: str) -> None:
    cluster.kubectl("create", f"-n{cluster.namespace}", "-f", "-", stdin=manifest)


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_pod_with_a_gpu_runs_on_a_simulated_node(cluster: Cluster) -> None:
    names = cluster.add_gpu_nodes(2, gpus=1)
    _create(cluster, _pod("one"))
    wait_for(lambda: _phase(cluster, "one") == "Running", WITHIN_S, "pod running")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/one"
    assert cluster.control_plane.admin.get(path)["spec"]["nodeName"] in names


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_pod_with_run_seconds_succeeds_by_itself(cluster: Cluster) -> None:
    cluster.add_gpu_nodes(1)
    _create(cluster, _pod("short", {"simulation.ballast.dev/run-seconds": "1"}))
    wait_for(lambda: _phase(cluster, "short") == "Succeeded", WITHIN_S, "pod done")


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_pod_that_succeeded_has_succeeded_until_it_is_gone(cluster: Cluster) -> None:
    cluster.add_gpu_nodes(1)
    manifest = json.loads(_pod("done", {"simulation.ballast.dev/run-seconds": "1"}))
    manifest["metadata"]["finalizers"] = ["example.com/look-at-me"]
    _create(cluster, json.dumps(manifest))
    wait_for(lambda: _phase(cluster, "done") == "Succeeded", WITHIN_S, "pod done")
    cluster.kubectl("delete", "pod", "done", f"-n{cluster.namespace}", "--wait=false")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/done"

    def is_stopped() -> bool:
        pod = cluster.control_plane.admin.get(path)
        return bool(pod["metadata"]["deletionGracePeriodSeconds"] == 0)

    wait_for(is_stopped, WITHIN_S, "pod stopped")
    assert _phase(cluster, "done") == "Succeeded"
    no_finalizers = '{"metadata": {"finalizers": null}}'
    cluster.kubectl("patch", "pod", "done", f"-n{cluster.namespace}", "-p", no_finalizers)


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_deleted_pod_goes_away(cluster: Cluster) -> None:
    cluster.add_gpu_nodes(1)
    _create(cluster, _pod("gone"))
    wait_for(lambda: _phase(cluster, "gone") == "Running", WITHIN_S, "pod running")
    cluster.kubectl("delete", "pod", "gone", f"-n{cluster.namespace}", f"--timeout={WITHIN_S:.0f}s")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    assert cluster.control_plane.admin.get(path)["items"] == []


@pytest.mark.parametrize("cluster", [None], indirect=True)
def test_killed_scheduler_places_what_waited_when_it_is_back(cluster: Cluster) -> None:
    cluster.add_gpu_nodes(1)
    cluster.control_plane.kill("kube-scheduler")
    _create(cluster, _pod("waits"))
    assert _phase(cluster, "waits") == "Pending"
    cluster.control_plane.restart("kube-scheduler")
    wait_for(lambda: _phase(cluster, "waits") == "Running", WITHIN_S, "pod running")


def test_shipped_configuration_starts_the_scheduler(cluster: Cluster) -> None:
    assert cluster.control_plane.is_running("kube-scheduler")
    if cluster.scheduler_config is not None:
        running = json.loads((cluster.control_plane.work / "scheduler.json").read_text())
        assert running["profiles"][0]["schedulerName"] == "ballast-scheduler"
