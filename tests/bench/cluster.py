"""The objects of a benchmark: large clusters, written directly to etcd, and pods to place."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.nodes import GpuNodes
from tests.support.controlplane.store import now

CARDS = 12
CARD_MIB = 81920
#: Milli-GPU of the pods of a burst, in turn.
FRACTIONS = (250, 500, 750, 1000)
SCHEDULER = "ballast-scheduler"
GATE = "ballast.dev/admission"
OWNER = "owner"
OWNER_KIND = "ReplicationController"
ROLE = "bench.ballast.dev/role"


def seed_nodes(
    plane: ControlPlane,
    count: int,
    cards: int = CARDS,
    prefix: str = "gpu-node",
) -> list[str]:
    """Ready nodes that kwok keeps alive, written directly to etcd.

    All have the label `ROLE` with their prefix as its value.
    """
    nodes = GpuNodes(count, gpus=cards, memory_mib=CARD_MIB, prefix=prefix, labels={ROLE: prefix})
    manifests = nodes.ready_manifests(now())
    for manifest in manifests:
        for figures in (manifest["status"]["capacity"], manifest["status"]["allocatable"]):
            figures["ballast.dev/gpu-milli"] = str(1000 * cards)
    plane.store.put("minions", manifests)
    return nodes.names()


def seed_ledgers(
    plane: ControlPlane,
    nodes: Sequence[str],
    pods_a_node: int = 0,
    namespace: str = "",
    *,
    milli: int = 500,
    project: str = "bench",
    cards: int = CARDS,
) -> None:
    """GpuNodes for `nodes`; on each, `pods_a_node` bound pods of `milli` and their rows."""
    ledgers: list[dict[str, Any]] = []
    pods: list[dict[str, Any]] = []
    for node in nodes:
        rows = []
        for number in range(pods_a_node):
            gpu = {"ballast.dev/gpu-milli": str(milli)}
            made = running_pod(f"{node}-{number}", namespace, node, gpu)
            made["spec"] |= {"schedulerName": SCHEDULER, "priority": 50}
            pods.append(made)
            rows.append(row(made, [number * milli // 1000], milli, project))
        ledgers.append(ledger(node, rows, cards))
    plane.store.put("ballast.dev/gpunodes", ledgers)
    plane.store.put("pods", pods)


def make_owner(plane: ControlPlane, namespace: str) -> str:
    """The UID of an object that serves as the controller of the namespace's pods.

    Ballast does not group pods by this kind of controller, and the control plane does not run it.
    """
    labels = {"app": "bench"}
    template = {"metadata": {"labels": labels}, "spec": pod("", "", {})["spec"]}
    body = {
        "apiVersion": "v1",
        "kind": OWNER_KIND,
        "metadata": {"name": OWNER},
        "spec": {"replicas": 0, "selector": labels, "template": template},
    }
    made = plane.admin.post(f"/api/v1/namespaces/{namespace}/replicationcontrollers", body)
    return str(made["metadata"]["uid"])


def gated_pod(name: str, namespace: str, milli: int, owner: str) -> dict[str, Any]:
    """A pod as after admission; `owner` is from `make_owner`."""
    resources = {"cpu": "100m", "memory": "128Mi", "ballast.dev/gpu-milli": str(milli)}
    made = _owned_pod(name, namespace, resources, owner)
    hold(made)
    return made


def hold(pod: dict[str, Any]) -> None:
    """Change a pod as the webhook does: gated, and in the project of its namespace."""
    pod["metadata"]["labels"] |= {"ballast.dev/project": pod["metadata"]["namespace"]}
    pod["spec"] |= {"schedulerName": SCHEDULER, "schedulingGates": [{"name": GATE}]}


def user_pod(name: str, namespace: str, milli: int, owner: str) -> dict[str, Any]:
    """A pod of a GPU, or of a part of one, as users write it; `owner` is from `make_owner`."""
    if milli == 1000:
        return whole_pod(name, namespace, owner)
    made = _owned_pod(name, namespace, {"cpu": "100m", "memory": "128Mi"}, owner)
    made["metadata"]["annotations"] = {"gpu-fraction": f"{milli / 1000}"}
    return made


def whole_pod(name: str, namespace: str, owner: str) -> dict[str, Any]:
    """A pod of one whole GPU as users write it; `owner` is from `make_owner`."""
    resources = {"cpu": "100m", "memory": "128Mi", "nvidia.com/gpu": "1"}
    return _owned_pod(name, namespace, resources, owner)


def _owned_pod(name: str, namespace: str, resources: dict[str, str], owner: str) -> dict[str, Any]:
    made = pod(name, namespace, resources)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": OWNER_KIND, "name": OWNER, "uid": owner, "controller": True}
    ]
    return made


def pod(name: str, namespace: str, resources: dict[str, str]) -> dict[str, Any]:
    """A pod of one container that terminates at once."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": "bench"},
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "bench",
                    "resources": {"requests": resources, "limits": resources},
                }
            ],
            "terminationGracePeriodSeconds": 0,
        },
    }


def running_pod(name: str, namespace: str, node: str, gpu: dict[str, str]) -> dict[str, Any]:
    """A running pod as stored; `gpu` is the resource that it requests."""
    made = pod(name, namespace, {"cpu": "100m"} | gpu)
    made["metadata"] |= {"uid": str(uuid.uuid4())}
    made["spec"] |= {
        "nodeName": node,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
    }
    made["status"] = {
        "phase": "Running",
        "startTime": now(),
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now()}],
    }
    return made


def department() -> dict[str, Any]:
    """The department of a benchmark, with quota for all pods."""
    pools = [{"name": "default", "gpu": {"quota": 100000}}]
    return _queue("GpuDepartment", "bench", {"nodePools": pools})


def project(namespace: str, quota: int = 100_000) -> dict[str, Any]:
    """The project of a namespace, with the same name."""
    pools = [{"name": "default", "gpu": {"quota": quota}}]
    spec = {"department": "bench", "namespaces": [namespace], "nodePools": pools}
    return _queue("GpuProject", namespace, spec)


def _queue(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def row(pod: dict[str, Any], cards: Iterable[int], milli: int, project: str) -> dict[str, Any]:
    """The row of a bound pod with `milli` of each of these cards."""
    share = {"milli": milli, "memoryMiB": CARD_MIB * milli // 1000}
    meta = pod["metadata"]
    return {
        "uid": meta["uid"],
        "namespace": meta["namespace"],
        "name": meta["name"],
        "project": project,
        "cards": [{"index": card, **share} for card in cards],
        "state": "bound",
        "epoch": 1,
    }


def ledger(node: str, rows: list[dict[str, Any]], cards: int) -> dict[str, Any]:
    """The GpuNode of a node with healthy cards and these rows."""
    devices = [
        {"index": index, "memoryMiB": CARD_MIB, "model": "A100", "health": "Healthy"}
        for index in range(cards)
    ]
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuNode",
        # With its node pool, as after the controller's first cycle.
        "metadata": {"name": node, "generation": 1, "labels": {"ballast.dev/node-pool": "default"}},
        "spec": {"rows": rows},
        "status": {"devices": devices},
    }
