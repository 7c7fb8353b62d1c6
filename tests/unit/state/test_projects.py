"""Which project a workload belongs to."""

from extender.api.events import Upserted
from extender.api.reasons import Reason
from tests.support.builders import (
    pod,
    pod_group,
    project,
)
from tests.unit.state.model import only, state_of, workloads_of


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
