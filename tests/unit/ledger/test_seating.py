"""The card of a share that a claim requests."""

from msgspec.structs import replace

from extender.api.kinds import CardShare, Device, GpuNode, Row, RowState
from extender.api.reasons import Reason, Refused
from extender.ledger.rows import Rows
from extender.ledger.seating import seat
from tests.support.builders import CARD_MIB, gpu_node, pod, row
from tests.support.overbooked import overbooked

EPOCH = 7


def share(name: str, index: int, mib: int, state: RowState = "reserved", device: str = "") -> Row:
    milli = -(-mib * 1000 // CARD_MIB)
    made = row(pod(name).needs_mib(mib).build(), [CardShare(index, milli, mib)], state)
    return replace(made, epoch=EPOCH, device=device)


def ledger(*rows: Row, cards: int = 2) -> GpuNode:
    made = gpu_node("n1", cards).holds(*rows).build()
    named = [replace_device(each) for each in made.status.devices]
    return replace(made, status=replace(made.status, devices=named))


def replace_device(device: Device) -> Device:
    return replace(device, device=f"gpu-{device.index}")


def seated(node: GpuNode, name: str, device: str) -> dict[str, tuple[int, str]]:
    """By pod, the index of its card and the name that its row has of it."""
    outcome = seat(node, f"uid-{name}", EPOCH, {device, "nic-0"})
    assert not isinstance(outcome, Refused), outcome
    return told(node, outcome)


def told(node: GpuNode, rows: Rows) -> dict[str, tuple[int, str]]:
    after = replace(node, spec=replace(node.spec, rows=list(rows)))
    assert overbooked(after) == []
    return {each.name: (each.cards[0].index, each.device) for each in rows}


def refusal(node: GpuNode, name: str, device: str) -> Reason:
    outcome = seat(node, f"uid-{name}", EPOCH, {device})
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


HALF = CARD_MIB // 2


def test_row_takes_the_card_that_is_allocated() -> None:
    node = ledger(share("a", 0, HALF))
    assert seated(node, "a", "gpu-1") == {"a": (1, "gpu-1")}


def test_pods_that_were_released_together_may_get_one_anothers_cards() -> None:
    node = ledger(share("a", 0, CARD_MIB), share("b", 1, CARD_MIB))
    assert seated(node, "a", "gpu-1") == {"a": (1, "gpu-1"), "b": (0, "")}


def test_row_that_is_displaced_goes_to_the_first_card_with_room() -> None:
    node = ledger(
        share("full", 0, CARD_MIB - 10, "bound"),
        share("a", 2, HALF),
        share("b", 1, HALF + 1),
        cards=3,
    )
    found = seated(node, "a", "gpu-1")
    assert found == {"full": (0, ""), "a": (1, "gpu-1"), "b": (2, "")}


def test_row_that_needs_not_move_stays() -> None:
    node = ledger(share("a", 0, HALF), share("b", 1, HALF))
    assert seated(node, "a", "gpu-1") == {"a": (1, "gpu-1"), "b": (1, "")}


def test_rows_of_pods_whose_card_is_known_do_not_make_room() -> None:
    for other in (
        share("b", 1, CARD_MIB, "bound"),
        share("b", 1, CARD_MIB, device="gpu-1"),
    ):
        assert refusal(ledger(share("a", 0, HALF), other), "a", "gpu-1") is Reason.CARDS_BUSY


def test_row_without_another_card_to_go_to_does_not_make_room() -> None:
    node = ledger(share("a", 0, HALF), share("b", 1, HALF + 1), share("c", 0, HALF, "bound"))
    assert refusal(node, "a", "gpu-1") is Reason.CARDS_BUSY


def test_place_that_is_held_for_others_does_not_count() -> None:
    node = ledger(share("a", 0, HALF), share("b", 1, CARD_MIB, "nominated"))
    assert seated(node, "a", "gpu-1")["a"] == (1, "gpu-1")


def test_milli_are_rounded_down_to_what_the_card_has_left() -> None:
    """Three thirds are 334 milli each where each is rounded up."""
    third = CARD_MIB // 3
    others = [share(name, 0, third, "bound") for name in "bc"]
    node = ledger(*others, share("a", 1, third))
    outcome = seat(node, "uid-a", EPOCH, {"gpu-0"})
    assert not isinstance(outcome, Refused)
    assert sorted(told(node, outcome)) == ["a", "b", "c"]
    assert sum(each.milli for each in outcome) == 1000


def test_row_that_has_its_card_stays_as_it_is() -> None:
    node = ledger(share("a", 1, HALF, device="gpu-1"))
    assert seated(node, "a", "gpu-1") == {"a": (1, "gpu-1")}


def test_row_of_another_plan_or_none_is_no_row_for_the_pod() -> None:
    old = replace(share("a", 0, HALF), epoch=EPOCH - 1)
    for node in (ledger(), ledger(old), ledger(share("a", 0, HALF, "nominated"))):
        assert refusal(node, "a", "gpu-1") is Reason.PLAN_NOT_RESERVED


def test_claims_without_a_card_of_the_node_are_not_met() -> None:
    assert refusal(ledger(share("a", 0, HALF)), "a", "gpu-9") is Reason.CLAIMS_NOT_MET


def test_unhealthy_card_is_not_taken() -> None:
    node = ledger(share("a", 0, HALF))
    ill = [replace(each, health="Unhealthy") for each in node.status.devices]
    node = replace(node, status=replace(node.status, devices=ill))
    assert refusal(node, "a", "gpu-1") is Reason.CARD_UNHEALTHY
