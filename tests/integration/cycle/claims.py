"""PersistentVolumeClaims of team-a, and pods that use them."""

from typing import Any

from tests.integration.cycle.two_projects import Scene


def bind_claim(scene: Scene, name: str, to: str) -> None:
    """A claim of team-a that is bound to a volume, as the volume controller leaves it."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": to,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    notes = {"pv.kubernetes.io/bind-completed": "yes"}
    body = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    scene.admin.post("/api/v1/namespaces/team-a/persistentvolumeclaims", body)
    said = '{"status": {"phase": "Bound"}}'
    scene.cluster.kubectl(
        "patch", "pvc", name, "-n", "team-a", "--subresource=status", "--type=merge", "-p", said
    )


def open_claim(scene: Scene, name: str, storage_class: str) -> None:
    """A claim of team-a without a volume."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"metadata": {"name": name}, "spec": spec}
    scene.admin.post("/api/v1/namespaces/team-a/persistentvolumeclaims", body)


def volume(name: str, *nodes: str) -> dict[str, Any]:
    """A volume that can be reached from these nodes only."""
    at = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [at]}]}},
        },
    }


def with_claim(body: dict[str, Any], name: str) -> dict[str, Any]:
    spec = body["spec"]["template"]["spec"] if "template" in body["spec"] else body["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return body
