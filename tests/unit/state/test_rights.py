"""The controller's own checks of priority classes and projects, whatever admission let through."""

from typing import Any

import pytest

from extender.api.kinds import GpuProject
from extender.api.reasons import Reason
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, pod, pod_group, project, row, whole
from tests.unit.state import model
from tests.unit.state.model import view_of


def allowing(name: str, *classes: str) -> GpuProject:
    built = project(name).namespaces("team-a").build()
    built.spec.allowed_priority_classes = list(classes)
    return built


def state_of(*objects: Any) -> ClusterState:
    return model.state_of(node("n1").gpus(8).build(), *objects)


def reason_of(state: ClusterState) -> Reason | None:
    problem = view_of(state).problem
    return problem.reason if problem else None


@pytest.mark.parametrize(
    ("named", "is_allowed"),
    [
        ("ballast-training", True),
        ("train", True),
        ("ballast-inference", False),
        ("inference", False),
        ("system-node-critical", False),
    ],
)
def test_a_class_that_a_group_names_counts_only_where_its_project_allows_it(
    named: str, is_allowed: bool
) -> None:
    two_projects = (allowing("p", "ballast-training"), allowing("q"))
    group = pod_group("g", 1).priority_class(named).build()
    state = state_of(*two_projects, group, pod("a").needs(1000).gang("g").project("p").build())
    assert reason_of(state) == (None if is_allowed else Reason.PRIORITY_CLASS_NOT_ALLOWED)
    assert (view_of(state).priority, view_of(state).is_preemptible) == (50, True)


def test_a_class_that_a_group_names_later_protects_nothing_that_runs() -> None:
    running = pod("a").needs(1000).gang("g").bound("n1").build()
    ledger = gpu_node("n1", 1).holds(row(running, whole(0), "bound")).build()
    group = pod_group("g", 1).priority_class("ballast-inference").build()
    state = state_of(allowing("p", "ballast-training"), ledger, running, group)
    assert view_of(state).is_preemptible


@pytest.mark.parametrize(
    ("gated", "reason"), [(True, Reason.PRIORITY_CLASS_NOT_ALLOWED), (False, None)]
)
def test_a_pods_own_class_is_checked_before_it_starts_and_not_after(
    gated: bool, reason: Reason | None
) -> None:
    built = pod("a").needs(1000) if gated else pod("a").needs(1000).bound("n1")
    made = built.build()
    made.spec.priority_class_name = "ballast-inference"
    assert reason_of(state_of(allowing("p", "ballast-training"), made)) is reason


def test_any_class_but_the_systems_is_allowed_where_a_project_lists_none() -> None:
    made = pod("a").needs(1000).build()
    made.spec.priority_class_name = "their-own"
    assert reason_of(state_of(allowing("p"), made)) is None
    made.spec.priority_class_name = "system-cluster-critical"
    assert reason_of(state_of(allowing("p"), made)) is Reason.PRIORITY_CLASS_NOT_ALLOWED


def test_a_group_that_names_a_foreign_project_later_is_charged_where_it_was() -> None:
    running = pod("a").needs(1000).gang("g").bound("n1").build()
    elsewhere = project("theirs").namespaces("team-b").build()
    group = pod_group("g", 1).project("theirs").build()
    state = state_of(allowing("p"), elsewhere, running, group)
    assert view_of(state).project == "p"
    assert reason_of(state) is Reason.UNKNOWN_PROJECT


def test_a_member_that_names_another_project_is_charged_to_that_of_the_namespace() -> None:
    running = pod("a").needs(1000).gang("g").project("q").created(1).bound("n1").build()
    late = pod("b").needs(1000).gang("g").project("p").created(2).build()
    state = state_of(allowing("p"), allowing("q"), running, late)
    assert view_of(state).project == "p"
    assert reason_of(state) is None
