"""Pods that are refused when they are created."""

import pytest

from extender.api import aliases, names
from extender.api.events import Upserted
from extender.api.objects import ObjectMeta, PriorityClass
from extender.api.reasons import Reason
from tests.support.admission import (
    PodDocument,
    decision_on,
    index_of,
    pod,
    project,
    refusal,
    stored,
)
from tests.support.hostile import hostile_counts, hostile_fractions

GATE = {"name": names.GATE}
HALF = {"gpu-fraction": "0.5"}


def test_gpu_pod_without_a_project_may_not_use_our_scheduler() -> None:
    built = pod(namespace="elsewhere").noted(HALF).with_spec(schedulerName="ballast-scheduler")
    assert refusal(built).startswith(Reason.UNKNOWN_PROJECT)


@pytest.mark.parametrize(
    "label",
    [
        "speech",
        "absent",
        "Vision",
        "vision ",
        " vision",
        "v\u0456sion",
        "vision\n",
        "vision\u200b",
        "vision/",
        "../vision",
        "v" * 300,
        "vision,speech",
        "*",
        "vision\0",
        "\uff56ision",
    ],
)
@pytest.mark.parametrize("key", ["ballast.dev/project", "runai/queue", "kai.scheduler/queue"])
def test_project_of_others_may_not_be_claimed(key: str, label: str) -> None:
    index = index_of(project("vision", "team-a"), project("speech", "team-b"))
    said = refusal(pod().noted(HALF).labelled({key: label}), index)
    assert "may not use project" in said
    assert "it may use vision" in said


def test_our_label_may_not_be_claimed_where_there_is_no_project() -> None:
    built = pod(namespace="elsewhere").labelled({names.LABEL_PROJECT: "vision"})
    assert "may not use project 'vision'" in refusal(built)


def test_project_labels_that_differ_are_refused() -> None:
    labels = {names.LABEL_PROJECT: "vision", "runai/queue": "speech"}
    assert "differ" in refusal(pod().noted(HALF).labelled(labels))


@pytest.mark.parametrize(
    "aliases",
    [
        aliases.GROUP_LABELS,
        aliases.PREEMPTIBILITY_LABELS,
        aliases.SUB_GROUP_LABELS,
        aliases.USER_LABELS,
    ],
)
def test_two_names_of_a_label_that_differ_are_refused(aliases: tuple[str, ...]) -> None:
    values = dict(zip(aliases, ("preemptible", "non-preemptible"), strict=False))
    assert "differ" in refusal(pod().noted(HALF).labelled(values))
    same = dict.fromkeys(aliases[:2], "preemptible")
    assert decision_on(pod().noted(HALF).labelled(same)).is_allowed


@pytest.mark.parametrize(
    "aliases",
    [aliases.TOPOLOGY_KEYS, aliases.TOPOLOGY_REQUIRED_KEYS, aliases.TOPOLOGY_PREFERRED_KEYS],
)
def test_two_names_of_a_topology_that_differ_are_refused(aliases: tuple[str, ...]) -> None:
    notes = HALF | dict(zip(aliases, ("rack", "zone"), strict=False))
    assert "differ" in refusal(pod().noted(notes))


def test_empty_project_label_counts_as_none() -> None:
    after = stored(pod().noted(HALF).labelled({names.LABEL_PROJECT: ""}))
    assert after["metadata"]["labels"][names.LABEL_PROJECT] == "vision"


@pytest.mark.parametrize("text", hostile_fractions(), ids=lambda text: ascii(text)[:24])
def test_hostile_fraction_is_refused_with_a_sentence(text: str) -> None:
    assert 'such as "0.5"' in refusal(pod().noted({"gpu-fraction": text}))


@pytest.mark.parametrize("text", hostile_counts(), ids=lambda text: ascii(text)[:24])
def test_hostile_memory_is_refused_with_a_sentence(text: str) -> None:
    assert "whole number from 1" in refusal(pod().noted({"gpu-memory": text}))


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (pod().noted(HALF).asking("nvidia.com/gpu", "1"), "use one of them"),
        (pod().noted(HALF | {"gpu-fraction-container-name": "no"}), "none of spec.containers"),
        (
            pod().noted(HALF | {names.ANNOTATION_NODE_POOLS: "a,,b"}),
            "is not the name of a node pool",
        ),
        (pod().noted(HALF | {names.ANNOTATION_NODE_POOLS: "a,a"}), "different names"),
        (pod().noted(HALF | {names.ANNOTATION_MIN_MEMBER: "0"}), "min-member"),
        (pod().noted(HALF | {names.ANNOTATION_CHECKPOINT: "30m"}), "a whole number from 1 to"),
        (pod().noted(HALF | {names.ANNOTATION_EXPECTED_RUN: "2h"}), "the unit is seconds"),
        (pod().noted(HALF | {names.ANNOTATION_WEIGHT: "0.5"}), "a whole number from 1 to"),
        (
            pod().noted(HALF | {names.ANNOTATION_WEIGHT: "1001"}),
            "is not a whole number from 1 to 1000",
        ),
        (pod().noted(HALF).labelled({names.LABEL_WORKLOAD_KIND: "Train"}), "is not one of"),
        (pod().noted(HALF).labelled({names.LABEL_PREEMPTIBILITY: "no"}), "is not one of"),
        (pod().noted(HALF).labelled({names.LABEL_POD_GROUP: "../x"}), "is not a name"),
        (pod().noted(HALF | {"gpu-compute-limit": "2"}), "share between 0 and 1"),
        (pod().noted(HALF | {"gpu-compute-request": "1"}), "above the 0.5 of each card"),
        (pod().with_spec(schedulingGates=[GATE]), "remove the scheduling gate"),
        (
            pod(namespace="elsewhere").noted(HALF).with_spec(schedulingGates=[GATE]),
            "remove the scheduling gate",
        ),
    ],
)
def test_what_is_not_understood_is_refused_with_a_sentence(built: PodDocument, said: str) -> None:
    assert said in refusal(built)


@pytest.mark.parametrize(
    "key",
    [
        names.ANNOTATION_PLAN,
        names.ANNOTATION_CARDS,
        names.ANNOTATION_REVOKED,
        names.ANNOTATION_REFUSED,
    ],
)
@pytest.mark.parametrize("namespace", ["team-a", "elsewhere"])
def test_forged_decision_is_refused(key: str, namespace: str) -> None:
    assert f"only Ballast writes {key}: remove" in refusal(
        pod(namespace=namespace).noted({key: "0:1000:1"})
    )


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical", "system-x"])
def test_classes_of_the_system_are_refused(name: str) -> None:
    built = pod().noted(HALF).with_spec(priorityClassName=name, priority=2_000_000_000)
    assert "is not allowed in project vision; use ballast-inference or" in refusal(built)


def test_project_limits_the_classes_of_its_pods() -> None:
    index = index_of(project("vision", "team-a", allowed_priority_classes=["ballast-training"]))
    assert decision_on(pod().noted(HALF), index).is_allowed
    built = pod().noted(HALF).labelled({names.LABEL_WORKLOAD_KIND: "build"})
    assert "use ballast-training" in refusal(built, index)


@pytest.mark.parametrize(
    ("listed", "named", "value", "is_allowed"),
    [
        ("train", "", None, True),
        ("train", "ballast-training", 50, True),
        ("ballast-training", "train", 50, True),
        ("ballast-training", "train", 200, False),
        ("train", "train", 200, True),
        ("train", "ballast-build", 100, False),
    ],
)
def test_alias_of_an_allowed_class_is_allowed_where_it_has_the_same_value(
    listed: str, named: str, value: int | None, is_allowed: bool
) -> None:
    index = index_of(project("vision", "team-a", allowed_priority_classes=[listed]))
    built = pod().noted(HALF)
    if value is not None:
        stated = PriorityClass(metadata=ObjectMeta(name=named, uid=named), value=value)
        index.deliver(Upserted(stated))
        built.with_spec(priorityClassName=named, priority=value)
    assert decision_on(built, index).is_allowed is is_allowed


@pytest.mark.parametrize(
    ("allowed", "kept"), [([], False), (["usual", "ballast-interactive"], True)]
)
def test_default_class_of_the_cluster_counts_as_none_unless_the_project_lists_it(
    allowed: list[str], kept: bool
) -> None:
    index = index_of(project("vision", "team-a", allowed_priority_classes=allowed))
    for name, value in (("usual", 1000), ("ballast-interactive", 75)):
        meta = ObjectMeta(name=name, uid=name)
        index.deliver(
            Upserted(PriorityClass(metadata=meta, value=value, global_default=name == "usual"))
        )
    # The API server has written the default class before the webhook is called.
    built = pod().noted(HALF).labelled({names.LABEL_WORKLOAD_KIND: "interactive"})
    after = stored(built.with_spec(priorityClassName="usual", priority=1000), index)
    found = after["spec"]["priorityClassName"], after["spec"]["priority"]
    assert found == (("usual", 1000) if kept else ("ballast-interactive", 75))
    may_be_evicted = after["metadata"]["labels"][names.LABEL_PREEMPTIBILITY]
    assert may_be_evicted == ("non-preemptible" if kept else "preemptible")


def test_copy_of_a_pod_that_lost_its_gpu_memory_is_refused() -> None:
    """`kubectl debug --copy-to` leaves annotations out, and keeps the containers' resources."""
    after = stored(pod().noted({"gpu-memory": "8192"}))
    copy = pod()
    copy.body["spec"] = after["spec"]
    assert "requests ballast.dev/gpu-milli: 1 without the annotation gpu-memory" in refusal(copy)
    assert decision_on(copy.noted({"gpu-memory": "8192"})).is_allowed
