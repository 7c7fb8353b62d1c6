"""Snapshots of the model, and unknown events."""

import pytest

from extender.api.events import Removed, Upserted
from extender.api.kinds import Device
from extender.api.objects import (
    Node,
)
from extender.state.cluster import ClusterState
from extender.state.pods.constraints import MAX_BYTES
from tests.support.builders import (
    gpu_node,
    node,
    part,
    pod,
    row,
    whole,
)
from tests.unit.state.model import free_cards, state_of, strays


def test_a_snapshot_is_not_changed_by_what_happens_later() -> None:
    state = state_of(gpu_node("n1", 1).build(), node("n1").build())
    before = state.snapshot(0)
    held = pod("a").needs(500).build()
    for obj in (held, gpu_node("n1", 1).version(2).holds(row(held, whole(0))).build()):
        state.apply(Upserted(obj))
    state.apply(Removed(Node, "uid-n1", "", "n1"))
    state.snapshot(1)
    ix = before.nodes.cards.ix["n1"]
    assert list(before.nodes.cards.free_of(ix)) == [1000]
    assert before.nodes.is_ready[ix]
    assert before.workloads == {}


def test_views_that_did_not_change_are_shared_by_snapshots() -> None:
    state = state_of(pod("a").needs(500).build(), pod("b").needs(500).build())
    before = state.snapshot(0).workloads
    state.apply(Upserted(pod("b").needs(500).version(2).terminating().build()))
    after = state.snapshot(1).workloads
    assert after["team-a/a"] is before["team-a/a"]
    assert after["team-a/b"].pods[0].is_terminating


def test_an_event_of_a_foreign_kind_is_a_bug_that_shows() -> None:
    with pytest.raises(KeyError):
        ClusterState().apply(Removed(Device, "", "", ""))


@pytest.mark.parametrize("what", ["labels", "node selector, affinity and tolerations"])
def test_a_pod_with_more_than_is_kept_of_one_is_not_planned_and_holds_its_place(what: str) -> None:
    texts = {f"x/{number}": "v" * 60 for number in range(MAX_BYTES // 60)}
    built = pod("a").needs(500).labels(texts) if what == "labels" else pod("a").needs(500)
    if what != "labels":
        built.on_nodes(**texts)
    state = state_of(gpu_node("n1", 1).build(), built.build())
    (workload,) = state.workloads().values()
    assert workload.problem is not None
    assert f"its {what} have more than {MAX_BYTES} bytes" in workload.problem.detail
    held = built.bound("n1").build()
    state = state_of(gpu_node("n1", 1).holds(row(held, part(0, 500), "bound")).build(), held)
    assert free_cards(state, "n1") == [500]
    assert strays(state) == []
