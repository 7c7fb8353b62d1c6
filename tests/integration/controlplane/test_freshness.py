"""Every test gets an empty API server, whatever the previous one left."""

import json

from tests.conftest import fresh_namespace
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api
from tests.support.controlplane.nodes import GpuNodes


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


def test_watch_that_breaks_during_a_reset_misses_nothing(api: Api) -> None:
    plane = api.control_plane
    path = f"/api/v1/namespaces/{api.namespace}/pods"
    plane.admin.post_all(path, [_pod(f"pod-{number}") for number in range(20)])
    revision = plane.admin.get(path)["metadata"]["resourceVersion"]
    plane.reset()

    def deleted_since(revision: str) -> list[tuple[str, str]]:
        """Names of deleted pods and the revisions of their deletion, as a watch tells them."""
        request = f"{path}?watch=1&resourceVersion={revision}&timeoutSeconds=1"
        events = [json.loads(line) for line in api.kubectl("get", "--raw", request).splitlines()]
        deleted = [event["object"]["metadata"] for event in events if event["type"] == "DELETED"]
        return [(each["name"], each["resourceVersion"]) for each in deleted]

    before = deleted_since(revision)[:5]
    after = deleted_since(before[-1][1])
    assert {name for name, _ in before + after} == {f"pod-{number}" for number in range(20)}


def test_seeded_nodes_are_nodes_like_any_others(api: Api) -> None:
    plane = api.control_plane
    plane.store.put("minions", GpuNodes(3, gpus=4).ready_manifests("2026-01-01T00:00:00Z"))
    api.kubectl("label", "node", "gpu-node-0001", "pool=a")
    nodes = json.loads(api.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [each["status"]["allocatable"]["nvidia.com/gpu"] for each in nodes] == ["4", "4", "4"]
    assert len({each["metadata"]["uid"] for each in nodes}) == 3


def test_each_seeded_object_has_a_revision_of_its_own(api: Api) -> None:
    plane = api.control_plane
    made = [{"name": f"map-{number}", "namespace": api.namespace} for number in range(3)]
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": each} for each in made]
    plane.store.put("configmaps", maps)
    stored = plane.admin.get(f"/api/v1/namespaces/{api.namespace}/configmaps")["items"]
    assert len({each["metadata"]["resourceVersion"] for each in stored}) == len(stored)
