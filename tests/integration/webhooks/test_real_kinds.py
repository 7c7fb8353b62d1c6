"""Objects of other projects' kinds, as their own definitions accept them, and the pods they make.

Their controllers do not run: the pods are made here, with the labels that those write.
"""

from typing import Any

import pytest
import yaml

from tests.integration.webhooks.conftest import Admission
from tests.integration.webhooks.definitions import NotFetchedError, fetch
from tests.integration.webhooks.test_owners import child, create, owner, words
from tests.support.controlplane.handles import wait_for

Document = dict[str, Any]

CONTAINER = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
PODS = {"spec": {"containers": [CONTAINER]}}
KUBEFLOW = "training.kubeflow.org"
ESTABLISHED_S = 90.0


@pytest.fixture(scope="module")
def real_kinds(admission: Admission) -> Admission:
    """The webhooks, in a cluster that has the real definitions."""
    try:
        files = fetch()
    except NotFetchedError as error:
        pytest.skip(f"the definitions of other projects' kinds cannot be had here: {error}")
    admin = admission.api.control_plane.admin
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    for file in files:
        for document in yaml.load_all(file.read_text("utf-8"), Loader=yaml.CSafeLoader):
            document.pop("status", None)
            names.append(document["metadata"]["name"])
            admin.post(where, without_prose(document))

    def are_established() -> bool:
        found = (admin.get(f"{where}/{name}") for name in names)
        return all(
            any(
                c["type"] == "Established" and c["status"] == "True"
                for c in each["status"]["conditions"] or ()
            )
            for each in found
        )

    wait_for(are_established, ESTABLISHED_S, "the definitions")
    # What is in the cluster besides its baseline is deleted by the next test.
    return admission


def without_prose(found: Any) -> Any:
    """The definition without descriptions, which are three quarters of it and check nothing."""
    if isinstance(found, list):
        return [without_prose(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {
        key: without_prose(value)
        for key, value in found.items()
        if not (key == "description" and isinstance(value, str))
    }


def job_set(job: str) -> Document:
    """A JobSet with a leader and workers, as its documentation has it."""
    template = {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": PODS}}
    workers = {"spec": template["spec"] | {"parallelism": 4, "completions": 4}}
    return owner(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        job,
        replicatedJobs=[
            {"name": "leader", "replicas": 1, "template": template},
            {"name": "workers", "replicas": 2, "template": workers},
        ],
    )


def kubeflow(kind: str, field: str, name: str, **more: Any) -> Document:
    """A job of Kubeflow's training operator with a master and three workers."""
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": PODS}
    container = CONTAINER | {"name": kind.removesuffix("Job").lower()}
    replica["template"] = {"spec": {"containers": [container]}}
    return owner(
        "kubeflow.org/v1",
        kind,
        name,
        **{field: {"Master": replica, "Worker": replica | {"replicas": 3}}},
        **more,
    )


def replica_labels(kind: str) -> Document:
    return {f"{KUBEFLOW}/replica-type": kind, f"{KUBEFLOW}/job-name": "x"}


CASES: dict[str, tuple[Document, Document, str, tuple[str | None, str | None, str | None]]] = {
    "JobSet": (
        job_set("pretrain"),
        {
            "jobset.sigs.k8s.io/jobset-name": "pretrain",
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        },
        "pretrain-workers-1-2",
        ("jobset-pretrain", "9", "workers"),
    ),
    "LeaderWorkerSet": (
        owner(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "vllm",
            replicas=2,
            leaderWorkerTemplate={"size": 4, "workerTemplate": PODS},
        ),
        {
            "leaderworkerset.sigs.k8s.io/name": "vllm",
            "leaderworkerset.sigs.k8s.io/group-index": "1",
            "leaderworkerset.sigs.k8s.io/worker-index": "3",
        },
        "vllm-1-3",
        ("leaderworkerset-vllm-1", "4", "worker"),
    ),
    "PyTorchJob": (
        kubeflow("PyTorchJob", "pytorchReplicaSpecs", "resnet"),
        replica_labels("worker"),
        "resnet-worker-2",
        ("pytorchjob-resnet", "4", "worker"),
    ),
    "elastic PyTorchJob": (
        kubeflow(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            "elastic",
            elasticPolicy={"minReplicas": 2, "maxReplicas": 5},
        ),
        replica_labels("worker"),
        "elastic-worker-0",
        ("pytorchjob-elastic", "3", "worker"),
    ),
    "MPIJob": (
        owner(
            "kubeflow.org/v2beta1",
            "MPIJob",
            "bench",
            mpiReplicaSpecs={
                "Launcher": {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "l", "image": "i"}]}},
                },
                "Worker": {"replicas": 8, "template": PODS},
            },
        ),
        replica_labels("worker"),
        "bench-worker-0",
        ("mpijob-bench", "8", None),
    ),
    "RayCluster": (
        owner(
            "ray.io/v1",
            "RayCluster",
            "tune",
            headGroupSpec={"rayStartParams": {}, "template": PODS},
            workerGroupSpecs=[
                {
                    "groupName": "a100",
                    "replicas": 4,
                    "minReplicas": 2,
                    "maxReplicas": 8,
                    "rayStartParams": {},
                    "template": PODS,
                }
            ],
        ),
        {"ray.io/cluster": "tune", "ray.io/group": "a100", "ray.io/node-type": "worker"},
        "tune-a100-worker-x",
        ("raycluster-tune", "3", "a100"),
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_object_of_the_real_kind_tells_its_gang(real_kinds: Admission, title: str) -> None:
    written, labels, name, expected = CASES[title]
    made = create(real_kinds, written)
    assert words(child(real_kinds, made, name, labels)) == expected
