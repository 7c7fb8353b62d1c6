"""Which pod gets the place kept for a moved pod's successor, and how long it is kept."""

import asyncio
from typing import Any

import pytest

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.cycle.commit.moves import KEPT_IN_ALL_S, KEPT_S, HandOver
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

pytestmark = pytest.mark.looptime


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
    kept = [kept_row(each, whole(ix)) for ix, each in enumerate(pods)]
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


async def test_successor_gets_the_place_while_the_old_pod_still_leaves() -> None:
    state = moved("a")
    hand_over = HandOver(state)
    assert hand_over.changes() == []
    state.apply(Upserted(member("b").build()))
    (change,) = hand_over.changes()
    assert heirs([change]) == [("a", "b", [0])]
    (new,) = change.rows["n2"]
    assert (new.state, new.move, new.epoch) == ("nominated", None, 1)


async def test_two_places_go_to_two_pods() -> None:
    state = moved("a", "b")
    for name in ("c", "d"):
        state.apply(Upserted(member(name).build()))
    assert heirs(HandOver(state).changes()) == [("a", "c", [0]), ("b", "d", [1])]


async def test_gang_gets_its_places_all_at_once() -> None:
    state = moved("a", "b", group="g", more=[pod_group("g", 2).build()])
    hand_over = HandOver(state)
    state.apply(Upserted(member("c", "g").build()))
    assert hand_over.changes() == []
    state.apply(Upserted(member("d", "g").build()))
    (change,) = hand_over.changes()
    assert heirs([change]) == [("a", "c", [0]), ("b", "d", [1])]


async def test_pod_of_another_shape_gets_nothing() -> None:
    state = moved("a")
    state.apply(Upserted(pod("b").needs(500).build()))
    assert HandOver(state).changes() == []


async def test_place_is_given_up_some_time_after_its_pod_is_gone() -> None:
    state = moved("a")
    hand_over = HandOver(state)
    hand_over.changes()
    await asyncio.sleep(2 * KEPT_S)
    assert hand_over.changes() == []
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert hand_over.changes() == []
    await asyncio.sleep(KEPT_S + 1)
    (change,) = hand_over.changes()
    assert [freed.name for freed in change.frees["n2"]] == ["a"]
    assert not change.rows


async def test_place_is_given_up_when_its_pod_never_ends() -> None:
    state = moved("a")
    hand_over = HandOver(state)
    hand_over.changes()
    await asyncio.sleep(KEPT_IN_ALL_S + 1)
    (change,) = hand_over.changes()
    assert [freed.name for freed in change.frees["n2"]] == ["a"]
