"""Which pod gets the row kept for a moved pod's successor, and how long it is kept."""

from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.cycle.commit.moves import KEPT_IN_ALL_S, KEPT_S, HandOver
from extender.ledger.rows import NodeBatch, settle
from extender.ledger.writer import RowChange
from extender.state.cluster import ClusterState
from tests.support.builders import (
    PodBuilder,
    gpu_node,
    kept_row,
    pod,
    pod_group,
    project,
    row,
    whole,
)

NOW = 1_800_000_000


def leaving(name: str, group: str = "") -> Pod:
    return member(name, group).bound("n1").terminating().build()


def member(name: str, group: str = "") -> PodBuilder:
    built = pod(name).needs(1000)
    return built.gang(group) if group else built


def moved(*names: str, group: str = "", more: Any = ()) -> ClusterState:
    """These pods leave n1, and places for their successors are kept on n2."""
    state = ClusterState()
    pods = [leaving(name, group) for name in names]
    held = [row(each, whole(ix), "bound") for ix, each in enumerate(pods)]
    kept = [replace(kept_row(each, whole(ix)), reserved_at=NOW) for ix, each in enumerate(pods)]
    ledgers = gpu_node("n1", 4).holds(*held).build(), gpu_node("n2", 4).holds(*kept).build()
    for obj in (project("team-a").build(), *pods, *ledgers, *more):
        state.apply(Upserted(obj))
    return state


def heirs(changes: list[RowChange]) -> list[tuple[str, str, list[int]]]:
    """(pod that loses a row, pod that gets one, cards) of every hand-over on n2."""
    return [
        (old.name, new.name, [card.index for card in new.cards])
        for change in changes
        if change.rows
        for old, new in zip(change.frees["n2"], change.rows["n2"], strict=True)
    ]


def test_successor_gets_the_place_while_the_old_pod_still_leaves() -> None:
    state = moved("a")
    hand_over = HandOver(state)
    assert hand_over.changes(NOW) == []
    state.apply(Upserted(member("b").build()))
    (change,) = hand_over.changes(NOW)
    assert heirs([change]) == [("a", "b", [0])]
    (new,) = change.rows["n2"]
    assert (new.state, new.move, new.epoch) == ("nominated", None, 1)


def test_a_pod_that_waits_does_not_take_the_place_before_the_moved_pod_is_told_to_leave() -> None:
    stays = member("a", "").bound("n1").build()
    kept = replace(kept_row(stays, whole(0)), reserved_at=NOW)
    state = ClusterState()
    ledgers = (
        gpu_node("n1", 4).holds(row(stays, whole(0), "bound")).build(),
        gpu_node("n2", 4).holds(kept).build(),
    )
    for obj in (project("team-a").build(), stays, member("b").build(), *ledgers):
        state.apply(Upserted(obj))
    state.assume_terminating(["uid-a"])
    assert HandOver(state).changes(NOW) == []
    state.apply(Upserted(leaving("a")))
    assert heirs(HandOver(state).changes(NOW)) == [("a", "b", [0])]


def test_two_places_go_to_two_pods() -> None:
    state = moved("a", "b")
    for name in ("c", "d"):
        state.apply(Upserted(member(name).build()))
    assert heirs(HandOver(state).changes(NOW)) == [("a", "c", [0]), ("b", "d", [1])]


def test_gang_gets_its_places_all_at_once() -> None:
    state = moved("a", "b", group="g", more=[pod_group("g", 2).build()])
    hand_over = HandOver(state)
    state.apply(Upserted(member("c", "g").build()))
    assert hand_over.changes(NOW) == []
    state.apply(Upserted(member("d", "g").build()))
    (change,) = hand_over.changes(NOW)
    assert heirs([change]) == [("a", "c", [0]), ("b", "d", [1])]


def test_pod_of_another_shape_gets_nothing() -> None:
    state = moved("a")
    state.apply(Upserted(pod("b").needs(500).build()))
    assert HandOver(state).changes(NOW) == []


def gone(name: str) -> Removed:
    return Removed(Pod, f"uid-{name}", "team-a", name)


def carry_out(state: ClusterState, changes: list[RowChange]) -> None:
    """Write the changes of n2 as the ledger would."""
    ledger = state.gpu_nodes["n2"]
    for change in changes:
        batch = NodeBatch(adds=[(change.key, row) for row in change.rows.get("n2", ())])
        batch.frees |= {row.identity for row in change.frees.get("n2", ())}
        rows = list(settle(ledger, batch).rows)
        ledger = replace(ledger, spec=replace(ledger.spec, rows=rows))
    state.apply(Upserted(ledger))


def test_place_is_given_up_some_time_after_its_pod_is_gone_whoever_leads() -> None:
    state = moved("a")
    went = NOW + 2 * KEPT_S
    assert HandOver(state).changes(went) == []
    state.apply(gone("a"))
    carry_out(state, HandOver(state).changes(went))
    assert HandOver(state).changes(went) == []
    assert HandOver(state).changes(went + KEPT_S) == []
    (change,) = HandOver(state).changes(went + KEPT_S + 1)
    assert [freed.name for freed in change.frees["n2"]] == ["a"]
    assert not change.rows


def test_place_is_given_up_when_its_pod_never_ends() -> None:
    state = moved("a")
    assert HandOver(state).changes(NOW + KEPT_IN_ALL_S) == []
    (change,) = HandOver(state).changes(NOW + KEPT_IN_ALL_S + 1)
    assert [freed.name for freed in change.frees["n2"]] == ["a"]


@pytest.mark.parametrize("behind_s", [KEPT_S + 1, KEPT_IN_ALL_S + 1])
def test_place_that_a_leader_marked_whose_clock_was_ahead_is_not_kept_until_then(
    behind_s: int,
) -> None:
    state = moved("a")
    state.apply(gone("a"))
    carry_out(state, HandOver(state).changes(NOW))
    (change,) = HandOver(state).changes(NOW - behind_s)
    assert [freed.name for freed in change.frees["n2"]] == ["a"]


def test_marked_place_is_handed_over() -> None:
    state = moved("a")
    state.apply(gone("a"))
    carry_out(state, HandOver(state).changes(NOW))
    state.apply(Upserted(member("b").build()))
    assert heirs(HandOver(state).changes(NOW + 10)) == [("a", "b", [0])]


def test_place_on_a_card_that_fell_ill_is_given_up_once_its_pod_is_gone() -> None:
    state = moved("a")
    state.apply(gone("a"))
    (ill, *others) = state.gpu_nodes["n2"].status.devices
    ledger = state.gpu_nodes["n2"]
    devices = [replace(ill, health="Unhealthy"), *others]
    state.apply(Upserted(replace(ledger, status=replace(ledger.status, devices=devices))))
    carry_out(state, HandOver(state).changes(NOW))
    assert state.kept_places() == []
