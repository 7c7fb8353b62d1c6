"""JobSet, and the TrainJob that creates one."""

from tests.support.admission import PodDocument
from tests.support.owners import Document, child, origin_of, unread, written
from webhooks.owners.batch import COMPLETION_INDEX
from webhooks.owners.origin import Gang, Origin

PRETRAIN = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pretrain}
spec:
  failurePolicy: {maxRestarts: 3}
  replicatedJobs:
  - name: driver
    replicas: 1
    template:
      spec:
        parallelism: 1
        completions: 1
        template:
          spec:
            containers:
            - name: driver
              image: registry.example/driver
              resources: {requests: {cpu: "2"}}
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 4
        completions: 4
        template:
          spec:
            containers:
            - name: torch
              image: registry.example/torch
              resources: {limits: {nvidia.com/gpu: "8"}}
  - name: evaluators
    replicas: 1
    template:
      spec:
        parallelism: 1
        template:
          metadata: {annotations: {gpu-fraction: "0.5"}}
          spec:
            containers: [{name: eval, image: registry.example/eval}]
"""

TRAINER = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: bert
  ownerReferences:
  - {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: bert, uid: t,
     controller: true}
spec:
  replicatedJobs:
  - name: dataset-initializer
    template: {spec: {template: {spec: {containers: [{name: fetch, image: i}]}}}}
  - name: node
    dependsOn: [{name: dataset-initializer, status: Complete}]
    template:
      spec:
        parallelism: 3
        completions: 3
        template:
          spec:
            containers:
            - {name: node, image: i, resources: {limits: {nvidia.com/gpu: 1}}}
"""


def pod_of(job_set: Document, replicated: str) -> PodDocument:
    name = job_set["metadata"]["name"]
    labels = {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/jobset-uid": job_set["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/job-index": "0",
        COMPLETION_INDEX: "0",
    }
    return child(unread("batch/v1", "Job", f"{name}-{replicated}-0"), labels)


def test_job_set_is_one_gang_of_its_pods_with_gpus() -> None:
    made = written(PRETRAIN)
    assert origin_of(pod_of(made, "workers"), made) == Origin(
        group="jobset-pretrain",
        gang=Gang(9, (("workers", 8), ("evaluators", 1))),
        sub_group="workers",
    )


def test_jobs_that_start_later_are_not_waited_for() -> None:
    made = written(PRETRAIN)
    made["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert origin_of(pod_of(made, "workers"), made).gang == Gang(
        8, (("workers", 8), ("evaluators", 0))
    )


def test_jobs_that_depend_on_others_are_not_waited_for() -> None:
    made = written(PRETRAIN)
    made["spec"]["replicatedJobs"][2]["dependsOn"] = [{"name": "workers", "status": "Ready"}]
    assert origin_of(pod_of(made, "evaluators"), made).gang.min_member == 8


def test_jobs_that_have_succeeded_leave_the_gang_to_those_after_them() -> None:
    made = written(PRETRAIN)
    made["spec"]["replicatedJobs"][2]["dependsOn"] = [{"name": "workers", "status": "Complete"}]
    made["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 2}]}
    assert origin_of(pod_of(made, "evaluators"), made).gang == Gang(
        1, (("workers", 0), ("evaluators", 1))
    )


def test_pods_that_wait_for_the_end_of_others_are_not_created_before_it() -> None:
    """The status that says so may be written after them."""
    made = written(PRETRAIN)
    driver, workers, evaluators = made["spec"]["replicatedJobs"]
    limits = driver["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    limits["limits"] = {"nvidia.com/gpu": "1"}
    workers["dependsOn"] = [{"name": "driver", "status": "Complete"}]
    evaluators["dependsOn"] = [{"name": "workers", "status": "Ready"}]
    first, later = (("driver", 1), ("workers", 0), ("evaluators", 0)), (("driver", 0),)
    assert origin_of(pod_of(made, "driver"), made).gang == Gang(1, first)
    after = Gang(8, (*later, ("workers", 8), ("evaluators", 0)))
    assert origin_of(pod_of(made, "workers"), made).gang == after
    assert origin_of(pod_of(made, "evaluators"), made).gang == after


def test_jobs_of_which_some_have_succeeded_are_counted_whole() -> None:
    made = written(PRETRAIN)
    made["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1}]}
    assert origin_of(pod_of(made, "workers"), made).gang.min_member == 9


def test_exclusive_placement_waits_for_the_first_pod_of_each_job() -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "example.com/rack"}
    for_all = written(PRETRAIN, annotations=exclusive)
    assert origin_of(pod_of(for_all, "workers"), for_all).gang == Gang(
        3, (("workers", 2), ("evaluators", 1))
    )
    for_workers = written(PRETRAIN)
    meta = for_workers["spec"]["replicatedJobs"][1]["template"]["metadata"] = {
        "annotations": exclusive
    }
    assert origin_of(pod_of(for_workers, "workers"), for_workers).gang.min_member == 3
    meta["annotations"] = exclusive | {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
    assert origin_of(pod_of(for_workers, "workers"), for_workers).gang.min_member == 9


def test_job_set_of_another_life_is_not_believed() -> None:
    made = written(PRETRAIN)
    pod = pod_of(written(PRETRAIN, uid="before"), "workers")
    assert origin_of(pod, made) == Origin(group="jobset-pretrain")


def test_trainer_of_a_train_job_is_a_gang_though_data_is_fetched_first() -> None:
    made = written(TRAINER)
    assert origin_of(pod_of(made, "node"), made) == Origin(
        group="jobset-bert", gang=Gang(min_member=3)
    )


def test_job_without_labels_is_followed_up_to_its_job_set() -> None:
    made = written(PRETRAIN)
    job = unread("batch/v1", "Job", "pretrain-workers-0")
    job["metadata"]["ownerReferences"] = [
        {key: made[key] for key in ("apiVersion", "kind")}
        | {"name": "pretrain", "uid": "uid-pretrain", "controller": True}
    ]
    origin = origin_of(child(job, {COMPLETION_INDEX: "1"}), job, made)
    assert (origin.group, origin.gang.min_member) == ("jobset-pretrain", 9)
