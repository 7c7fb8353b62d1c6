"""Kubeflow's training jobs and notebooks."""

from typing import Any

import pytest

from tests.support.admission import PodDocument
from tests.support.owners import Document, child, origin_of, unread, written
from webhooks.owners.origin import Gang, Origin

PYTORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: resnet}
spec:
  runPolicy: {cleanPodPolicy: None}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: &gpu
        spec:
          containers:
          - {name: pytorch, image: i, resources: {limits: {nvidia.com/gpu: 1}}}
    Worker:
      replicas: 7
      restartPolicy: OnFailure
      template: *gpu
"""
MPI = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: horovod}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {spec: {containers: [{name: mpirun, image: i}]}}
    Worker:
      replicas: 4
      template:
        spec:
          containers:
          - {name: worker, image: i, resources: {limits: {nvidia.com/gpu: "8"}}}
"""
TENSORFLOW = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: recommender}
spec:
  tfReplicaSpecs:
    Chief:
      template: &gpu
        spec:
          containers:
          - {name: tensorflow, image: i, resources: {limits: {nvidia.com/gpu: 1}}}
    PS:
      replicas: 2
      template: {spec: {containers: [{name: tensorflow, image: i}]}}
    Worker: {replicas: 4, template: *gpu}
"""
BOOSTED = """
apiVersion: kubeflow.org/v1
kind: XGBoostJob
metadata: {name: churn}
spec:
  xgbReplicaSpecs:
    Master:
      template: &half
        metadata: {annotations: {gpu-fraction: "0.5"}}
        spec: {containers: [{name: xgboost, image: i}]}
    Worker: {replicas: 2, template: *half}
"""
JAX = """
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: gemma}
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: 3
      template:
        spec:
          containers:
          - {name: jax, image: i, resources: {limits: {nvidia.com/gpu: 4}}}
"""


def pod_of(job: Document, role: str, index: int = 0) -> PodDocument:
    labels = {
        "training.kubeflow.org/job-name": job["metadata"]["name"],
        "training.kubeflow.org/operator-name": f"{job['kind'].lower()}-controller",
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    return child(job, labels)


def launcher(job: Document) -> PodDocument:
    """As mpi-operator makes it: through a Job."""
    name = job["metadata"]["name"]
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-role": "launcher",
        "batch.kubernetes.io/job-name": f"{name}-launcher",
    }
    return child(unread("batch/v1", "Job", f"{name}-launcher"), labels)


@pytest.mark.parametrize(
    ("text", "role", "expected"),
    [
        (
            PYTORCH,
            "worker",
            Origin(
                group="pytorchjob-resnet",
                gang=Gang(8, (("master", 1), ("worker", 7))),
                sub_group="worker",
            ),
        ),
        (
            TENSORFLOW,
            "chief",
            Origin(
                group="tfjob-recommender",
                gang=Gang(5, (("chief", 1), ("worker", 4))),
                sub_group="chief",
            ),
        ),
        (
            BOOSTED,
            "master",
            Origin(
                group="xgboostjob-churn",
                gang=Gang(3, (("master", 1), ("worker", 2))),
                sub_group="master",
            ),
        ),
        (JAX, "worker", Origin(group="jaxjob-gemma", gang=Gang(3))),
        (MPI, "worker", Origin(group="mpijob-horovod", gang=Gang(4))),
    ],
    ids=["pytorch", "tensorflow", "xgboost", "jax", "mpi"],
)
def test_all_replicas_with_gpus_are_one_gang(text: str, role: str, expected: Origin) -> None:
    made = written(text)
    assert origin_of(pod_of(made, role), made) == expected


def elastic(least: int, **policy: Any) -> Document:
    """An elastic job as the operator's examples have it: without a master."""
    made = written(PYTORCH)
    del made["spec"]["pytorchReplicaSpecs"]["Master"]
    made["spec"]["elasticPolicy"] = {"minReplicas": least, "maxReplicas": 7} | policy
    return made


def test_elastic_job_needs_its_least_workers_and_the_one_where_they_meet() -> None:
    made = elastic(3)
    gang = Gang(3, (("worker-0", 1), ("worker", 2)))
    name = "pytorchjob-resnet"
    first = Origin(group=name, gang=gang, sub_group="worker-0")
    assert origin_of(pod_of(made, "worker"), made) == first
    other = Origin(group=name, gang=gang, sub_group="worker")
    assert origin_of(pod_of(made, "worker", 1), made) == other
    assert origin_of(pod_of(elastic(1), "worker"), elastic(1)).gang == Gang(
        1, (("worker-0", 1), ("worker", 0))
    )


def test_elastic_job_with_a_master_needs_both() -> None:
    made = written(PYTORCH)
    made["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 7}
    gang = Gang(3, (("master", 1), ("worker-0", 1), ("worker", 1)))
    assert origin_of(pod_of(made, "worker", 3), made).gang == gang


def test_workers_that_meet_elsewhere_are_alike() -> None:
    made = elastic(3, rdzvHost="etcd.example.com")
    assert origin_of(pod_of(made, "worker"), made) == Origin(
        group="pytorchjob-resnet", gang=Gang(3)
    )


def test_minimum_that_the_author_states_counts_and_the_master_is_in_it() -> None:
    made = written(PYTORCH)
    made["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 5}}
    gang = Gang(5, (("master", 1), ("worker", 0)))
    assert origin_of(pod_of(made, "worker"), made).gang == gang


def test_stated_minimum_of_an_elastic_job_has_the_worker_where_the_others_meet() -> None:
    made = elastic(4)
    for least in (2, 6):
        made["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": least}}
        gang = Gang(least, (("worker-0", 1), ("worker", 0)))
        assert origin_of(pod_of(made, "worker", 2), made).gang == gang


def test_stated_minimum_of_equal_workers_has_no_sub_groups() -> None:
    made = written(JAX)
    made["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}}
    assert origin_of(pod_of(made, "worker"), made).gang == Gang(2)


def test_stated_minimum_above_all_replicas_never_holds_a_job_up() -> None:
    made = written(PYTORCH)
    made["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 50}}
    assert origin_of(pod_of(made, "worker"), made).gang.min_member == 8


def with_gpu_launcher(**spec: Any) -> Document:
    made = written(MPI)
    made["spec"] |= spec | {"runLauncherAsWorker": True}
    replicas = made["spec"]["mpiReplicaSpecs"]
    replicas["Launcher"]["template"] = replicas["Worker"]["template"]
    return made


def test_launcher_that_works_too_is_of_the_gang() -> None:
    made = with_gpu_launcher()
    assert origin_of(launcher(made), made) == Origin(
        group="mpijob-horovod",
        gang=Gang(5, (("launcher", 1), ("worker", 4))),
        sub_group="launcher",
    )
    assert origin_of(pod_of(made, "worker"), made).gang.min_member == 5


def test_launcher_that_waits_for_its_workers_is_not_waited_for() -> None:
    made = with_gpu_launcher(launcherCreationPolicy="WaitForWorkersReady")
    assert origin_of(pod_of(made, "worker"), made).gang == Gang(4, (("launcher", 0), ("worker", 4)))


def test_notebook_is_interactive_and_alone() -> None:
    owner = unread("apps/v1", "StatefulSet", "ada")
    assert origin_of(child(owner, {"notebook-name": "ada"})) == Origin(
        work="interactive", group="notebook-ada", is_alone=True
    )
