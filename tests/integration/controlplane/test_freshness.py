"""Every test gets an empty API server, quickly, whatever the one before left behind."""

import json
import time

from tests.conftest import fresh_namespace
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api
from tests.support.controlplane.nodes import GpuNodes

FRESH_WITHIN_S = 1.0


def _pod(name: str, finalizer: str = "") -> dict[str, object]:
    metadata = {"name": name, "finalizers": [finalizer] if finalizer else []}
    spec = {"containers": [{"name": "main", "image": "example.invalid/none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _names(plane: ControlPlane, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in plane.admin.get(path)["items"]]


def _fill(plane: ControlPlane, namespace: str) -> None:
    pods = [_pod(f"pod-{number}", "example.com/held") for number in range(50)]
    plane.admin.post_all(f"/api/v1/namespaces/{namespace}/pods", pods)
    plane.store.put("minions", GpuNodes(500).ready_manifests("2026-01-01T00:00:00Z"))


def test_fresh_api_server_takes_less_than_a_second(api: Api) -> None:
    plane = api.control_plane
    took_s = []
    for _ in range(3):
        _fill(plane, api.namespace)
        started = time.monotonic()
        api.namespace = fresh_namespace(plane)
        took_s.append(time.monotonic() - started)
    print(f"fresh API server: {', '.join(f'{each * 1000:.0f} ms' for each in took_s)}")
    assert sorted(took_s)[1] < FRESH_WITHIN_S


def test_what_a_test_leaves_behind_is_gone_at_once(api: Api) -> None:
    plane = api.control_plane
    _fill(plane, api.namespace)
    fresh = fresh_namespace(plane)
    assert _names(plane, "/api/v1/pods") == []
    assert _names(plane, "/api/v1/nodes") == []
    assert api.namespace not in _names(plane, "/api/v1/namespaces")
    assert fresh in _names(plane, "/api/v1/namespaces")


def test_object_of_the_baseline_is_restored_when_a_test_changed_it(api: Api) -> None:
    api.kubectl("label", "namespace", "default", "left=behind")
    api.kubectl("delete", "clusterrole", "view")
    fresh_namespace(api.control_plane)
    labels = json.loads(api.kubectl("get", "namespace", "default", "-o", "json"))["metadata"][
        "labels"
    ]
    assert "left" not in labels
    assert api.kubectl("get", "clusterrole", "view", "-o", "name").startswith("clusterrole")


def test_watcher_is_told_that_the_objects_are_gone(api: Api) -> None:
    plane = api.control_plane
    path = f"/api/v1/namespaces/{api.namespace}/pods"
    plane.admin.post(path, _pod("watched"))
    revision = plane.admin.get(path)["metadata"]["resourceVersion"]
    plane.reset()
    events = api.kubectl(
        "get", "--raw", f"{path}?watch=1&resourceVersion={revision}&timeoutSeconds=1"
    )
    first = json.loads(events.splitlines()[0])
    assert (first["type"], first["object"]["metadata"]["name"]) == ("DELETED", "watched")


def test_seeded_nodes_are_nodes_like_any_others(api: Api) -> None:
    plane = api.control_plane
    plane.store.put("minions", GpuNodes(3, gpus=4).ready_manifests("2026-01-01T00:00:00Z"))
    api.kubectl("label", "node", "gpu-node-0001", "pool=a")
    nodes = json.loads(api.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [each["status"]["allocatable"]["nvidia.com/gpu"] for each in nodes] == ["4", "4", "4"]
    assert len({each["metadata"]["uid"] for each in nodes}) == 3
