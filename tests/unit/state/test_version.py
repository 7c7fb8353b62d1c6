"""Whether a decision would read anything new."""

from typing import Any

import pytest

from extender.api.events import Event, Removed, Upserted
from extender.api.objects import (
    BudgetSpec,
    BudgetStatus,
    LabelSelector,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
)
from tests.support.builders import (
    department,
    gpu_node,
    node,
    pod,
    pod_group,
    pool,
    project,
    row,
    topology,
    whole,
)
from tests.unit.state.model import state_of

DISRUPTIONS = PodDisruptionBudget(
    metadata=ObjectMeta(name="b", namespace="team-a", uid="uid-b"),
    spec=BudgetSpec(selector=LabelSelector()),
    status=BudgetStatus(disruptions_allowed=1),
)


def scene() -> tuple[Any, ...]:
    held = pod("held").needs(1000).gang("held").bound("n1").build()
    return (
        project("team-a").build(),
        pool("default").build(),
        node("n1").gpus(1).build(),
        node("without-gpus").build(),
        gpu_node("n1", 1).holds(row(held, whole(0), "bound")).build(),
        held,
        pod("waits").needs(1000).build(),
        pod("foreign").needs(1000).bound("n1").unledgered().build(),
    )


@pytest.mark.parametrize(
    "same",
    [
        pod("waits").needs(1000).version(9).told("NoQuota").build(),
        pod("waits").needs(1000).version(9).notes({"a-tool/seen": "1"}).build(),
        node("n1").gpus(1).version(9).build(),
        project("team-a").version(9).build(),
        pod("of-others").direct().host("1", "1Gi").build(),
        pod("of-others").host("1", "1Gi").bound("without-gpus").build(),
        node("without-gpus").cordoned().version(9).build(),
        pod("foreign").needs(1000).bound("n1").unledgered().version(9).build(),
    ],
)
def test_what_no_decision_reads_leaves_the_version_as_it_is(same: Any) -> None:
    state = state_of(*scene())
    before = state.version()
    state.apply(Upserted(same))
    assert state.version() == before


@pytest.mark.parametrize(
    "change",
    [
        Upserted(pod("comes").needs(1000).build()),
        Upserted(pod("waits").needs(500).version(9).build()),
        Upserted(pod("held").needs(1000).gang("held").bound("n1").terminating().version(9).build()),
        Removed(Pod, "uid-held", "team-a", "held"),
        Upserted(pod("of-others").host("1", "1Gi").bound("n1").build()),
        Upserted(node("n1").gpus(1).cordoned().version(9).build()),
        Upserted(node("without-ledger").gpus(1).build()),
        Upserted(gpu_node("n1", 2).version(9).build()),
        Upserted(project("team-a").quota(4).version(9).build()),
        Upserted(pool("default").spread().build()),
        Upserted(pool("default").without_weights().build()),
        Upserted(department("science").quota(1).build()),
        Upserted(topology("dc", "zone")),
        Upserted(pod_group("held", 2).of("team-a").build()),
        Upserted(DISRUPTIONS),
    ],
)
def test_what_a_decision_reads_changes_the_version(change: Event) -> None:
    state = state_of(*scene())
    before = state.version()
    state.apply(change)
    assert state.version() != before


def test_a_node_that_goes_before_it_has_a_ledger_changes_the_version() -> None:
    state = state_of(*scene(), node("without-ledger").gpus(1).build())
    before = state.version()
    state.apply(Removed(Node, "uid-without-ledger", "", "without-ledger"))
    assert state.version() != before


def test_a_pod_that_is_about_to_be_evicted_changes_the_version() -> None:
    state = state_of(*scene())
    before = state.version()
    state.assume_terminating(["uid-held"])
    leaving = state.version()
    state.forget_terminating("uid-held")
    assert before != leaving != state.version()
