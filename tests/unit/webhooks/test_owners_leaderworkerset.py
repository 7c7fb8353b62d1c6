"""LeaderWorkerSet: one gang for each replica."""

import pytest

from tests.support.admission import PodDocument
from tests.support.owners import Document, child, origin_of, unread, written
from webhooks.owners.origin import Gang, Origin

SERVER = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: vllm}
spec:
  replicas: 2
  startupPolicy: LeaderCreated
  leaderWorkerTemplate:
    size: 4
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      spec:
        containers:
        - {name: leader, image: i, resources: {limits: {nvidia.com/gpu: "8"}}}
    workerTemplate:
      spec:
        containers:
        - {name: worker, image: i, resources: {limits: {nvidia.com/gpu: "8"}}}
"""
NAME = {"leaderworkerset.sigs.k8s.io/name": "vllm"}
BOTH = (("leader", 1), ("worker", 3))


def leader(replica: int = 1) -> PodDocument:
    """As its StatefulSet makes it, before LeaderWorkerSet's own webhook has seen it."""
    labels = NAME | {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    return child(unread("apps/v1", "StatefulSet", "vllm"), labels, f"vllm-{replica}")


def worker(replica: int = 1) -> PodDocument:
    labels = NAME | {
        "leaderworkerset.sigs.k8s.io/group-index": str(replica),
        "leaderworkerset.sigs.k8s.io/worker-index": "2",
    }
    return child(unread("apps/v1", "StatefulSet", f"vllm-{replica}"), labels, f"vllm-{replica}-2")


def new_worker() -> PodDocument:
    """As its StatefulSet makes it, before LeaderWorkerSet's own webhook has seen it."""
    made = worker()
    del made.body["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"]
    return made


def server(policy: str = "LeaderCreated") -> Document:
    made = written(SERVER)
    made["spec"]["startupPolicy"] = policy
    return made


def test_leader_and_workers_of_a_replica_are_one_gang() -> None:
    expected = Origin(
        group="leaderworkerset-vllm-1",
        gang=Gang(4, BOTH),
        sub_group="leader",
        whole="leaderworkerset-vllm",
    )
    assert origin_of(leader(), server()) == expected
    worker_origin = origin_of(worker(), server())
    assert (worker_origin.group, worker_origin.gang) == (expected.group, expected.gang)
    assert worker_origin.sub_group == "worker"


def test_replicas_are_gangs_of_their_own() -> None:
    assert origin_of(leader(0), server()).group != origin_of(leader(1), server()).group


def test_leader_labelled_by_its_own_webhook_is_in_the_same_gang() -> None:
    labelled = leader().labelled({"leaderworkerset.sigs.k8s.io/group-index": "1"})
    assert origin_of(labelled, server()) == origin_of(leader(), server())


def test_worker_is_a_worker_before_its_own_webhook_says_so() -> None:
    assert origin_of(new_worker(), server()) == origin_of(worker(), server())


def test_leader_that_must_be_ready_first_waits_for_no_worker() -> None:
    assert origin_of(leader(), server("LeaderReady")).gang == Gang(
        1, (("leader", 1), ("worker", 0))
    )


def test_workers_of_a_leader_without_gpus_are_a_gang_by_themselves() -> None:
    made = server("LeaderReady")
    made["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = {
        "spec": {"containers": [{"name": "proxy", "image": "i"}]}
    }
    assert origin_of(worker(), made).gang == Gang(3)


def test_leader_without_a_template_is_like_a_worker() -> None:
    made = server()
    del made["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    assert origin_of(worker(), made).gang == Gang(4, BOTH)


@pytest.mark.parametrize("pod", [leader(), worker()])
def test_server_that_cannot_be_read_is_waited_for_by_nobody(pod: PodDocument) -> None:
    expected = Origin(group="leaderworkerset-vllm-1", whole="leaderworkerset-vllm")
    assert origin_of(pod) == expected
