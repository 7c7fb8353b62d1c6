"""The progress of a pod's plan: its state by gate and row, and unfinished plans."""

from typing import Any

import pytest

from extender.api import names
from extender.api.events import Upserted
from extender.api.objects import (
    Condition,
)
from extender.api.reasons import Reason, sentence
from extender.state.refusals import Refusals, write_refusals
from tests.support.builders import (
    gpu_node,
    node,
    part,
    pod,
    row,
)
from tests.unit.state.model import only, state_of, workloads_of


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


def test_gates_of_others_are_distinguished_from_ours() -> None:
    gated = pod("a").needs(500).build()
    assert only(gated).pods[0].other_gates == ()


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
