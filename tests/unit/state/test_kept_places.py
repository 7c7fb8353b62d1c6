"""Rows kept for the successors of moved pods."""

from typing import Any

import pytest

from extender.api.events import Removed, Upserted
from extender.api.objects import (
    Pod,
)
from extender.state.cluster import ClusterState
from extender.state.tally import Tally
from tests.support.builders import (
    gpu_node,
    kept_row,
    node,
    part,
    pod,
    pool,
    project,
    row,
)
from tests.unit.state.model import state_of, strays


def moved(**facts: Any) -> ClusterState:
    """Pod `a` on n1, with a place kept on n2; facts: is_leaving."""
    built = pod("a").needs(500).host("2", "1Gi").bound("n1")
    held = (built.terminating() if facts.get("is_leaving", True) else built).build()
    return state_of(
        project("team-a").build(),
        held,
        node("n2").host("8", "8Gi").build(),
        gpu_node("n1", 1).holds(row(held, part(0, 500), "bound")).build(),
        gpu_node("n2", 1).holds(kept_row(held, part(0, 500), cpu_milli=2000)).build(),
    )


def test_a_moved_pod_holds_its_place_and_its_successors() -> None:
    state = moved()
    view = state.pod("uid-a")
    assert view is not None
    assert (view.node, view.next_node, list(view.next_cards)) == ("n1", "n2", part(0, 500))
    assert strays(state) == []
    assert [(kept.node, kept.is_gone) for kept in state.kept_places()] == [("n2", False)]
    state.validate_state()


def test_a_place_kept_for_a_successor_is_free_for_nobody_else() -> None:
    nodes = moved().snapshot(0).nodes
    ix = nodes.cards.ix["n2"]
    assert list(nodes.cards.free_of(ix)) == [500]
    assert (nodes.free_cpu_milli[ix], nodes.free_pods[ix]) == (6000, 109)


def test_a_place_counts_in_the_pool_of_its_node_after_the_node_has_changed_it() -> None:
    state = moved()
    state.apply(Upserted(pool("other", zone="b").build()))
    # Each pool keeps a card of the same size, so that only what is on the node is counted again.
    for name, zone in (("n3", "a"), ("n4", "b")):
        state.apply(Upserted(node(name).labels({"zone": zone}).build()))
        state.apply(Upserted(gpu_node(name, 1).build()))
    state.validate_state()
    state.apply(Upserted(node("n2").labels({"zone": "b"}).host("8", "8Gi").version(2).build()))
    state.validate_state()
    assert state.snapshot(0).tally == Tally.of(state.node_table(), state.workloads())


def test_a_pod_that_stays_after_all_needs_no_second_place() -> None:
    state = moved(is_leaving=False)
    assert strays(state) == [("n2", "uid-a", "elsewhere", True)]
    assert state.kept_places() == []


def test_a_place_outlives_its_pod_until_somebody_decides() -> None:
    state = moved()
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert strays(state) == [("n1", "uid-a", "ended", True)]
    assert [(kept.node, kept.is_gone) for kept in state.kept_places()] == [("n2", True)]
    state.validate_state()


@pytest.mark.parametrize("is_gone", [False, True])
def test_of_two_places_that_two_leaders_kept_the_later_plans_stays(*, is_gone: bool) -> None:
    state = moved()
    held = pod("a").needs(500).build()
    later = kept_row(held, part(0, 500), cpu_milli=2000, epoch=2)
    state.apply(Upserted(gpu_node("n3", 1).holds(later).build()))
    if is_gone:
        state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert ("n2", "uid-a", "elsewhere" if not is_gone else "superseded", True) in strays(state)
    assert [kept.node for kept in state.kept_places()] == ["n3"]
    state.validate_state()


def test_the_next_pod_of_the_same_owner_that_asks_for_the_same_may_take_the_place() -> None:
    state = moved()
    (kept,) = state.kept_places()
    assert kept.row.move is not None
    alike = {"b": "uid-job", "c": "uid-job", "d": "uid-other"}
    for number, (name, owner) in enumerate(alike.items()):
        built = pod(name).needs(500).host("2", "0").made_by(owner).created(50 - number)
        state.apply(Upserted(built.build()))
    state.apply(Upserted(pod("e").needs(250).host("2", "0").build()))
    assert [heir.name for heir in state.successors(kept.row)] == ["c", "b"]
