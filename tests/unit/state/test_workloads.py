"""How pods become workloads."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.kinds import Elastic, ElasticNode
from extender.api.objects import (
    Affinity,
    ClaimSource,
    Condition,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    Port,
    PriorityClass,
    Requirement,
    Volume,
)
from extender.api.reasons import Reason, sentence
from extender.cycle.pods.release import release_patch
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.pods.claims import VolumeView
from extender.state.refusals import Refusals, write_refusals
from tests.support.builders import (
    at_s,
    department,
    gpu_node,
    node,
    part,
    pod,
    pod_group,
    pool,
    project,
    row,
)


def state_of(*objects: Any) -> ClusterState:
    state = ClusterState()
    for obj in (department("science").build(), *objects):
        state.apply(Upserted(obj))
    return state


def workloads_of(state: ClusterState) -> dict[str, WorkloadView]:
    state.validate_state()
    return dict(state.snapshot(0).workloads)


def only(*objects: Any) -> WorkloadView:
    """The one workload there is, in a cluster where `team-a` has a project."""
    (workload,) = workloads_of(state_of(project("team-a").build(), *objects)).values()
    return workload


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
    assert "asks for no GPU" in workload.problem.detail


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


# -- project ---------------------------------------------------------------------------------


def test_the_project_is_the_only_one_that_lists_the_namespace() -> None:
    assert only(pod("a").needs(500).build()).project == "team-a"


def test_a_namespace_belongs_to_the_oldest_project_that_lists_it() -> None:
    state = state_of(
        project("team-a").build(),
        project("a-younger").namespaces("team-a").created(1_001).build(),
        pod("a").needs(500).project("a-younger").build(),
        pod("b").needs(500).build(),
        pod("c").needs(500).project("a-younger").bound("n1").build(),
    )
    views = workloads_of(state)
    problem = views["team-a/a"].problem
    assert problem is not None
    assert problem.reason is Reason.UNKNOWN_PROJECT
    assert problem.detail == "namespace team-a belongs to project team-a, not to 'a-younger'"
    assert views["team-a/b"].project == "team-a"
    assert views["team-a/c"].project == "team-a"
    (told,) = (each for each in state.problems() if each.fault == "NamespaceTaken")
    assert (told.name, "older GpuProject team-a" in told.text) == ("a-younger", True)


def test_projects_of_one_second_own_a_namespace_by_name() -> None:
    younger = project("z").namespaces("team-a").build()
    state = state_of(project("team-a").build(), younger, pod("b").needs(500).build())
    assert workloads_of(state)["team-a/b"].project == "team-a"
    state.apply(Upserted(project("a").namespaces("team-a").build()))
    assert workloads_of(state)["team-a/b"].project == "a"


def test_the_next_project_owns_a_namespace_that_the_oldest_gives_up() -> None:
    younger = project("younger").namespaces("team-a").created(1_001).build()
    state = state_of(project("team-a").build(), younger, pod("b").needs(500).build())
    state.apply(Upserted(project("team-a").namespaces("other").build()))
    assert workloads_of(state)["team-a/b"].project == "younger"
    assert not [each for each in state.problems() if each.fault == "NamespaceTaken"]


def test_a_project_made_anew_is_younger_than_the_one_that_waited() -> None:
    younger = project("younger").namespaces("team-a").created(1_001).build()
    state = state_of(project("team-a").build(), younger, pod("b").needs(500).build())
    state.apply(Upserted(project("team-a").uid("anew").created(1_002).build()))
    assert workloads_of(state)["team-a/b"].project == "younger"


def test_a_label_of_another_teams_project_is_refused() -> None:
    state = state_of(project("team-b").build(), pod("a").needs(500).project("team-b").build())
    workload = workloads_of(state)["team-a/a"]
    assert workload.project == ""
    assert workload.problem is not None
    assert workload.problem.reason is Reason.UNKNOWN_PROJECT


def test_the_pod_groups_project_wins_over_the_pods_label() -> None:
    workload = only(
        project("p").namespaces("team-a").build(),
        pod_group("g", 1).project("p").build(),
        pod("a").needs(500).gang("g").project("team-a").build(),
    )
    assert workload.project == "p"


def test_pods_of_one_group_that_name_two_projects_are_a_problem() -> None:
    workload = only(
        project("p").namespaces("team-a").build(),
        pod("a").needs(500).gang("g").project("p").build(),
        pod("b").needs(500).gang("g").project("team-a").build(),
    )
    assert workload.problem is not None
    assert workload.problem.reason is Reason.UNKNOWN_PROJECT


def test_a_project_that_comes_later_adopts_waiting_pods() -> None:
    state = state_of(pod("a").needs(500).build())
    assert workloads_of(state)["team-a/a"].project == ""
    state.apply(Upserted(project("team-a").build()))
    workload = workloads_of(state)["team-a/a"]
    assert (workload.project, workload.problem) == ("team-a", None)


def test_a_projects_node_labels_for_a_kind_of_work_bind_its_pods() -> None:
    state = state_of(
        project("team-a").places("training", zone="z1").build(),
        pod("t").needs(500).kind("training").on_nodes(disk="ssd").build(),
        pod("i").needs(500).kind("inference").build(),
    )
    views = workloads_of(state)
    selector = views["team-a/t"].pods[0].constraints.node_selector
    assert selector == (("disk", "ssd"), ("zone", "z1"))
    assert views["team-a/i"].pods[0].constraints.node_selector == ()


def test_equal_constraints_are_one_object() -> None:
    state = state_of(*(pod(name).needs(500).tolerates("gpu").build() for name in "ab"))
    first, second = workloads_of(state).values()
    assert first.pods[0].constraints is second.pods[0].constraints


# -- node pools ------------------------------------------------------------------------------


def test_the_pods_own_node_pools_win() -> None:
    workload = only(
        pool("x", a="1").build(),
        pool("y", a="2").build(),
        pod("a").needs(500).pools("y", "x").build(),
    )
    assert workload.pools == ("y", "x")


def test_an_unknown_node_pool_is_a_problem() -> None:
    workload = only(pod("a").needs(500).pools("x").build())
    assert workload.problem is not None
    assert workload.problem.reason is Reason.UNKNOWN_NODE_POOL


def test_without_a_word_the_projects_default_pools_count() -> None:
    state = state_of(
        pool("x", a="1").build(),
        pool("y", a="2").build(),
        project("team-a").default_pools("y").quota(4, pool="x").build(),
        pod("a").needs(500).build(),
    )
    assert workloads_of(state)["team-a/a"].pools == ("y",)


def test_without_defaults_the_pools_of_the_projects_figures_count() -> None:
    state = state_of(
        pool("x", a="1").build(),
        pool("y", a="2").build(),
        project("team-a").quota(4, pool="y").build(),
        pod("a").needs(500).build(),
    )
    assert workloads_of(state)["team-a/a"].pools == ("y",)


def test_without_any_figures_all_pools_count() -> None:
    workload = only(pool("x", a="1").build(), pod("a").needs(500).build())
    assert workload.pools == ("default", "x")


def test_a_node_pool_that_comes_later_mends_the_workload() -> None:
    state = state_of(project("team-a").build(), pod("a").needs(500).pools("x").build())
    assert workloads_of(state)["team-a/a"].problem is not None
    state.apply(Upserted(pool("x", a="1").build()))
    assert workloads_of(state)["team-a/a"].problem is None


# -- priority, preemptibility, age -----------------------------------------------------------


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
    assert workloads_of(state)["team-a/g"].priority == 50
    state.apply(Upserted(PriorityClass(ObjectMeta(name="urgent", uid="u"), value=90)))
    assert workloads_of(state)["team-a/g"].priority == 90


def test_a_group_is_as_old_as_its_oldest_part() -> None:
    pods = [
        pod("a").needs(500).gang("g").created(70).build(),
        pod("b").needs(500).gang("g").created(60).build(),
    ]
    assert only(*pods).created_at == 60
    assert only(*pods, pod_group("g", 1).created(50).build()).created_at == 50
    assert at_s(50).timestamp() == 50


# -- rows ------------------------------------------------------------------------------------


def test_a_pod_is_gated_nominated_reserved_and_bound_in_turn() -> None:
    waiting = pod("a").needs(500)
    state = state_of(node("n1").gpus(1).build(), waiting.build())
    seen = [workloads_of(state)["team-a/a"].pods[0].state]
    steps: list[Any] = [
        gpu_node("n1", 1).holds(row(waiting.build(), part(0, 500), "nominated")).build(),
        gpu_node("n1", 1).version(2).holds(row(waiting.build(), part(0, 500), epoch=7)).build(),
        waiting.version(2).released("n1", 7).build(),
        waiting.version(3).bound("n1", started=1_500).build(),
    ]
    for step in steps:
        state.apply(Upserted(step))
        seen.append(workloads_of(state)["team-a/a"].pods[0].state)
    assert seen == ["gated", "nominated", "reserved", "reserved", "bound"]
    bound = state.pod("uid-a")
    assert bound is not None
    assert (bound.node, bound.epoch, bound.started_at) == ("n1", 7, 1_500)
    assert bound.cards == tuple(part(0, 500))


def test_a_direct_pod_is_foreign_until_it_has_a_row() -> None:
    direct = pod("a").needs(500).direct().build()
    state = state_of(direct)
    assert workloads_of(state)["team-a/a"].pods[0].state == "foreign"
    state.apply(Upserted(gpu_node("n1", 1).holds(row(direct, part(0, 500))).build()))
    assert workloads_of(state)["team-a/a"].pods[0].state == "reserved"


def test_a_pod_without_gate_that_may_not_be_evicted_waits_for_a_plan() -> None:
    """The extender and the controller could give the same quota to two such pods at once."""
    firm = pod("a").needs(500).direct().kind("inference").build()
    assert only(firm).pods[0].state == "gated"


def test_gates_of_others_are_told_apart_from_ours() -> None:
    gated = pod("a").needs(500).build()
    assert only(gated).pods[0].other_gates == ()


# -- unfinished plans ------------------------------------------------------------------------


def test_a_reserved_pod_that_is_still_gated_is_unfinished() -> None:
    waiting = pod("a").needs(500).build()
    state = state_of(waiting, gpu_node("n1", 1).holds(row(waiting, part(0, 500))).build())
    (left,) = state.unfinished()
    assert [p.name for p in left.held] == ["a"]
    assert not left.is_partial


def test_a_gang_with_some_of_its_rows_is_partial() -> None:
    first, second = pod("a").needs(500).gang("g", 2), pod("b").needs(500).gang("g", 2)
    ledger = gpu_node("n1", 1).holds(row(first.build(), part(0, 500), "bound")).build()
    state = state_of(first.bound("n1").build(), second.build(), ledger)
    (left,) = state.unfinished()
    assert left.is_partial
    assert left.held == ()


def test_a_gang_whose_other_members_have_ended_is_not_partial() -> None:
    first, second = pod("a").needs(500).gang("g", 2), pod("b").needs(500).gang("g", 2)
    ledger = gpu_node("n1", 1).holds(row(first.build(), part(0, 500), "bound")).build()
    state = state_of(first.bound("n1").build(), second.ended().build(), ledger)
    assert state.unfinished() == []


def test_a_late_member_of_a_gang_that_is_ending_is_finished_and_not_taken_back() -> None:
    first, second, third = (pod(name).needs(500).gang("g", 3) for name in "abc")
    rows = row(first.build(), part(0, 500), "bound"), row(second.build(), part(0, 500))
    ledger = gpu_node("n1", 1).holds(*rows).build()
    state = state_of(first.bound("n1").build(), second.build(), third.ended().build(), ledger)
    (left,) = state.unfinished()
    assert not left.is_partial
    assert [p.name for p in left.held] == ["b"]


def test_a_gang_of_which_nothing_runs_is_partial_even_when_it_lost_a_member() -> None:
    first, second = pod("a").needs(500).gang("g", 3).build(), pod("b").needs(500).gang("g", 3)
    ledger = gpu_node("n1", 1).holds(row(first, part(0, 500))).build()
    (left,) = state_of(first, second.build(), ledger).unfinished()
    assert left.is_partial


@pytest.mark.parametrize("wish", [None, [NodeSelectorTerm([Requirement("zone", "In", ["a"])])]])
def test_the_nodes_of_a_release_are_not_what_the_pod_wants_of_nodes(
    wish: list[NodeSelectorTerm] | None,
) -> None:
    """Else a pod could never be moved: its successor may go anywhere."""
    held = pod("a").needs(500).build()
    selector = NodeSelector(wish) if wish else None
    asked = replace(held.spec, affinity=Affinity(NodeAffinity(selector)))
    before = only(replace(held, spec=asked)).pods[0]
    patch = release_patch(before, 7, "n1", ("n1", "n2"))["spec"]["affinity"]["nodeAffinity"]
    pinned = msgspec.convert(patch, NodeAffinity)
    released = pod("a").needs(500).released("n1", 7).build()
    spec = replace(released.spec, affinity=Affinity(pinned))
    waits = only(replace(released, spec=spec)).pods[0].constraints
    assert waits == msgspec.structs.replace(before.constraints, only_nodes=("n1", "n2"))
    running = replace(released, spec=replace(spec, node_name="n1"))
    ledger = gpu_node("n1", 1).holds(row(running, part(0, 500))).build()
    assert only(running, ledger).pods[0].constraints == before.constraints


@pytest.mark.parametrize(("said", "checkpoint_s"), [("1800", 1800), ("0", 0), ("30m", None)])
def test_a_pod_says_how_often_it_saves_its_work(said: str, checkpoint_s: int | None) -> None:
    notes = {names.ANNOTATION_CHECKPOINT: said}
    (found,) = only(pod("a").needs(500).notes(notes).build()).pods
    assert found.checkpoint_s == checkpoint_s


@pytest.mark.parametrize(
    ("said", "deadline_s", "run_s"),
    [("7200", None, 7200), ("", 600, 600), ("7200", 600, 600), ("60", 600, 60), ("2h", None, None)],
)
def test_a_pod_says_how_long_it_runs(said: str, deadline_s: int | None, run_s: int | None) -> None:
    made = pod("a").needs(500).notes({names.ANNOTATION_EXPECTED_RUN: said} if said else {}).build()
    made = replace(made, spec=replace(made.spec, active_deadline_seconds=deadline_s))
    assert only(made).expected_run_s == run_s


def test_a_workload_runs_as_long_as_the_longest_of_its_pods_if_each_says_so() -> None:
    def member(name: str, said: str) -> Pod:
        notes = {names.ANNOTATION_EXPECTED_RUN: said} if said else {}
        return pod(name).needs(500).gang("g", 2).notes(notes).build()

    assert only(member("a", "60"), member("b", "90")).expected_run_s == 90
    assert only(member("a", "60"), member("b", "")).expected_run_s is None


@pytest.mark.parametrize(("said", "weight"), [("3", 3), ("0", 1), ("1001", 1), ("", 1)])
def test_a_pod_states_the_weight_of_its_workload(said: str, weight: int) -> None:
    notes = {names.ANNOTATION_WEIGHT: said}
    assert only(pod("a").needs(500).notes(notes).build()).weight == weight


def test_a_pod_that_was_refused_twice_is_in_doubt_after_a_change_of_leader() -> None:
    refusals = Refusals().after("n1", 1000, 30).after("n2", 1000, 30, "no free ports")
    notes = {names.ANNOTATION_REFUSED: write_refusals(refusals), names.ANNOTATION_REVOKED: "n2 7 1"}
    workload = only(pod("a").direct().needs(500).notes(notes).build())
    assert workload.doubt is not None
    assert "no free ports" in workload.doubt.detail
    (waits,) = workload.pods
    assert waits.state == "gated"
    assert waits.constraints.barred == (("n1", 1030), ("n2", 1030))


def test_a_pod_that_got_a_row_but_not_yet_its_new_plan_is_finished_by_the_next_leader() -> None:
    waits = pod("a").direct().needs(500).notes({names.ANNOTATION_REVOKED: "n2 7 1"}).build()
    ledger = gpu_node("n1", 1).holds(row(waits, part(0, 500), epoch=9)).build()
    (left,) = state_of(waits, ledger).unfinished()
    assert [p.name for p in left.held] == ["a"]
    planned = pod("a").needs(500).released("n1", 9).build()
    assert state_of(planned, ledger).unfinished() == []


def test_a_row_of_a_direct_pod_is_left_to_the_extender() -> None:
    direct = pod("a").direct().needs(500).build()
    ledger = gpu_node("n1", 1).holds(row(direct, part(0, 500), epoch=0)).build()
    assert state_of(direct, ledger).unfinished() == []


def test_a_pod_of_a_group_waits_for_a_plan_even_without_our_gate() -> None:
    (found,) = only(pod("a").direct().needs(500).gang("g", 2).build()).pods
    assert (found.state, found.is_direct) == ("gated", False)


@pytest.mark.parametrize(
    ("message", "reason", "answer"),
    [
        ("0/2 nodes are available", "Unschedulable", "0/2 nodes are available"),
        ("held by its gates", "SchedulingGated", ""),
        ("the extender is away", "SchedulerError", ""),
        (sentence(Reason.CARDS_BUSY), "SchedulerError", sentence(Reason.CARDS_BUSY)),
        (sentence(Reason.PLAN_NOT_RESERVED), "SchedulerError", ""),
        (f"2 {Reason.NOT_PLANNED}: ...", "Unschedulable", ""),
    ],
)
def test_what_kube_scheduler_says_is_an_answer_only_if_it_is_about_the_plan(
    message: str, reason: str, answer: str
) -> None:
    made = pod("a").needs(500).released("n1", 7).build()
    said = Condition(type="PodScheduled", status="False", reason=reason, message=message)
    made.status.conditions = [said]
    assert only(made).pods[0].answer == answer


def with_claim(name: str) -> Pod:
    made = pod("a").needs(500).build()
    volume = Volume(name="data", persistent_volume_claim=ClaimSource(name))
    return replace(made, spec=replace(made.spec, volumes=[volume]))


def test_a_pod_whose_claim_is_not_met_can_run_nowhere_until_it_is() -> None:
    state = state_of(project("team-a").build(), with_claim("data"))
    assert state.wanted_claims() == {("team-a", "data")}

    def problem() -> Reason | None:
        (workload,) = workloads_of(state).values()
        return workload.problem.reason if workload.problem else None

    assert problem() is Reason.CLAIMS_NOT_MET
    state.set_volume("team-a", "data", VolumeView())
    assert problem() is None
    state.set_volume("team-a", "data", VolumeView(problem="it does not exist"))
    assert problem() is Reason.CLAIMS_NOT_MET


def test_the_node_affinity_of_a_volume_is_a_filter_on_nodes() -> None:
    state = state_of(project("team-a").build(), with_claim("data"))
    zone = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["a"])])])
    state.set_volume("team-a", "data", VolumeView(affinity=zone))
    (workload,) = workloads_of(state).values()
    assert workload.pods[0].constraints.volumes == (zone,)


def test_claims_of_pods_that_run_are_read_where_nodes_are_emptied_and_the_pods_stay_meanwhile() -> (
    None
):
    made = with_claim("data")
    made = replace(made, spec=replace(made.spec, node_name="n1", scheduling_gates=None))
    ledger = gpu_node("n1", 1).holds(row(made, part(0, 500), "bound")).build()
    state = state_of(project("team-a").build(), node("n1").build(), ledger, made)
    assert state.wanted_claims() == set()
    kind = pool("default").build()
    sizes = Elastic(max_nodes=2, node=ElasticNode(gpus=8, cpu=8, memory_gib=8))
    for minutes, wanted in ((0, set()), (5, {("team-a", "data")})):
        elastic = replace(sizes, consolidate_after_minutes=minutes)
        state.apply(Upserted(replace(kind, spec=replace(kind.spec, elastic=elastic))))
        assert state.wanted_claims() == wanted

    def view() -> PodView:
        (workload,) = workloads_of(state).values()
        return workload.pods[0]

    assert view().stays
    zone = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["a"])])])
    state.set_volume("team-a", "data", VolumeView(affinity=zone))
    assert not view().stays
    assert view().constraints.volumes == (zone,)
    state.set_volume("team-a", "data", VolumeView(doubt="may be used by one pod alone"))
    assert view().stays


def test_a_host_port_is_left_to_kube_scheduler_and_puts_the_workload_in_doubt() -> None:
    made = pod("a").needs(500).build()
    made.spec.containers[0].ports = [Port(host_port=8080)]
    workload = only(made)
    assert workload.problem is None
    assert workload.doubt is not None
    assert "hostPort" in workload.doubt.detail
