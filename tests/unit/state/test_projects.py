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
    assert {view.project for view in views.values()} == {"team-a"}
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


def test_waiting_work_goes_with_its_namespace_to_another_project() -> None:
    """The webhook wrote the label of the first project on them, and no one can change it."""
    state = state_of(
        project("before").namespaces("team-a").build(),
        pod("runs").needs(500).gang("g").project("before").bound("n1").build(),
        pod("waits").needs(500).gang("g").project("before").build(),
    )
    state.apply(Upserted(project("before").namespaces("other").build()))
    state.apply(Upserted(project("after").namespaces("team-a").build()))
    state.apply(Upserted(pod("again").needs(500).gang("g").project("after").build()))
    workload = workloads_of(state)["team-a/g"]
    assert (workload.project, workload.problem, len(workload.pods)) == ("after", None, 3)


def test_a_pod_group_that_names_another_teams_project_does_not_start() -> None:
    workload = only(
        project("team-b").build(),
        pod_group("g", 1).project("team-b").build(),
        pod("a").needs(500).gang("g").project("team-b").build(),
    )
    assert workload.project == "team-a"
    assert workload.problem is not None
    assert workload.problem.reason is Reason.UNKNOWN_PROJECT
    told = "namespace team-a belongs to project team-a, not to 'team-b'"
    assert workload.problem.detail == told


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
