"""Bodies of the objects that these tests create."""

from typing import Any


def pod(name: str, **meta: Any) -> dict[str, Any]:
    """A pod that nothing will ever schedule or run."""
    return {
        "metadata": {"name": name, **meta},
        "spec": {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "example.invalid/none"}],
        },
    }


def loud_pod(name: str) -> dict[str, Any]:
    """A pod of 1.4 MB in etcd and 8.4 MB as JSON, where `<` is written as six bytes."""
    body = pod(name)
    [container] = body["spec"]["containers"]
    container["env"] = [{"name": f"V{i}", "value": "<" * 100_000} for i in range(14)]
    return body


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def pool(name: str, **labels: str) -> dict[str, Any]:
    """A GpuNodePool: small, cluster-scoped, ours."""
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeSelector": {}}}


def disruption_budget(name: str, app: str, max_unavailable: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {
            "maxUnavailable": max_unavailable,
            "selector": {"matchLabels": {"app": app}},
        },
    }
