"""Pods that real controllers make, and pods of kinds with controllers made up here.

The CRDs are ours and accept anything: what is tested is how owners are found, named and read with
the rights that we ship, not how their own controllers check them.
"""

import re
import ssl
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from extender.api import names
from tests.integration.webhooks.conftest import SEEN_S, Admission, manifest
from tests.support.controlplane.handles import wait_for
from tests.support.controlplane.ports import LOOPBACK
from tests.support.open_kinds import open_definition
from tests.support.owners import reference

Document = dict[str, Any]

CONTAINER = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
GPU = {"containers": [CONTAINER]}
KINDS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("kubeflow.org", "v1", "PyTorchJob"),
    ("ray.io", "v1", "RayCluster"),
    ("example.com", "v1", "Simulation"),
)


@pytest.fixture(scope="module")
def kinds(admission: Admission) -> Iterator[Admission]:
    """The webhooks, in a cluster that has `KINDS`."""
    api = admission.api
    text = yaml.safe_dump_all(open_definition(*kind, f"{kind[-1].lower()}s") for kind in KINDS)
    api.kubectl("apply", "-f", "-", stdin=text)
    api.kubectl(
        "wait", "--for=condition=Established", f"--timeout={SEEN_S:.0f}s", "-f", "-", stdin=text
    )
    yield admission
    api.kubectl("delete", "-f", "-", stdin=text)


def owner(api_version: str, kind: str, name: str, **spec: Any) -> Document:
    """An owner as its author writes it."""
    meta = {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def job(name: str, **spec: Any) -> Document:
    """A Job of pods that want one GPU and are labelled `of`."""
    return owner("batch/v1", "Job", name, template=template(name, restartPolicy="Never"), **spec)


def deployment(name: str, **notes: str) -> Document:
    """A Deployment of two such pods."""
    made = template(name)
    made["metadata"]["annotations"] = notes
    selector = {"matchLabels": {"of": name}}
    spec = {"replicas": 2, "selector": selector, "template": made}
    return owner("apps/v1", "Deployment", name, **spec)


def template(name: str, **spec: Any) -> Document:
    return {"metadata": {"labels": {"of": name}}, "spec": GPU | spec}


def create(admission: Admission, made: Document) -> Document:
    """The owner as the API server stored it."""
    where = f"/apis/{made['apiVersion']}/namespaces/{admission.api.namespace}"
    path = f"{where}/{made['kind'].lower()}s"
    stored: Document = admission.api.control_plane.admin.post(path, made)
    return stored


def child(
    admission: Admission, made_by: Document, name: str, labels: dict[str, str] | None = None
) -> Document:
    """A GPU pod as `made_by` would make it, as the API server would store it."""
    pod = manifest(name, containers=[CONTAINER])
    pod["metadata"] |= {"labels": labels or {}, "ownerReferences": [reference(made_by)]}
    return admission.create(pod, is_stored=False)


def words(pod: Document) -> tuple[str | None, str | None, str | None]:
    """The group, the minimum and the sub-group that were written onto the pod."""
    labels, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE}]
    return (
        labels.get(names.LABEL_POD_GROUP),
        notes.get(names.ANNOTATION_MIN_MEMBER),
        labels.get(names.LABEL_SUB_GROUP),
    )


def pods_of(admission: Admission, selector: str, n: int) -> list[Document]:
    """The `n` pods that a controller makes."""
    found: list[Document] = []
    where = f"/api/v1/namespaces/{admission.api.namespace}/pods?labelSelector={selector}"

    def are_made() -> bool:
        found[:] = admission.api.control_plane.admin.get(where)["items"]
        return len(found) == n

    wait_for(are_made, SEEN_S, f"{n} pods of {selector}")
    return found


def n_lookups(admission: Admission) -> float:
    """How many owners the webhook has asked for so far."""
    context = ssl.create_default_context(cafile=str(admission.ca))
    url = f"https://{LOOPBACK}:{admission.program.port}/metrics"
    with urllib.request.urlopen(url, context=context, timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r"^ballast_webhook_owner_lookups_total\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def test_indexed_job_becomes_a_gang_of_all_its_pods(admission: Admission) -> None:
    create(admission, job("train", completionMode="Indexed", completions=3, parallelism=3))
    made = pods_of(admission, "of=train", 3)
    assert {words(pod) for pod in made} == {("job-train", "3", None)}


def test_pods_of_other_jobs_and_of_deployments_stand_for_themselves(admission: Admission) -> None:
    before = n_lookups(admission)
    create(admission, job("sweep", completions=4, parallelism=2))
    create(admission, deployment("chat"))
    made = [*pods_of(admission, "of=sweep", 2), *pods_of(admission, "of=chat", 2)]
    assert {words(pod)[0] for pod in made} == {None}
    assert n_lookups(admission) == before


def test_stateful_pods_stand_for_themselves(admission: Admission) -> None:
    selector = {"matchLabels": {"of": "db"}}
    spec = {"replicas": 2, "podManagementPolicy": "Parallel", "template": template("db")}
    create(admission, owner("apps/v1", "StatefulSet", "db", selector=selector, **spec))
    assert {words(pod)[0] for pod in pods_of(admission, "of=db", 2)} == {None}


def test_deployment_whose_author_states_a_minimum_is_a_group(admission: Admission) -> None:
    create(admission, deployment("pair", **{names.ANNOTATION_MIN_MEMBER: "2"}))
    made = pods_of(admission, "of=pair", 2)
    assert {words(pod) for pod in made} == {("deployment-pair", "2", None)}


def test_job_set_is_one_gang_over_its_jobs(kinds: Admission) -> None:
    replicated = {
        "name": "workers",
        "replicas": 2,
        "template": {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": GPU}}},
    }
    api_version = "jobset.x-k8s.io/v1alpha2"
    job_set = create(kinds, owner(api_version, "JobSet", "pretrain", replicatedJobs=[replicated]))
    for ix in range(2):
        name = f"pretrain-workers-{ix}"
        made = job(name, completionMode="Indexed", completions=2, parallelism=2)
        made["metadata"]["ownerReferences"] = [reference(job_set)]
        made["spec"]["template"]["metadata"]["labels"] |= {
            "jobset.sigs.k8s.io/jobset-name": "pretrain",
            "jobset.sigs.k8s.io/jobset-uid": job_set["metadata"]["uid"],
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        }
        create(kinds, made)
    pods = pods_of(kinds, "jobset.sigs.k8s.io/jobset-name=pretrain", 4)
    assert {words(pod) for pod in pods} == {("jobset-pretrain", "4", None)}


def test_job_set_is_found_without_its_labels_too(kinds: Admission) -> None:
    replicated = {"name": "w", "template": {"spec": {"parallelism": 2, "template": {"spec": GPU}}}}
    api_version = "jobset.x-k8s.io/v1alpha2"
    job_set = create(kinds, owner(api_version, "JobSet", "bare", replicatedJobs=[replicated]))
    made = job("bare-w-0", completionMode="Indexed", completions=2, parallelism=2)
    made["metadata"]["ownerReferences"] = [reference(job_set)]
    create(kinds, made)
    assert {words(pod) for pod in pods_of(kinds, "of=bare-w-0", 2)} == {("jobset-bare", "2", None)}


def test_replica_of_a_leader_worker_set_is_a_gang(kinds: Admission) -> None:
    pair = {"size": 3, "workerTemplate": {"spec": GPU}}
    api_version = "leaderworkerset.x-k8s.io/v1"
    create(kinds, owner(api_version, "LeaderWorkerSet", "vllm", leaderWorkerTemplate=pair))
    stateful = owner("apps/v1", "StatefulSet", "vllm")
    stateful["metadata"]["uid"] = "0"
    prefix = "leaderworkerset.sigs.k8s.io"
    labels = {f"{prefix}/name": "vllm", f"{prefix}/worker-index": "0"}
    leader = child(kinds, stateful, "vllm-1", labels)
    labels |= {f"{prefix}/worker-index": "2", f"{prefix}/group-index": "1"}
    worker = child(kinds, stateful, "vllm-1-2", labels)
    assert words(leader) == ("leaderworkerset-vllm-1", "3", "leader")
    assert words(worker) == ("leaderworkerset-vllm-1", "3", "worker")


def test_replicas_of_a_training_job_are_a_gang(kinds: Admission) -> None:
    role = {"template": {"spec": GPU}}
    replicas = {"Master": role, "Worker": role | {"replicas": 3}}
    torch = owner("kubeflow.org/v1", "PyTorchJob", "resnet", pytorchReplicaSpecs=replicas)
    labels = {"training.kubeflow.org/replica-type": "worker"}
    pod = child(kinds, create(kinds, torch), "resnet-worker-0", labels)
    assert words(pod) == ("pytorchjob-resnet", "4", "worker")


def test_ray_cluster_needs_its_fewest_workers(kinds: Admission) -> None:
    workers = {"groupName": "a100", "minReplicas": 2, "template": {"spec": GPU}}
    cluster = owner("ray.io/v1", "RayCluster", "tune", workerGroupSpecs=[workers])
    labels = {"ray.io/cluster": "tune", "ray.io/group": "a100"}
    pod = child(kinds, create(kinds, cluster), "tune-a100-worker-x", labels)
    assert words(pod) == ("raycluster-tune", "2", None)


def test_pods_of_an_unknown_kind_are_one_group(kinds: Admission) -> None:
    simulation = create(kinds, owner("example.com/v1", "Simulation", "galaxy"))
    pod = child(kinds, simulation, "galaxy-0")
    assert words(pod) == ("simulation-galaxy", None, None)


@pytest.mark.parametrize(
    ("api_version", "kind"), [("batch/v1", "Job"), ("kubeflow.org/v1", "TFJob")]
)
def test_owner_that_is_gone_or_not_installed_holds_no_pod_up(
    admission: Admission, api_version: str, kind: str
) -> None:
    gone = owner(api_version, kind, "gone")
    gone["metadata"]["uid"] = "0"
    labels = {"batch.kubernetes.io/job-completion-index": "0"}
    pod = child(admission, gone, "orphan", labels)
    assert words(pod) == (f"{kind.lower()}-gone", None, None)
