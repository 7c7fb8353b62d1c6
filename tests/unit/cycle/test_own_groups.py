"""Groups that the controller creates: owners, deletion, and the age that they pass on."""

from typing import Any
from unittest.mock import create_autospec

import pytest

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.api.reasons import Reason
from extender.cycle.keepers.own_groups import KEPT_S, LOOK_S, OwnGroups, group_of
from extender.cycle.pod_events import PodEvents
from extender.kube.client import Client
from extender.kube.recorder import EventRecorder
from extender.state.cluster import ClusterState
from tests.support.builders import pod, pod_group
from tests.unit.state.model import state_of

UNUSED: Any = object()


def groups_over(state: ClusterState) -> OwnGroups:
    """The part that decides; it writes nothing by itself."""
    client: Client = UNUSED
    return OwnGroups(client, state, PodEvents(state, EventRecorder(client, "me")))


def age_of(state: ClusterState, key: str = "team-a/g") -> int:
    state.validate_state()
    return state.workloads()[key].created_at


def test_a_group_of_ours_goes_some_time_after_its_last_pod() -> None:
    member = pod("a").needs(1000).gang("g", 2).build()
    state = state_of(pod_group("g", 2).made_for("uid-job").build(), member)
    groups = groups_over(state)
    assert groups.over(state.snapshot(0), 0.0) == []
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert groups.over(state.snapshot(0), 100.0) == []
    assert groups.over(state.snapshot(0), 100.0 + KEPT_S) == ["team-a/g"]


def test_a_group_outlives_the_longest_wait_of_a_job_for_new_pods() -> None:
    state = state_of(pod_group("g", 8).made_for("uid-job").build())
    groups = groups_over(state)
    assert groups.over(state.snapshot(0), 0.0) == []
    assert groups.over(state.snapshot(0), 10 * 60 + LOOK_S) == []


def test_a_pod_that_comes_back_keeps_the_group() -> None:
    state = state_of(pod_group("g", 2).made_for("uid-job").build())
    groups = groups_over(state)
    groups.over(state.snapshot(0), 0.0)
    state.apply(Upserted(pod("a").needs(1000).gang("g", 2).build()))
    groups.over(state.snapshot(0), KEPT_S / 2)
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert groups.over(state.snapshot(0), KEPT_S) == []


def test_a_group_that_a_person_made_stays() -> None:
    state = state_of(pod_group("g", 2).build())
    groups = groups_over(state)
    groups.over(state.snapshot(0), 0.0)
    assert groups.over(state.snapshot(0), KEPT_S) == []


def test_a_gang_made_again_by_the_same_controller_keeps_its_age() -> None:
    group = pod_group("g", 2).made_for("uid-job").created(500).build()
    assert age_of(state_of(group, pod("a").gang("g", 2).needs(1000).created(9000).build())) == 500


def test_another_gang_of_the_same_name_does_not_inherit_the_age() -> None:
    group = pod_group("g", 2).made_for("uid-old").created(500).build()
    later = pod("a").made_by("uid-new").gang("g", 2).needs(1000).created(9000).build()
    assert age_of(state_of(group, later)) == 9000


def test_a_group_that_a_person_made_lends_its_age_to_all() -> None:
    group = pod_group("g", 2).created(500).build()
    later = pod("a").made_by("uid-new").gang("g", 2).needs(1000).created(9000).build()
    assert age_of(state_of(group, later)) == 500


def test_a_group_made_for_pods_repeats_their_minimum() -> None:
    state = state_of(pod("a").needs(1000).gang("g", 2).build())
    body = group_of(state.workloads()["team-a/g"], [])
    assert body["spec"] == {"minMember": 2}
    assert body["metadata"]["annotations"] == {"ballast.dev/min-member": "2"}


def test_a_group_is_sized_by_its_pods_or_by_a_person() -> None:
    bare = pod("a").needs(1000).gang("g").build()
    for objects, is_sized in (
        ([bare], False),
        ([bare, pod_group("g", 1).made_for("uid-job").build()], False),
        ([bare, pod_group("g", 2).build()], True),
        ([pod("b").needs(1000).gang("g", 1).build()], True),
    ):
        state = state_of(*objects)
        assert state.is_sized(state.workloads()["team-a/g"]) is is_sized


@pytest.mark.parametrize(
    ("min_member", "n_pods", "n_told"), [(0, 2, 1), (0, 1, 0), (2, 2, 0)], ids=str
)
async def test_a_group_of_unknown_size_is_told_once_on_a_pod_and_its_owner(
    min_member: int, n_pods: int, n_told: int
) -> None:
    pods = [pod(name).needs(1000).gang("g", min_member).build() for name in "ab"[:n_pods]]
    state = state_of(pod_group("g", 1).made_for("uid-job").build(), *pods)
    recorder: Any = create_autospec(EventRecorder, instance=True)
    groups = OwnGroups(UNUSED, state, PodEvents(state, recorder))
    for now in (0.0, 1.0):
        await groups.keep(state.snapshot(0), ["team-a/g"], now)
    told = [(call.args[0].kind, call.args[1]) for call in recorder.record.call_args_list]
    assert told == [(kind, Reason.GANG_SIZE_UNKNOWN) for kind in ("Pod", "Job")] * n_told
