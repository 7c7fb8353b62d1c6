"""The card of an index in the ledger, whatever driver and kubelet report later."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.kinds import Device
from gpu_shim.agent.indices import Hold, keep_indices, settle


def cards(*uuids: str) -> list[Device]:
    return [Device(index=at, uuid=uuid, memory_mib=1) for at, uuid in enumerate(uuids)]


def meaning(devices: Sequence[Device]) -> dict[int, str]:
    return {device.index: device.uuid for device in devices}


def test_a_card_keeps_its_index_when_the_driver_numbers_anew() -> None:
    kept = keep_indices(cards("c", "a"), cards("a", "b", "c"), used={0, 1, 2})
    assert meaning(kept) == {0: "a", 1: "b", 2: "c"}
    assert [device.health for device in kept] == ["Healthy", "Unhealthy", "Healthy"]


def test_a_missing_card_without_pods_goes_and_a_new_one_takes_its_place() -> None:
    assert meaning(keep_indices(cards("a", "x"), cards("a", "b"), used={0})) == {0: "a", 1: "x"}
    kept = keep_indices(cards("a", "x"), cards("a", "b"), used={1})
    assert meaning(kept) == {0: "a", 1: "b", 2: "x"}


def test_cards_that_were_only_counted_before_say_nothing() -> None:
    before = [Device(index=at, memory_mib=1) for at in range(2)]
    assert meaning(keep_indices(cards("a", "b"), before, used={0, 1})) == {0: "a", 1: "b"}


def test_an_index_follows_the_card_that_kubelet_gave() -> None:
    found = settle(cards("a", "b", "c"), [Hold((0,), ("c",))], {})
    assert meaning(found.devices) == {0: "c", 1: "b", 2: "a"}
    assert found.unheld == {1, 2}
    assert not found.conflicts


def test_a_pod_with_several_cards_has_them_under_its_indices_in_any_order() -> None:
    found = settle(cards("a", "b", "c"), [Hold((0, 1), ("b", "c"))], {})
    assert set(meaning(found.devices).items()) == {(0, "c"), (1, "b"), (2, "a")}
    assert found.unheld == {2}


def test_nothing_moves_under_pods_that_run() -> None:
    found = settle(cards("a", "b"), [Hold((0,), ("b",))], {0: "a"})
    assert meaning(found.devices)[0] == "a"
    assert found.conflicts == ["card 0 is a, and kubelet gave b for it"]


def test_one_card_for_two_indices_is_a_conflict() -> None:
    found = settle(cards("a", "b"), [Hold((0,), ("b",)), Hold((1,), ("b",))], {})
    assert found.conflicts == ["b is given for card 1 and for another"]
    assert sorted(meaning(found.devices).values()) == ["a", "b"]


@pytest.mark.parametrize("running", [{}, {0: "gone"}])
def test_unknown_cards_are_left_out(running: dict[int, str]) -> None:
    found = settle(cards("a"), [Hold((0,), ("z",))], running)
    assert meaning(found.devices) == {0: "a"}


@given(st.data())
def test_every_card_has_one_index_and_what_kubelet_gave_is_so(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    devices = cards(*(f"GPU-{at}" for at in range(n)))
    order = data.draw(st.permutations(range(n)))
    given_away = data.draw(st.permutations(range(n)))
    n_held, holds, at = data.draw(st.integers(0, n)), list[Hold](), 0
    while at < n_held:
        size = data.draw(st.integers(1, n_held - at))
        indices = tuple(order[at : at + size])
        holds.append(Hold(indices, tuple(f"GPU-{each}" for each in given_away[at : at + size])))
        at += size
    found = settle(devices, holds, {})
    uuids = meaning(found.devices)
    assert sorted(uuids.values()) == sorted(device.uuid for device in devices)
    assert not found.conflicts
    for hold in holds:
        assert {uuids[index] for index in hold.indices} == set(hold.uuids)
    assert found.unheld == set(range(n)) - set(order[:n_held])
    again = settle(found.devices, holds, {})
    assert meaning(again.devices) == uuids
