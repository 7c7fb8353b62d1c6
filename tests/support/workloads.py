"""Queues and workloads as users apply them, for tests on a real control plane.

Pods are as after admission (gate, scheduler name, gpu-milli), so tests of the controller do not
depend on the webhooks.
"""

from typing import Any

from extender.api import names

API = "/apis/ballast.dev/v1alpha1"
Manifest = dict[str, Any]


def department(name: str, quota: int | str) -> Manifest:
    """A department with this quota in the default pool."""
    return _queue("GpuDepartment", name, {"nodePools": [_figures(quota, 1)]})


def project(
    name: str, department_name: str, namespace: str, quota: int | str, weight: int = 1
) -> Manifest:
    """A project of one namespace."""
    spec = {
        "department": department_name,
        "namespaces": [namespace],
        "nodePools": [_figures(quota, weight)],
    }
    return _queue("GpuProject", name, spec)


def pod_group(name: str, namespace: str, min_member: int) -> Manifest:
    """A gang."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GpuPodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": min_member},
    }


def job(name: str, namespace: str, n_pods: int, milli: int, **options: Any) -> Manifest:
    """A Job whose pods start together and do not end; evicted pods are created again.

    `options` are those of `pod_template`.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "parallelism": n_pods,
            "completions": n_pods,
            "backoffLimit": 1000,
            "template": pod_template(milli, **options),
        },
    }


def pod_template(
    milli: int,
    *,
    group: str = "",
    gated: bool = True,
    labels: Manifest | None = None,
    annotations: Manifest | None = None,
    stop_s: int = 0,
    priority_class: str = "",
) -> Manifest:
    """A pod that requests `milli` of `ballast.dev/gpu-milli`; unless `gated`, placed directly.

    It takes `stop_s` seconds to stop.
    """
    resources = {"cpu": "100m", "memory": "64Mi", names.GPU_MILLI: str(milli)}
    spec: Manifest = {
        "schedulerName": names.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10 * stop_s,
        "containers": [
            {
                "name": "main",
                "image": "example",
                "resources": {"requests": resources, "limits": resources},
            }
        ],
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    if gated:
        spec["schedulingGates"] = [{"name": names.GATE}]
    grouped = {names.LABEL_POD_GROUP: group} if group else {}
    notes = {"simulation.ballast.dev/stop-seconds": str(stop_s)} if stop_s else {}
    metadata = {"labels": grouped | (labels or {}), "annotations": notes | (annotations or {})}
    return {"metadata": metadata, "spec": spec}


def bare_pod(name: str, namespace: str, milli: int, **options: Any) -> Manifest:
    """A pod without an owner."""
    template = pod_template(milli, **options)
    meta = template["metadata"] | {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def _figures(quota: int | str, weight: int) -> Manifest:
    gpu = {"quota": quota, "overQuotaWeight": weight}
    return {"name": names.DEFAULT_POOL, "gpu": gpu}


def _queue(kind: str, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
