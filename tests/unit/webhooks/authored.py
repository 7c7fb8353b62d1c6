"""Jobs and apps as their authors create them, and what the webhook answers."""

import copy
import json
from typing import Any

import jsonpatch

from tests.support.admission import Document, usual_index
from webhooks.jobs import decide_job
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, read

GPU = {"limits": {"nvidia.com/gpu": "1"}}


def template(restart: str = "Never", resources: Document | None = None) -> Document:
    """A template of pods with one GPU each."""
    container = {"name": "main", "image": "i", "resources": GPU if resources is None else resources}
    spec: Document = {"containers": [container], "schedulerName": "default-scheduler"}
    return {"metadata": {}, "spec": spec | ({"restartPolicy": restart} if restart else {})}


def job(restart: str = "Never", resources: Document | None = None, **spec: Any) -> Document:
    """A Job as the API server sends it, with the defaults that it has filled in."""
    usual = {"backoffLimit": 6, "podReplacementPolicy": "TerminatingOrFailed"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": usual | {"template": template(restart, resources)} | spec,
    }


def decision_on(document: Document, index: ProjectIndex | None = None, **more: Any) -> Decision:
    version = document.get("apiVersion", "v1").rpartition("/")[2]
    request = {
        "uid": "u",
        "kind": {"group": "batch", "version": version, "kind": document["kind"]},
        "name": document["metadata"].get("name", ""),
        "namespace": "team-a",
        "operation": "CREATE",
        "object": document,
    }
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request | more,
    }
    decision = decide_job(read(json.dumps(review).encode()), index or usual_index())
    assert decision.is_allowed
    return decision


def stored(document: Document) -> Document:
    """The object after the decision's patch, applied by a library that is not ours."""
    decision = decision_on(document)
    after: Document = jsonpatch.apply_patch(copy.deepcopy(document), list(decision.ops))
    return after


def warnings(document: Document) -> str:
    return "\n".join(decision_on(document).warnings)


DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 3600}


def ray_job(**spec: Any) -> Document:
    worker = {"groupName": "gpu", "template": template("")}
    head = {"template": template("", resources={})}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [worker]}
    return {
        "kind": "RayJob",
        "metadata": {"name": "tune"},
        "spec": {"rayClusterSpec": cluster} | spec,
    }


#: Kind of the training operator -> the field with its replicas.
REPLICAS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
}


def replicated(
    kind: str, restart: str, role: str = "Worker", labels: Document | None = None, **spec: Any
) -> Document:
    """A job of the training operator; without `restart` the operator decides."""
    made = template("") | {"metadata": {"labels": labels or {}}}
    replica = {"replicas": 2, "template": made} | ({"restartPolicy": restart} if restart else {})
    return {
        "kind": kind,
        "metadata": {"name": "bert"},
        "spec": {REPLICAS[kind]: {role: replica}} | spec,
    }


def pytorch_job(restart: str, policy: Document | None = None) -> Document:
    return replicated("PyTorchJob", restart, runPolicy=policy or {})


def mpi_job(policy: Document, gpus: Document | None = None, **spec: Any) -> Document:
    """Workers with GPUs, and a launcher with these."""
    replicas = {
        "Launcher": {"template": template("", resources=gpus or {})},
        "Worker": {"template": template("")},
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "hpc"},
        "spec": {"runPolicy": policy, "mpiReplicaSpecs": replicas} | spec,
    }


def app(kind: str = "Deployment", resources: Document | None = None) -> Document:
    """A Deployment or StatefulSet of pods with one GPU each."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {"replicas": 2, "template": template("Always", resources)},
    }
