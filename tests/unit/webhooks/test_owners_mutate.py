"""Changes to a pod because of its owner."""

import copy
from typing import Any

import jsonpatch
import pytest

from extender.api import names
from extender.api.aliases import GROUP_LABELS, MIN_MEMBER_KEYS
from tests.support.admission import PodDocument, index_of, pod, project, request_for, usual_index
from tests.support.owners import child, meta_of, unread
from webhooks.mutate import decide, read_pod, wants_origin
from webhooks.owners.origin import Gang, Origin
from webhooks.review import Decision

WORKERS = Origin(group="pytorchjob-resnet", gang=Gang(8), sub_group="worker")
ALONE = Origin(group="deployment-chat", is_alone=True)


def made() -> PodDocument:
    return child(unread("example.com/v1", "Simulation", "galaxy"))


def stored(built: PodDocument, origin: Origin) -> dict[str, Any]:
    decision = decide(request_for(built), usual_index(), origin)
    assert decision.is_allowed, decision.message
    after: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(built.body), list(decision.ops))
    return after


def labels(document: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = document["metadata"]["labels"]
    return found


def min_member(document: dict[str, Any]) -> str | None:
    found: str | None = document["metadata"]["annotations"].get(names.ANNOTATION_MIN_MEMBER)
    return found


def test_gang_of_the_owner_is_written_onto_the_pod() -> None:
    after = stored(made(), WORKERS)
    assert labels(after)[names.LABEL_POD_GROUP] == "pytorchjob-resnet"
    assert labels(after)[names.LABEL_SUB_GROUP] == "worker"
    assert min_member(after) == "8"


def test_group_without_a_minimum_states_none() -> None:
    after = stored(made(), Origin(group="simulation-galaxy"))
    assert labels(after)[names.LABEL_POD_GROUP] == "simulation-galaxy"
    assert min_member(after) is None


def test_pods_that_stand_for_themselves_get_no_group() -> None:
    after = stored(made(), ALONE)
    assert names.LABEL_POD_GROUP not in labels(after)
    assert labels(after)[names.LABEL_PREEMPTIBILITY] == "preemptible"


@pytest.mark.parametrize("key", GROUP_LABELS)
def test_group_that_the_pod_names_is_left_to_its_author(key: str) -> None:
    after = stored(made().labelled({key: "mine"}), WORKERS)
    assert labels(after)[names.LABEL_POD_GROUP] == "mine"
    assert names.LABEL_SUB_GROUP not in labels(after)


@pytest.mark.parametrize("key", GROUP_LABELS)
def test_group_that_the_pod_names_has_the_size_of_its_owner(key: str) -> None:
    assert min_member(stored(made().labelled({key: "mine"}), WORKERS)) == "8"
    assert min_member(stored(made().labelled({key: "mine"}), ALONE)) is None


def test_author_is_warned_of_a_group_without_a_size() -> None:
    built = pod().asking("nvidia.com/gpu", "1").labelled({names.LABEL_POD_GROUP: "mine"})
    (warning,) = decide(request_for(built), usual_index()).warnings
    assert "start one by one" in warning
    sized = built.noted({names.ANNOTATION_MIN_MEMBER: "2"})
    assert decide(request_for(sized), usual_index()).warnings == ()


@pytest.mark.parametrize("minimum", ["1", "3"])
@pytest.mark.parametrize("key", MIN_MEMBER_KEYS)
@pytest.mark.parametrize("origin", [WORKERS, ALONE], ids=["gang", "alone"])
def test_minimum_that_the_pod_states_counts_for_its_owners_group(
    key: str, origin: Origin, minimum: str
) -> None:
    built = made().noted({key: minimum})
    after = stored(built, origin)
    assert labels(after)[names.LABEL_POD_GROUP] == origin.group
    assert after["metadata"]["annotations"][key] == minimum
    assert min_member(after) in (None, minimum)
    assert decide(request_for(built), usual_index(), origin).warnings == ()


def test_sub_group_that_the_pod_names_stays() -> None:
    after = stored(made().labelled({names.LABEL_SUB_GROUP: "mine"}), WORKERS)
    assert labels(after)[names.LABEL_SUB_GROUP] == "mine"


ROLES = Origin(
    group="pytorchjob-resnet",
    gang=Gang(8, (("master", 1), ("worker", 7))),
    sub_group="worker",
)


def sub_groups(document: dict[str, Any]) -> str | None:
    found: str | None = document["metadata"]["annotations"].get(names.ANNOTATION_SUB_GROUPS)
    return found


def test_sub_groups_of_the_owner_are_written_onto_the_pod() -> None:
    after = stored(made(), ROLES)
    assert (min_member(after), sub_groups(after)) == ("8", "master=1,worker=7")
    assert labels(after)[names.LABEL_SUB_GROUP] == "worker"


@pytest.mark.parametrize(
    "built",
    [
        made().noted({names.ANNOTATION_MIN_MEMBER: "3"}),
        made().labelled({names.LABEL_POD_GROUP: "mine"}),
        made().labelled({names.LABEL_SUB_GROUP: "mine"}),
    ],
    ids=["minimum", "group", "sub-group"],
)
def test_sub_groups_of_the_owner_give_way_to_what_the_pod_says(built: PodDocument) -> None:
    assert sub_groups(stored(built, ROLES)) is None


def test_sub_groups_that_the_pod_states_count_for_its_owners_group() -> None:
    built = made().noted({names.ANNOTATION_SUB_GROUPS: "worker=2"})
    after = stored(built, ROLES)
    assert labels(after)[names.LABEL_POD_GROUP] == ROLES.group
    assert (min_member(after), sub_groups(after)) == (None, "worker=2")


@pytest.mark.parametrize(
    ("built", "refused"),
    [
        (made().noted({names.ANNOTATION_SUB_GROUPS: "Worker=2"}), "driver=1,workers=8"),
        (
            made().noted(
                {names.ANNOTATION_SUB_GROUPS: "worker=4", names.ANNOTATION_MIN_MEMBER: "3"}
            ),
            "more than min-member, 3",
        ),
    ],
)
def test_sub_groups_that_make_no_sense_are_refused(built: PodDocument, refused: str) -> None:
    decision = decide(request_for(built), usual_index(), ROLES)
    assert not decision.is_allowed
    assert refused in decision.message


@pytest.mark.parametrize(
    ("built", "kind", "priority_class"),
    [
        (made(), "inference", "ballast-inference"),
        (made().labelled({names.LABEL_WORKLOAD_KIND: "build"}), "build", "ballast-build"),
        (made().with_spec(priorityClassName="ballast-training"), "training", "ballast-training"),
        (made().with_spec(priorityClassName="mine", priority=7), "inference", "mine"),
    ],
)
def test_kind_of_work_is_the_owners_where_the_pod_says_nothing(
    built: PodDocument, kind: str, priority_class: str
) -> None:
    after = stored(built, Origin(work="inference", group="service-chat", is_alone=True))
    assert labels(after)[names.LABEL_WORKLOAD_KIND] == kind
    assert after["spec"]["priorityClassName"] == priority_class


@pytest.mark.parametrize(
    "origin", [WORKERS, ROLES, ALONE, Origin(work="interactive"), Origin(group="g")]
)
def test_applied_twice_is_as_once(origin: Origin) -> None:
    once = made()
    once.body = stored(once, origin)
    assert decide(request_for(once), usual_index(), origin).ops == ()
    assert decide(request_for(once), usual_index()).ops == ()


@pytest.mark.parametrize(
    "built",
    [
        pod().labelled({"app": "x"}),
        child(unread("example.com/v1", "Simulation", "galaxy")).with_spec(nodeName="n"),
    ],
)
def test_pod_that_is_not_ours_stays_as_it_is_whoever_made_it(built: PodDocument) -> None:
    assert decide(request_for(built), usual_index(), WORKERS).ops == ()


def test_pod_without_gpus_gets_no_group() -> None:
    built = pod().labelled({"runai/queue": "vision"})
    after = stored(built, WORKERS)
    assert names.LABEL_POD_GROUP not in labels(after)


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (made(), True),
        (made().labelled({names.LABEL_POD_GROUP: "mine"}), True),
        (made().labelled({names.LABEL_WORKLOAD_KIND: "build"}), True),
        (
            made().labelled({names.LABEL_POD_GROUP: "mine", names.LABEL_WORKLOAD_KIND: "training"}),
            True,
        ),
        (
            made()
            .labelled({names.LABEL_POD_GROUP: "mine", names.LABEL_WORKLOAD_KIND: "training"})
            .noted({names.ANNOTATION_MIN_MEMBER: "2"}),
            False,
        ),
        (pod().asking("nvidia.com/gpu", "1"), False),
        (pod().labelled({"runai/queue": "vision"}).owned_by("Job"), False),
    ],
    ids=["says nothing", "group", "kind", "group and kind", "all", "made by nobody", "no GPU"],
)
def test_owner_is_looked_for_only_where_it_matters(built: PodDocument, expected: bool) -> None:
    found = read_pod(request_for(built))
    assert not isinstance(found, Decision)
    assert wants_origin(found, usual_index()) is expected


def test_owner_is_not_looked_for_where_there_is_no_project() -> None:
    found = read_pod(request_for(made()))
    assert not isinstance(found, Decision)
    assert not wants_origin(found, index_of(project("speech", "team-b")))
    assert meta_of(made()).namespace == "team-a"
