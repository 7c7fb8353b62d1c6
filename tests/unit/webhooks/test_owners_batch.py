"""Job, CronJob, and kinds whose pods start one by one."""

import pytest

from extender.api.jobs import count_indexes
from extender.api.names import LABEL_POD_GROUP
from tests.support.owners import (
    Document,
    Shelf,
    child,
    meta_of,
    origin_of,
    reference,
    unread,
    written,
)
from webhooks.owners.batch import COMPLETION_INDEX
from webhooks.owners.origin import NO_OWNER, Gang, Origin
from webhooks.owners.reader import OwnerReader
from webhooks.owners.trace import trace

TRAINING = """
apiVersion: batch/v1
kind: Job
metadata: {name: llama-finetune}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  backoffLimit: 2
  template:
    spec:
      restartPolicy: Never
      subdomain: llama
      containers:
      - name: torch
        image: registry.example/torch:2.9
        command: [torchrun, --nnodes=4, train.py]
        resources: {limits: {nvidia.com/gpu: "8", cpu: "32"}}
"""
INDEX = {COMPLETION_INDEX: "0", "batch.kubernetes.io/job-name": "llama-finetune"}


def job(**spec: object) -> Document:
    made = written(TRAINING)
    made["spec"] |= spec
    return made


def test_indexed_job_whose_indices_run_at_once_is_a_gang() -> None:
    made = job()
    assert origin_of(child(made, INDEX), made) == Origin(
        group="job-llama-finetune", gang=Gang(min_member=4)
    )


def test_index_is_read_from_the_annotation_of_older_clusters_too() -> None:
    made = job()
    pod = child(made, {"job-name": "llama-finetune"}).noted({COMPLETION_INDEX: "0"})
    assert origin_of(pod, made).gang.min_member == 4


@pytest.mark.parametrize(
    "spec",
    [
        {"parallelism": 2},
        {"completions": 1, "parallelism": 1},
        {"completions": 8},
        {"completionMode": "NonIndexed"},
        {"completions": None},
    ],
)
def test_job_that_works_through_its_indices_is_no_gang(spec: dict[str, object]) -> None:
    made = job(**spec)
    assert origin_of(child(made, INDEX), made).is_alone


async def test_plain_job_is_not_even_read() -> None:
    made = job(completionMode="NonIndexed")
    shelf = Shelf(made)
    meta = meta_of(child(made, {"batch.kubernetes.io/job-name": "llama-finetune"}))
    assert (await trace(meta, OwnerReader(shelf.get).read)).is_alone
    assert shelf.asked == []


@pytest.mark.parametrize(
    ("spec", "n"),
    [
        ({"completionMode": "NonIndexed"}, 4),
        ({"completionMode": "NonIndexed", "completions": 8, "parallelism": 3}, 3),
        ({"completionMode": "NonIndexed", "completions": 2, "parallelism": 6}, 2),
        ({"completionMode": "NonIndexed", "completions": None, "parallelism": 5}, 5),
        ({"completions": 8, "parallelism": 2}, 2),
    ],
)
def test_job_whose_pods_name_a_group_is_a_gang_of_all_that_run_at_once(
    spec: dict[str, object], n: int
) -> None:
    made = job(**spec)
    built = child(made, {LABEL_POD_GROUP: "mine", "batch.kubernetes.io/job-name": "llama-finetune"})
    assert origin_of(built, made).gang == Gang(n)


def test_indices_of_a_named_gang_that_have_failed_for_good_are_not_waited_for() -> None:
    made = job()
    made["status"] = {"failedIndexes": "2"}
    assert origin_of(child(made, INDEX | {LABEL_POD_GROUP: "mine"}), made).gang.min_member == 3


def test_indices_that_have_failed_for_good_are_not_waited_for() -> None:
    made = job()
    made["status"] = {"active": 2, "succeeded": 1, "failedIndexes": "2"}
    assert origin_of(child(made, INDEX), made).gang.min_member == 3


def test_job_of_a_cron_job_is_a_gang_by_itself() -> None:
    made = job()
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "nightly",
            "uid": "c",
            "controller": True,
        }
    ]
    assert origin_of(child(made, INDEX), made).group == "job-llama-finetune"


def test_job_of_a_workflow_is_a_gang_though_the_steps_of_the_workflow_are_not() -> None:
    flow = unread("argoproj.io/v1alpha1", "Workflow", "nightly")
    made = job()
    made["metadata"]["ownerReferences"] = [reference(flow)]
    expected = Origin(group="job-llama-finetune", gang=Gang(min_member=4))
    assert origin_of(child(made, INDEX), made) == expected


def test_job_that_cannot_be_read_is_a_group_that_waits_for_nobody() -> None:
    assert origin_of(child(job(), INDEX)) == Origin(group="job-llama-finetune")


def test_job_of_volcano_is_not_taken_for_a_job() -> None:
    theirs = unread("batch.volcano.sh/v1alpha1", "Job", "train")
    ours = unread("batch/v1", "Job", "train")
    group = origin_of(child(theirs)).group
    assert group.startswith("job-batch-volcano-sh-train-")
    assert group != origin_of(child(ours)).group


@pytest.mark.parametrize(
    ("text", "n"),
    [("", 0), ("0", 1), ("1,3-5,7", 5), ("5-3", 0), ("x", 0), ("1,,2", 2), ("-1", 0)],
)
def test_lists_of_indices_are_counted(text: str, n: int) -> None:
    assert count_indexes(text) == n


@pytest.mark.parametrize(
    ("owner", "labels", "group"),
    [
        (
            unread("apps/v1", "ReplicaSet", "chat-5d4f8c7b9"),
            {"app": "chat", "pod-template-hash": "5d4f8c7b9"},
            "deployment-chat",
        ),
        (unread("apps/v1", "ReplicaSet", "bare"), {}, "replicaset-bare"),
        (unread("apps/v1", "StatefulSet", "db"), {"apps.kubernetes.io/pod-index": "0"},
         "statefulset-db"),
        (unread("v1", "ReplicationController", "old"), {}, "replicationcontroller-old"),
    ],
    ids=lambda each: each["kind"] if isinstance(each, dict) and "kind" in each else None,
)  # fmt: skip
def test_pods_of_a_replicated_service_stand_for_themselves(
    owner: Document, labels: dict[str, str], group: str
) -> None:
    assert origin_of(child(owner, labels), *_readable(owner)) == Origin(group=group, is_alone=True)


def _readable(owner: Document) -> list[Document]:
    return [owner] if owner["kind"] == "StatefulSet" else []


def test_pod_of_a_daemon_set_or_a_node_has_no_group() -> None:
    assert origin_of(child(unread("apps/v1", "DaemonSet", "agent"))) == NO_OWNER
    assert origin_of(child(unread("v1", "Node", "node-1"))) == NO_OWNER
