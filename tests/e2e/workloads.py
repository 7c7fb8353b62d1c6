"""What users apply in the stories: annotations and labels, and nothing of ours besides."""

from typing import Any

Manifest = dict[str, Any]
API = "ballast.dev/v1alpha1"
#: Namespaces of the stories, each that of a project of its name. The suite deletes them, so they
#: must not be used by any other.
VISION = "ballast-e2e-vision"
LANGUAGE = "ballast-e2e-language"
SHARED = "ballast-e2e-shared"
LEFT = "ballast-e2e-left"
NAMESPACES = (VISION, LANGUAGE, SHARED, LEFT)
DEPARTMENT = "ballast-e2e"
#: Runs for an hour and goes within a second when it is told to.
SLEEP = ["python3", "-c", "import time; time.sleep(3600)"]


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def department(name: str, quota: int) -> Manifest:
    pools = [{"name": "default", "gpu": {"quota": quota}}]
    return _object(API, "GpuDepartment", name, {"nodePools": pools})


def project(name: str, department_name: str, quota: int) -> Manifest:
    """A project with one namespace, of the same name."""
    pools = [{"name": "default", "gpu": {"quota": quota}}]
    spec = {"department": department_name, "namespaces": [name], "nodePools": pools}
    return _object(API, "GpuProject", name, spec)


def deployment(name: str, project_name: str, replicas: int, template: Manifest) -> Manifest:
    template["metadata"].setdefault("labels", {})["app"] = name
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return _object("apps/v1", "Deployment", name, spec, project_name)


def job(name: str, project_name: str, n_pods: int, template: Manifest) -> Manifest:
    template["metadata"].setdefault("labels", {})["app"] = name
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "parallelism": n_pods,
        "completions": n_pods,
        "completionMode": "Indexed",
        "backoffLimit": 1000,
        "template": template,
    }
    return _object("batch/v1", "Job", name, spec, project_name)


def pod(name: str, project_name: str, template: Manifest) -> Manifest:
    made = _object("v1", "Pod", name, template["spec"], project_name)
    made["metadata"] |= template["metadata"] | {"name": name}
    return made


def fraction(image: str, share: str, node: str = "") -> Manifest:
    """A pod's template that asks for a share of one GPU, on one node if one is given."""
    template = _template(image, {})
    template["metadata"]["annotations"] = {"gpu-fraction": share}
    if node:
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return template


def claim(name: str, project_name: str) -> Manifest:
    """A claim of the volume that has its name."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
        "volumeName": name,
    }
    made = _object("v1", "PersistentVolumeClaim", name, spec, project_name)
    # This is all that a controller of volumes would add; there may be none.
    made["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return made


def volume(name: str, path: str, claimed: Manifest) -> Manifest:
    """A folder of the node, for the claim as it was made."""
    about = claimed["metadata"]
    spec = {
        "accessModes": claimed["spec"]["accessModes"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {key: about[key] for key in ("namespace", "name", "uid")},
        "hostPath": {"path": path},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return _object("v1", "PersistentVolume", name, spec)


def whole(image: str, n_gpus: int, **labels: str) -> Manifest:
    """A pod's template that asks for whole GPUs; labels of ours by their last part."""
    template = _template(image, {"limits": {"nvidia.com/gpu": n_gpus}})
    named = {f"ballast.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    template["metadata"]["labels"] = named
    return template


def plain(image: str) -> Manifest:
    """A pod's template that has nothing to do with GPUs."""
    return _template(image, {})


def _template(image: str, resources: Manifest) -> Manifest:
    container = {"name": "main", "image": image, "command": SLEEP, "resources": resources}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {}, "spec": spec}


def _object(api: str, kind: str, name: str, spec: Manifest, where: str = "") -> Manifest:
    metadata = {"name": name} | ({"namespace": where} if where else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
