"""PersistentVolumeClaims of team-a, and pods that use them."""

import json
from typing import Any, Final

from tests.integration.cycle.two_projects import Scene

CLAIMS: Final = "/api/v1/namespaces/team-a/persistentvolumeclaims"
#: What the volume controller writes on a claim that has its volume.
BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}


def bind_claim(scene: Scene, name: str, to: str) -> None:
    """A claim of team-a that is bound to a volume, as the volume controller leaves it."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": to,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"metadata": {"name": name, "annotations": BOUND}, "spec": spec}
    scene.admin.post(CLAIMS, body)
    _patch(scene, name, {"status": {"phase": "Bound"}}, "--subresource=status")


def bind_open_claim(scene: Scene, name: str, to: str) -> None:
    """Bind an open claim of team-a to a volume, as a provisioner and the volume controller do."""
    _patch(scene, name, {"metadata": {"annotations": BOUND}, "spec": {"volumeName": to}})
    _patch(scene, name, {"status": {"phase": "Bound"}}, "--subresource=status")


def selected_node(scene: Scene, name: str) -> str:
    """The node that kube-scheduler has chosen for the volume of a claim of team-a; may be empty."""
    notes = scene.admin.get(f"{CLAIMS}/{name}")["metadata"].get("annotations") or {}
    return str(notes.get("volume.kubernetes.io/selected-node", ""))


def open_claim(scene: Scene, name: str, storage_class: str) -> None:
    """A claim of team-a without a volume."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    scene.admin.post(CLAIMS, {"metadata": {"name": name}, "spec": spec})


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


def _patch(scene: Scene, name: str, change: dict[str, Any], *flags: str) -> None:
    words = "patch", "pvc", name, "-n", "team-a", "--type=merge", "-p", json.dumps(change)
    scene.cluster.kubectl(*words, *flags)
