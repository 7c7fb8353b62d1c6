"""Kubernetes' own PodGroups become ours when their pods are created."""

import asyncio
import copy
import json
from typing import Any

import jsonpatch
import msgspec
import pytest

from extender.api import names
from extender.api.objects import Pod
from extender.api.reasons import Refused
from tests.support.admission import PodDocument, pod, request_for, usual_index
from webhooks.mutate import judge, read_pod
from webhooks.native_groups import (
    VERSIONS,
    NativeGroup,
    join,
    names_native_group,
    read_group,
)
from webhooks.owners.origin import NO_OWNER, Owner
from webhooks.owners.trace import Asked
from webhooks.projects import ProjectIndex

GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}


def native(name: str = "train", **spec: Any) -> NativeGroup:
    body = {"metadata": {"name": name}, "spec": GANG | spec}
    return msgspec.json.decode(json.dumps(body), type=NativeGroup)


def member(group: str = "train") -> PodDocument:
    return pod().asking("nvidia.com/gpu", "1").with_spec(schedulingGroup={"podGroupName": group})


def read(built: PodDocument) -> Pod:
    found = read_pod(request_for(built))
    assert isinstance(found, Pod)
    return found


def stored(built: PodDocument, group: NativeGroup) -> dict[str, Any]:
    """The pod as it is created when its PodGroup is this."""
    found = read(built)
    assert not isinstance(join(found, group), Refused)
    decision = judge(found, request_for(built), usual_index(), NO_OWNER)
    assert decision.is_allowed, decision.message
    after: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(built.body), list(decision.ops))
    return after


def refusal(built: PodDocument, group: NativeGroup | None) -> str:
    found = join(read(built), group)
    assert isinstance(found, Refused)
    return found.detail


def test_pod_of_a_native_gang_is_given_our_words_and_one_scheduler() -> None:
    after = stored(member(), native())
    assert after["metadata"]["labels"][names.LABEL_POD_GROUP] == "train"
    assert after["metadata"]["annotations"][names.ANNOTATION_MIN_MEMBER] == "4"
    assert "schedulingGroup" not in after["spec"]


def test_group_of_the_basic_policy_starts_pod_by_pod() -> None:
    after = stored(member(), native(schedulingPolicy={"basic": {}}))
    assert after["metadata"]["annotations"][names.ANNOTATION_MIN_MEMBER] == "1"


def test_topology_key_is_the_level_that_all_pods_share() -> None:
    key = "topology.kubernetes.io/rack"
    after = stored(member(), native(schedulingConstraints={"topology": [{"key": key}]}))
    assert after["metadata"]["annotations"][names.ANNOTATION_TOPOLOGY_REQUIRED] == key


def test_name_that_is_no_label_value_is_one_group_all_the_same() -> None:
    long = ".".join(["train"] * 20)
    label = stored(member(long), native(long))["metadata"]["labels"][names.LABEL_POD_GROUP]
    assert len(label) <= 63
    assert label == stored(member(long), native(long))["metadata"]["labels"][names.LABEL_POD_GROUP]
    assert (
        label
        != stored(member(long), native(f"{long}.x"))["metadata"]["labels"][names.LABEL_POD_GROUP]
    )


@pytest.mark.parametrize("mode", ["PodGroup", {"all": {}}])
def test_mode_that_stops_all_pods_is_kept_for_min_count_and_says_so(mode: object) -> None:
    warnings = join(read(member()), native(disruptionMode=mode))
    assert isinstance(warnings, tuple)
    assert "beyond minCount" in warnings[0]


@pytest.mark.parametrize("mode", ["Pod", {"single": {}}, None])
def test_other_modes_need_no_word(mode: object) -> None:
    assert join(read(member()), native(disruptionMode=mode)) == ()


@pytest.mark.parametrize(
    ("built", "group", "words"),
    [
        (member(), None, "create it before its pods"),
        (member(), native(parentCompositePodGroupName="whole"), "CompositePodGroup"),
        (member().labelled({names.LABEL_POD_GROUP: "other"}), native(), "keep one of them"),
        (member().noted({names.ANNOTATION_MIN_MEMBER: "3"}), native(), "keep one of them"),
        (
            member().noted({names.ANNOTATION_TOPOLOGY_REQUIRED: "zone"}),
            native(schedulingConstraints={"topology": [{"key": "rack"}]}),
            "keep one of them",
        ),
        (member(), native(priorityClassName="ballast-build"), "give both the same"),
        (
            member().with_spec(priorityClassName="ballast-training"),
            native(priorityClassName="ballast-build"),
            "give both the same",
        ),
        (member(""), None, "names no PodGroup"),
        (
            pod().asking("nvidia.com/gpu", "1").with_spec(workloadRef={"name": "w"}),
            None,
            "Kubernetes 1.35",
        ),
    ],
)
def test_what_is_not_kept_is_refused(
    built: PodDocument, group: NativeGroup | None, words: str
) -> None:
    assert words in refusal(built, group)


def test_priority_class_that_pod_and_group_name_is_the_pods() -> None:
    built = member().with_spec(priorityClassName="ballast-build", priority=100)
    after = stored(built, native(priorityClassName="ballast-build"))
    assert after["spec"]["priorityClassName"] == "ballast-build"


def test_same_words_of_ours_beside_it_are_accepted() -> None:
    words = member().labelled({names.LABEL_POD_GROUP: "train"})
    assert stored(words.noted({names.ANNOTATION_MIN_MEMBER: "4"}), native())


def test_only_gpu_pods_of_projects_leave_their_native_group() -> None:
    assert names_native_group(read(member()), usual_index())
    assert not names_native_group(read(member()), ProjectIndex())
    assert not names_native_group(read(pod().asking("nvidia.com/gpu", "1")), usual_index())


@pytest.mark.parametrize("version", VERSIONS)
def test_group_is_read_in_the_version_that_the_cluster_has(version: str) -> None:
    async def reader(asked: Asked) -> Owner | None:
        return native(asked.name) if asked.version == version else None

    found = asyncio.run(read_group(read(member()), reader))
    assert found is not None
    assert found.metadata.name == "train"
