"""Rows and pods that do not match."""

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuNode
from extender.api.objects import (
    Pod,
)
from extender.state.cluster import ClusterState
from tests.support.builders import (
    gpu_node,
    part,
    pod,
    row,
    whole,
)
from tests.unit.state.model import free_cards, state_of, strays


def test_a_row_of_an_unseen_pod_is_a_candidate_only_after_all_pods_were_delivered() -> None:
    state = state_of(gpu_node("n1", 1).holds(row(pod("a").build(), whole(0))).build())
    assert strays(state) == []
    state.apply(Synced(Pod))
    assert strays(state) == [("n1", "uid-a", "absent", False)]


def test_a_row_of_a_removed_pod_is_confirmed_where_it_was_there_before() -> None:
    held = pod("a").needs(500).build()
    ledger = gpu_node("n1", 1).holds(row(held, whole(0))).build()
    gone = Removed(Pod, "uid-a", "team-a", "a")
    orders: list[list[Event]] = [
        [Upserted(held), Upserted(ledger), gone],
        [Upserted(ledger), Upserted(held), gone],
    ]
    for events in orders:
        state = ClusterState()
        for event in events:
            state.apply(event)
        assert strays(state) == [("n1", "uid-a", "ended", True)]


def test_a_row_that_comes_after_its_pod_is_gone_needs_a_live_read() -> None:
    """A store that was restored shows rows of pods that were gone, and that exist again."""
    held = pod("a").needs(500).bound("n1").build()
    booked = row(held, part(0, 500), "bound")
    state = state_of(held, gpu_node("n1", 1).holds(booked).version(1).build())
    state.apply(Synced(Pod))
    state.apply(Removed(Pod, "uid-a", "team-a", "a", "7"))
    state.apply(Upserted(gpu_node("n1", 1).version(8).build()))
    assert strays(state) == []
    state.apply(Upserted(gpu_node("n1", 1).holds(booked).version(9).build()))
    assert strays(state) == [("n1", "uid-a", "absent", False)]


def test_a_pod_that_was_gone_exists_again_in_a_later_version() -> None:
    held = pod("a").needs(500).bound("n1")
    ledger = gpu_node("n1", 1).holds(row(held.build(), part(0, 500), "bound")).build()
    state = state_of(ledger, held.version(5).build())
    state.apply(Removed(Pod, "uid-a", "team-a", "a", "7"))
    state.apply(Upserted(held.version(6).build()))
    assert strays(state) == [("n1", "uid-a", "ended", True)]
    state.apply(Upserted(held.version(8).build()))
    assert strays(state) == []
    assert state.pod("uid-a") is not None


def test_a_pod_that_ended_and_runs_again_is_believed_in_a_later_version() -> None:
    held = pod("a").needs(500).bound("n1")
    before, after = held.version(4).build(), held.version(7).build()
    state = state_of(gpu_node("n1", 1).build())
    for version in (5, 6):
        state.apply(Upserted(held.ended("Failed").version(version).build()))
    state.apply(Upserted(before))
    assert state.pod("uid-a") is None
    state.apply(Upserted(after))
    assert state.pod("uid-a") is not None


def test_a_terminating_pod_keeps_its_row_and_a_terminal_one_does_not() -> None:
    held = pod("a").needs(500).bound("n1")
    ledger = gpu_node("n1", 1).holds(row(held.build(), whole(0), "bound")).build()
    state = state_of(ledger, held.terminating().build())
    assert strays(state) == []
    state.apply(Upserted(held.ended("Failed").build()))
    assert strays(state) == [("n1", "uid-a", "ended", True)]


def test_a_row_whose_pod_is_gone_holds_its_cards_and_is_told_to_be_an_orphan() -> None:
    """Else a promise of that place would look as if no pod were about to leave it."""
    held = pod("a").needs(500).bound("n1").build()
    state = state_of(held, gpu_node("n1", 1).holds(row(held, part(0, 500), "bound")).build())
    assert state.snapshot(0).orphans == ()
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert state.snapshot(0).orphans == (("n1", tuple(part(0, 500))),)
    assert free_cards(state, "n1") == [500]


def test_a_row_on_another_node_than_the_pods_is_stray() -> None:
    held = pod("a").needs(500).bound("n2").build()
    state = state_of(
        held,
        gpu_node("n1", 1).holds(row(held, whole(0))).build(),
        gpu_node("n2", 1).holds(row(held, whole(0), "bound")).build(),
    )
    assert strays(state) == [("n1", "uid-a", "elsewhere", True)]


def test_of_two_rows_of_an_unbound_pod_the_newer_plan_counts_and_the_other_needs_the_fence() -> (
    None
):
    held = pod("a").needs(500).build()
    state = state_of(
        held,
        gpu_node("n1", 1).holds(row(held, whole(0), epoch=4)).build(),
        gpu_node("n2", 1).holds(row(held, whole(0), epoch=3)).build(),
    )
    assert strays(state) == [("n2", "uid-a", "superseded", False)]
    view = state.pod("uid-a")
    assert view is not None
    assert (view.node, view.epoch) == ("n1", 4)


def test_a_bound_pod_with_a_reserved_row_is_to_be_marked() -> None:
    held = pod("a").needs(500).bound("n1").build()
    state = state_of(held, gpu_node("n1", 1).holds(row(held, part(0, 500))).build())
    assert state.rows_to_mark_bound() == {"n1": {"uid-a"}}
    marked = gpu_node("n1", 1).version(2).holds(row(held, part(0, 500), "bound")).build()
    state.apply(Upserted(marked))
    assert state.rows_to_mark_bound() == {}


def test_a_bound_pod_without_a_row_is_reported_with_the_cards_of_its_binding() -> None:
    held = pod("a").needs(500).bound("n1").notes({"ballast.dev/cards": "3:500:8000"}).build()
    (lost,) = state_of(held, gpu_node("n1", 4).build()).lost_rows()
    assert (lost.pod.uid, lost.cards) == ("uid-a", tuple(part(3, 500)))


def test_a_bound_pod_holds_its_cards_until_its_lost_row_is_restored_or_it_is_gone() -> None:
    half = pod("a").needs(500).bound("n1").notes({"ballast.dev/cards": "1:500:8000"}).build()
    whole_card = pod("b").needs(1000).bound("n1").notes({"ballast.dev/cards": "2:1000:9000"})
    state = state_of(half, whole_card.build(), gpu_node("n1", 3).build())
    assert free_cards(state, "n1") == [1000, 500, 0]
    assert state.foreign_pods() == []
    state.apply(Upserted(gpu_node("n1", 3).version(2).holds(row(half, part(1, 500))).build()))
    assert free_cards(state, "n1") == [1000, 500, 0]
    state.apply(Removed(Pod, "uid-b", "team-a", "b"))
    assert free_cards(state, "n1") == [1000, 500, 1000]
    state.apply(Removed(GpuNode, gpu_node("n1", 3).build().metadata.uid, "", "n1"))
    state.apply(Upserted(gpu_node("n1", 3).uid("uid-new").version(3).build()))
    assert free_cards(state, "n1") == [1000, 500, 1000]


def test_a_released_pod_whose_row_is_gone_is_reported() -> None:
    released = pod("a").needs(500).released("n1").build()
    state = state_of(released)
    assert [p.uid for p in state.released_without_row()] == ["uid-a"]
    state.apply(Upserted(gpu_node("n1", 1).holds(row(released, part(0, 500))).build()))
    assert state.released_without_row() == []
