"""The effect of a floor on a pod's template."""

from typing import Any

import pytest

from extender.api import names
from tests.support.admission import PodDocument, pod, request_for, usual_index
from tests.support.owners import Document, child, origin_of, unread
from tests.unit.webhooks.test_owners_leaderworkerset import leader, server, worker
from tests.unit.webhooks.test_owners_mutate import labels, stored
from webhooks.mutate import decide, foresee, read_pod, wants_origin
from webhooks.owners.origin import NO_OWNER
from webhooks.review import Decision

FLOOR = {names.ANNOTATION_FLOOR: "2"}
KIND = {names.LABEL_WORKLOAD_KIND: "inference"}


def replica() -> PodDocument:
    """As a Deployment's ReplicaSet makes it."""
    owner = unread("apps/v1", "ReplicaSet", "llm-5d9c7")
    return child(owner, KIND | {"pod-template-hash": "5d9c7"}).noted(FLOOR)


def admitted(built: PodDocument, *readable: Document) -> dict[str, Any]:
    return stored(built, origin_of(built, *readable))


def test_a_replica_names_its_deployment_and_may_be_evicted_whatever_its_class() -> None:
    after = admitted(replica())
    assert labels(after)[names.LABEL_REPLICA_OF] == "deployment-llm"
    assert labels(after)[names.LABEL_PREEMPTIBILITY] == "preemptible"
    assert after["spec"]["priorityClassName"] == "ballast-inference"
    assert names.LABEL_POD_GROUP not in labels(after)


def test_leader_and_workers_are_of_one_gang_and_their_gangs_of_one_owner() -> None:
    for built in (leader(0), worker(1)):
        after = admitted(built.noted(FLOOR), server())
        assert labels(after)[names.LABEL_REPLICA_OF] == "leaderworkerset-vllm"
        assert labels(after)[names.LABEL_PREEMPTIBILITY] == "preemptible"
        assert labels(after)[names.LABEL_POD_GROUP] in (
            "leaderworkerset-vllm-0",
            "leaderworkerset-vllm-1",
        )


@pytest.mark.parametrize(
    ("label", "kind", "named"),
    [
        ("serving.kserve.io/inferenceservice", "ReplicaSet", "inferenceservice-bert"),
        ("serving.knative.dev/service", "ReplicaSet", "service-bert"),
        ("", "StatefulSet", "statefulset-bert"),
    ],
)
def test_the_owner_is_the_one_that_a_person_made(label: str, kind: str, named: str) -> None:
    owner = unread("apps/v1", kind, "bert")
    built = child(owner, {label: "bert"} if label else {}).noted(FLOOR)
    assert labels(admitted(built, owner))[names.LABEL_REPLICA_OF] == named


def test_the_owner_is_looked_for_also_where_all_else_is_stated() -> None:
    stated = {names.LABEL_POD_GROUP: "g"} | KIND
    built = replica().labelled(stated).noted({names.ANNOTATION_MIN_MEMBER: "2"})
    read = read_pod(request_for(built))
    assert not isinstance(read, Decision)
    assert wants_origin(read, usual_index())


def test_a_stated_owner_is_kept() -> None:
    after = admitted(replica().labelled({names.LABEL_REPLICA_OF: "llm-blue-and-green"}))
    assert labels(after)[names.LABEL_REPLICA_OF] == "llm-blue-and-green"


def test_without_a_floor_nothing_says_whose_replica_it_is() -> None:
    built = replica()
    del built.body["metadata"]["annotations"]
    after = admitted(built)
    assert names.LABEL_REPLICA_OF not in labels(after)
    assert labels(after)[names.LABEL_PREEMPTIBILITY] == "non-preemptible"


def test_a_pod_that_nothing_made_is_told_that_its_floor_has_no_effect() -> None:
    built = pod().asking("nvidia.com/gpu", "1").noted(FLOOR)
    decision = decide(request_for(built), usual_index(), NO_OWNER)
    assert decision.is_allowed
    assert any("has no effect on this pod" in each for each in decision.warnings)


def test_the_author_of_a_template_is_not_warned_of_its_floor() -> None:
    read = read_pod(request_for(replica()))
    assert not isinstance(read, Decision)
    assert foresee(read, {}, usual_index()) == []


@pytest.mark.parametrize("floor", ["0", "-1", "1.5", "two", "01"])
def test_what_is_no_number_of_replicas_is_refused(floor: str) -> None:
    built = replica().noted({names.ANNOTATION_FLOOR: floor})
    decision = decide(request_for(built), usual_index(), origin_of(built))
    assert not decision.is_allowed
    assert names.ANNOTATION_FLOOR in decision.message


def test_a_floor_of_work_that_is_never_evicted_is_refused() -> None:
    built = replica().labelled({names.LABEL_PREEMPTIBILITY: "non-preemptible"})
    decision = decide(request_for(built), usual_index(), origin_of(built))
    assert not decision.is_allowed
    assert "keep one" in decision.message
