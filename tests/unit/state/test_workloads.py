"""How pods become workloads."""

import pytest

from extender.api.events import Removed, Upserted
from extender.api.objects import (
    ObjectMeta,
    PriorityClass,
)
from extender.api.reasons import Reason
from tests.support.builders import (
    at_s,
    pod,
    pod_group,
    project,
)
from tests.unit.state.model import only, state_of, workloads_of


def test_a_pod_without_a_group_is_a_workload_of_its_own() -> None:
    workload = only(pod("a").needs(500).build())
    assert (workload.key, workload.is_group, workload.min_member) == ("team-a/a", False, 1)
    assert [p.demand.milli for p in workload.pods] == [500]


def test_pods_of_one_group_are_one_workload_sorted_by_name() -> None:
    workload = only(
        pod("b").needs(500).gang("g", 2).build(), pod("a").needs(500).gang("g", 2).build()
    )
    assert (workload.key, workload.name, workload.min_member) == ("team-a/g", "g", 2)
    assert [p.name for p in workload.pods] == ["a", "b"]


def test_the_coscheduling_plugins_label_makes_a_group_too() -> None:
    pods = [
        pod(name)
        .needs(500)
        .labels({"pod-group.scheduling.sigs.k8s.io/name": "g"})
        .labels({"pod-group.scheduling.sigs.k8s.io/min-available": "2"})
        .build()
        for name in "ab"
    ]
    assert only(*pods).min_member == 2


def test_min_member_of_the_pod_group_wins_over_the_pods() -> None:
    workload = only(pod_group("g", 3).build(), pod("a").needs(500).gang("g", 2).build())
    assert workload.min_member == 3


def test_a_pod_named_like_a_group_stays_a_workload_of_its_own() -> None:
    lone = pod("g").needs(500).build()
    member = pod("a").needs(500).gang("g", 1).build()
    for order in ([lone, member], [member, lone]):
        assert workloads_of(state_of(*order)).keys() == {"team-a/g", "team-a/g#pod"}


def test_a_malformed_min_member_is_a_problem() -> None:
    workload = only(pod("a").needs(500).gang("g").notes({"ballast.dev/min-member": "04"}).build())
    assert workload.problem is not None
    assert workload.problem.reason is Reason.INVALID_REQUEST


def test_a_gated_pod_that_asks_for_no_gpu_is_a_problem() -> None:
    workload = only(pod("a").host("2", "1Gi").build())
    assert workload.problem is not None
    assert workload.problem.reason is Reason.INVALID_REQUEST
    assert "requests no GPU" in workload.problem.detail


def test_a_launcher_without_gpu_and_gate_is_no_part_of_its_gang() -> None:
    workers = [pod(f"worker-{ix}").needs(1000).gang("g", 2).build() for ix in range(2)]
    workload = only(*workers, pod("launcher").host("1", "1Gi").gang("g", 2).direct().build())
    assert workload.problem is None
    assert {each.key for each in workload.pods} == {"team-a/worker-0", "team-a/worker-1"}


def test_a_refused_request_is_a_problem_and_not_a_lost_pod() -> None:
    workload = only(pod("a").notes({"gpu-fraction": "half"}).host("2", "1Gi").build())
    assert workload.problem is not None
    assert workload.problem.reason is Reason.INVALID_REQUEST
    assert workload.pods[0].demand.cpu_milli == 2000


def test_a_pod_without_gpus_and_gate_is_not_a_workload() -> None:
    assert workloads_of(state_of(pod("a").direct().build())) == {}


def test_a_pod_without_gpus_behind_our_gate_is_a_workload() -> None:
    assert only(pod("a").build()).pods[0].demand.devices == 0


def test_a_pod_that_ends_leaves_its_group() -> None:
    first, second = pod("a").needs(500).gang("g", 2), pod("b").needs(500).gang("g", 2)
    state = state_of(first.build(), second.build())
    state.apply(Upserted(first.ended().build()))
    assert [p.name for p in workloads_of(state)["team-a/g"].pods] == ["b"]


def test_a_namesake_with_a_new_uid_takes_the_place_of_the_old_pod() -> None:
    state = state_of(pod("a").needs(500).build(), pod("a").uid("uid-2").needs(250).build())
    (workload,) = workloads_of(state).values()
    assert [p.uid for p in workload.pods] == ["uid-2"]


def test_a_removed_pod_does_not_come_back_by_a_late_answer() -> None:
    late = pod("a").needs(500).build()
    state = state_of(late)
    state.apply(Removed(type(late), "uid-a", "team-a", "a"))
    state.apply(Upserted(late))
    assert workloads_of(state) == {}


def test_an_older_version_of_a_pod_is_passed_over() -> None:
    state = state_of(pod("a").needs(500).version(9).bound("n1").build())
    state.apply(Upserted(pod("a").needs(500).version(8).build()))
    assert workloads_of(state)["team-a/a"].pods[0].state == "bound"


@pytest.mark.parametrize(
    ("priority", "word", "is_preemptible"),
    [
        (50, "", True),
        (100, "", False),
        (125, "preemptible", True),
        (50, "non-preemptible", False),
    ],
)
def test_preemptibility_follows_priority_unless_said(
    priority: int, word: str, is_preemptible: bool
) -> None:
    waiting = pod("a").needs(500).priority(priority)
    if word:
        waiting.preemptibility(word)
    assert only(waiting.build()).is_preemptible is is_preemptible


def test_a_group_has_its_pods_highest_priority_and_is_preemptible_only_as_a_whole() -> None:
    workload = only(
        pod("a").needs(500).gang("g").priority(50).build(),
        pod("b").needs(500).gang("g").priority(100).build(),
    )
    assert (workload.priority, workload.is_preemptible) == (100, False)


def test_the_pod_groups_priority_class_and_word_win() -> None:
    workload = only(
        pod_group("g", 1).priority_class("ballast-inference").preemptibility("Preemptible").build(),
        pod("a").needs(500).gang("g").build(),
    )
    assert (workload.priority, workload.is_preemptible) == (125, True)


def test_a_group_may_name_an_alias_of_a_priority_class() -> None:
    workload = only(
        pod_group("g", 1).priority_class("build").build(), pod("a").needs(500).gang("g").build()
    )
    assert (workload.priority, workload.is_preemptible) == (100, False)


def test_a_priority_class_of_the_cluster_gives_a_group_its_value() -> None:
    state = state_of(
        pod_group("g", 1).priority_class("urgent").build(), pod("a").needs(500).gang("g").build()
    )
    before = workloads_of(state)["team-a/g"]
    assert (before.priority, before.unknown_class) == (50, "urgent")
    state.apply(Upserted(PriorityClass(ObjectMeta(name="urgent", uid="u"), value=90)))
    after = workloads_of(state)["team-a/g"]
    assert (after.priority, after.unknown_class) == (90, "")


def test_a_group_is_as_old_as_its_oldest_part() -> None:
    pods = [
        pod("a").needs(500).gang("g").created(70).build(),
        pod("b").needs(500).gang("g").created(60).build(),
    ]
    assert only(*pods).created_at == 60
    assert only(*pods, pod_group("g", 1).created(50).build()).created_at == 50
    assert at_s(50).timestamp() == 50


def test_a_pod_that_selects_by_a_new_label_rebuilds_only_pods_that_have_it() -> None:
    """Else a tenant could have a hundred thousand pods rebuilt by each pod of its own."""
    state = state_of(
        project("team-a").build(),
        pod("has-it").needs(1000).labels({"role": "db"}).build(),
        pod("has-not").needs(1000).labels({"app": "db"}).build(),
    )
    before = state.workloads()
    state.apply(Upserted(pod("new").needs(1000).apart("zone", role="db").build()))
    after = state.workloads()
    assert after["team-a/has-it"].pods[0].labels == (("role", "db"),)
    assert after["team-a/has-not"] is before["team-a/has-not"]


def test_reading_a_pod_of_a_gang_shows_its_change_and_does_not_rebuild_the_gang() -> None:
    members = [pod(name).needs(500).gang("g", 2) for name in ("a", "b")]
    state = state_of(*(each.build() for each in members))
    (before,) = state.workloads().values()
    state.apply(Upserted(members[0].version(2).terminating().build()))
    read = state.pod("uid-a")
    assert read is not None
    assert read.is_terminating
    assert state.workload_of(read) is before
    (after,) = state.workloads().values()
    assert after.pods[0] is read
    assert state.workload_of(read) is after
