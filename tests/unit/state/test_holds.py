"""Held workloads stay gated and keep their age."""

import pytest
from msgspec.structs import replace

from extender.api import names
from extender.api.events import Upserted
from extender.api.kinds import GpuPodGroup
from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.model import GPU
from tests.support.builders import department, gpu_node, node, pod, pod_group, project

HOLD = {names.ANNOTATION_HOLD: names.HOLD}


def cluster_of(*objects: object) -> ClusterState:
    state = ClusterState()
    fixed = (
        department("science").build(),
        project("team-a").quota(4).build(),
        node("n1").build(),
        gpu_node("n1").cards(2).build(),
    )
    for obj in (*fixed, *objects):
        state.apply(Upserted(obj))
    return state


def decided(state: ClusterState) -> Plan:
    state.validate_state()
    return decide(state.snapshot(1_000))


def admitted(plan: Plan) -> set[str]:
    return {each.workload.key for each in plan.admissions}


def group(min_member: int, *, is_held: bool) -> GpuPodGroup:
    made = pod_group("g", min_member).build()
    notes = HOLD if is_held else {}
    return replace(made, metadata=replace(made.metadata, annotations=notes))


def test_pod_that_is_held_gets_no_place_and_says_why() -> None:
    state = cluster_of(
        pod("held").needs(1000).notes(HOLD).build(),
        pod("free").needs(1000).build(),
    )
    plan = decided(state)
    assert admitted(plan) == {"team-a/free"}
    assert plan.waits["team-a/held"].reason is Reason.HELD_BY_OWNER
    assert names.ANNOTATION_HOLD in plan.waits["team-a/held"].detail


@pytest.mark.parametrize(("held", "milli"), [("", 2000), ("b", 0), ("ab", 0)])
def test_held_work_has_no_part_in_the_demand_of_its_project(held: str, milli: int) -> None:
    """A gang waits whole while one of its pods is held."""
    notes = {name: HOLD if name in held else {} for name in "ab"}
    pods = [pod(name).needs(1000).gang("g", 2).notes(notes[name]).build() for name in "ab"]
    plan = decided(cluster_of(*pods))
    assert plan.shares["team-a", "default"].fair_share[GPU] == milli


def test_only_the_word_true_holds() -> None:
    notes = {names.ANNOTATION_HOLD: "false"}
    state = cluster_of(pod("a").needs(1000).notes(notes).build())
    assert admitted(decided(state)) == {"team-a/a"}


def test_resumed_pod_has_the_age_that_it_had() -> None:
    first = pod("first").needs(2000).created(100)
    second = pod("second").needs(2000).created(200)
    state = cluster_of(first.notes(HOLD).build(), second.build())
    assert admitted(decided(state)) == {"team-a/second"}
    state.apply(Upserted(first.notes({names.ANNOTATION_HOLD: ""}).version(9).build()))
    assert admitted(decided(state)) == {"team-a/first"}


def test_hold_on_a_group_holds_all_its_pods_until_it_is_taken_off() -> None:
    pods = [pod(f"p{i}").needs(1000).gang("g").build() for i in range(2)]
    state = cluster_of(group(1, is_held=True), *pods)
    plan = decided(state)
    assert not plan.admissions
    assert plan.waits["team-a/g"].reason is Reason.HELD_BY_OWNER
    state.apply(Upserted(group(1, is_held=False)))
    assert admitted(decided(state)) == {"team-a/g"}


def test_gang_waits_whole_while_one_of_its_pods_is_held() -> None:
    pods = [pod(f"p{i}").needs(1000).gang("g", 2) for i in range(2)]
    state = cluster_of(pods[0].notes(HOLD).build(), pods[1].build())
    plan = decided(state)
    assert not plan.admissions
    assert "1 of its 2 waiting pods" in plan.waits["team-a/g"].detail


def test_pod_that_runs_is_not_touched_by_a_hold() -> None:
    running = pod("a").needs(1000).bound("n1").notes(HOLD).build()
    state = cluster_of(running)
    (view,) = state.snapshot(0).workloads.values()
    assert view.pods[0].other_gates == ()
    assert not decided(state).evictions
