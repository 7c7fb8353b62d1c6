"""Which rows may be written to a ledger."""

from msgspec.structs import replace

from extender.api.kinds import CardShare, ForeignHold, GpuNode, Row
from extender.api.reasons import Reason, Refused
from extender.ledger.rows import (
    NodeBatch,
    Rows,
    add_rows,
    restore_rows,
    settle,
)
from tests.support.builders import CARD_MIB, gpu_node, part, pod, row, whole
from tests.support.overbooked import overbooked

A, B, C = (pod(name).needs(500).build() for name in "abc")


def added(ledger: GpuNode, *rows: Row) -> Rows:
    outcome = add_rows(ledger, rows)
    assert not isinstance(outcome, Refused), outcome
    return outcome


def refusal(ledger: GpuNode, *rows: Row) -> Reason:
    outcome = add_rows(ledger, rows)
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


def test_two_halves_fill_a_card_and_a_third_pod_is_refused() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 500)), row(B, part(0, 500), "bound")).build()
    assert refusal(ledger, row(C, part(0, 1))) is Reason.CARDS_BUSY


def test_a_whole_card_and_a_share_of_it_exclude_each_other() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, whole(0))).build()
    assert refusal(ledger, row(B, part(0, 1))) is Reason.CARDS_BUSY
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 1))).build()
    assert refusal(ledger, row(B, whole(0))) is Reason.CARDS_BUSY


def test_memory_is_counted_beside_milli() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, [CardShare(0, 100, CARD_MIB - 10)])).build()
    assert refusal(ledger, row(B, [CardShare(0, 100, 11)])) is Reason.CARDS_BUSY
    assert added(ledger, row(B, [CardShare(0, 100, 10)]))


def test_share_of_a_pod_without_a_row_takes_room_of_its_card() -> None:
    hold = ForeignHold(
        uid="u", namespace="elsewhere", name="s", gpus=0, cards=[CardShare(0, 400, CARD_MIB - 10)]
    )
    ledger = gpu_node("n1", 2).build()
    ledger = replace(ledger, status=replace(ledger.status, foreign=[hold]))
    assert refusal(ledger, row(B, [CardShare(0, 601, 1)])) is Reason.CARDS_BUSY
    assert refusal(ledger, row(B, [CardShare(0, 100, 11)])) is Reason.CARDS_BUSY
    assert added(ledger, row(B, [CardShare(0, 600, 10)]))
    assert added(ledger, row(B, [CardShare(0, 100, 11)], "bound"))
    assert added(ledger, row(B, whole(1)))


def test_rows_of_one_batch_count_against_each_other() -> None:
    ledger = gpu_node("n1", 1).build()
    assert refusal(ledger, row(A, part(0, 600)), row(B, part(0, 600))) is Reason.CARDS_BUSY


def test_a_card_must_exist_and_be_healthy() -> None:
    ledger = gpu_node("n1", 2).sick(1).build()
    assert refusal(ledger, row(A, whole(1))) is Reason.CARD_UNHEALTHY
    assert refusal(ledger, row(A, whole(2))) is Reason.CARD_UNHEALTHY


def test_a_row_without_cards_or_with_a_card_twice_is_refused() -> None:
    ledger = gpu_node("n1", 2).build()
    assert refusal(ledger, row(A, [])) is Reason.INVALID_REQUEST
    assert refusal(ledger, row(A, part(0, 100) + part(0, 100))) is Reason.INVALID_REQUEST


def test_a_nominated_row_may_overlap_a_victim_but_not_another_nominated_row() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, whole(0), "bound")).build()
    rows = added(ledger, row(B, whole(0), "nominated"))
    assert [r.state for r in rows] == ["bound", "nominated"]
    assert (
        refusal(ledger, row(B, part(0, 600), "nominated"), row(C, part(0, 600), "nominated"))
        is Reason.CARDS_BUSY
    )


def test_a_new_reservation_leaves_room_for_what_others_have_nominated() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 600), "nominated")).build()
    assert refusal(ledger, row(B, part(0, 500))) is Reason.CARDS_BUSY
    assert added(ledger, row(B, part(0, 400)))


def test_a_nominated_row_is_reserved_once_its_victims_are_gone() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, whole(0), "bound"), row(B, whole(0), "nominated"))
    assert refusal(ledger.build(), row(B, whole(0), epoch=2)) is Reason.CARDS_BUSY
    emptied = gpu_node("n1", 1).holds(row(B, whole(0), "nominated")).build()
    assert added(emptied, row(B, whole(0), epoch=2))[0].state == "reserved"


def test_a_place_held_for_oneself_is_taken_whatever_others_have_nominated_beside_it() -> None:
    held = row(A, part(0, 600), "nominated")
    ledger = gpu_node("n1", 1).holds(held, row(B, part(0, 600), "nominated")).build()
    assert added(ledger, row(A, part(0, 600), epoch=2))


def test_a_row_that_is_there_already_is_left_as_it_is() -> None:
    was = row(A, part(0, 500), "bound", epoch=3)
    ledger = gpu_node("n1", 1).holds(was).build()
    assert added(ledger, row(A, part(0, 500), epoch=3)) == (was,)


def test_a_newer_plan_takes_a_reserved_row_over_and_an_older_one_does_not() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 500), epoch=3)).build()
    assert added(ledger, row(A, part(0, 500), epoch=4))[0].epoch == 4
    assert refusal(ledger, row(A, part(0, 500), epoch=2)) is Reason.PLANNED_ELSEWHERE


def test_a_pods_reserved_or_bound_row_never_changes_its_cards() -> None:
    for state in ("reserved", "bound"):
        ledger = gpu_node("n1", 2).holds(row(A, part(0, 500), state)).build()
        assert refusal(ledger, row(A, part(1, 500), epoch=2)) is Reason.CARDS_BUSY


def test_a_bound_row_does_not_become_reserved_by_a_newer_plan() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 500), "bound", epoch=3)).build()
    assert refusal(ledger, row(A, part(0, 500), epoch=4)) is Reason.CARDS_BUSY


def test_cards_of_pods_without_a_row_are_left_and_a_card_that_is_shared_is_not_one_more() -> None:
    ledger = gpu_node("n1", 2).foreign("other/stranger", 1).holds(row(A, part(0, 500))).build()
    assert refusal(ledger, row(B, part(1, 500))) is Reason.CARDS_BUSY
    assert len(added(ledger, row(B, part(0, 500)))) == 2
    assert len(added(ledger, row(B, part(1, 500), "bound"))) == 2


def test_a_reserved_row_does_not_become_nominated_again() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 500))).build()
    assert refusal(ledger, row(A, part(0, 500), "nominated", epoch=2)) is Reason.CARDS_BUSY


def test_a_batch_frees_before_it_adds() -> None:
    old = row(A, whole(0))
    ledger = gpu_node("n1", 1).holds(old).build()
    settled = settle(ledger, NodeBatch(frees={old.identity}, adds=[("b", row(B, whole(0)))]))
    assert [r.uid for r in settled.rows] == [B.metadata.uid]
    assert settled.refused == {}


def test_a_refused_change_leaves_nothing_and_does_not_stop_the_others() -> None:
    ledger = gpu_node("n1", 2).holds(row(A, whole(0))).build()
    batch = NodeBatch(
        adds=[
            ("gang", row(B, whole(1))),
            ("other", row(C, part(1, 500))),
            ("gang", row(pod("d").build(), whole(0))),
        ]
    )
    settled = settle(ledger, batch)
    assert settled.refused.keys() == {"gang"}
    assert {r.uid for r in settled.rows} == {A.metadata.uid, C.metadata.uid}


def test_a_batch_done_twice_changes_nothing_more() -> None:
    old = row(A, whole(0))
    ledger = gpu_node("n1", 2).holds(old, row(B, part(1, 500))).build()
    batch = NodeBatch(
        frees={old.identity},
        bound={B.metadata.uid, "uid-unknown"},
        adds=[("c", row(C, whole(0)))],
    )
    once = settle(ledger, batch)
    again = settle(gpu_node("n1", 2).holds(*once.rows).build(), batch)
    assert again.rows == once.rows
    assert again.replaced == {"c": {}}


def test_a_row_to_be_freed_and_added_again_as_it_is_stays() -> None:
    was = row(A, whole(0))
    batch = NodeBatch(frees={was.identity}, adds=[("a", was)])
    assert settle(gpu_node("n1", 1).holds(was).build(), batch).rows == (was,)


def test_a_newer_row_is_not_freed_in_place_of_the_one_that_was_meant() -> None:
    old, newer = row(A, whole(0), epoch=1), row(A, whole(0), epoch=2)
    ledger = gpu_node("n1", 1).holds(newer).build()
    assert settle(ledger, NodeBatch(frees={old.identity})).rows == (newer,)


def test_what_is_taken_back_is_what_stood_there_before() -> None:
    before = row(A, whole(0), "nominated")
    ledger = gpu_node("n1", 2).holds(before).build()
    adds = [row(A, whole(0), epoch=2), row(B, whole(1), epoch=2)]
    settled = settle(ledger, NodeBatch(adds=[("g", each) for each in adds]))
    assert restore_rows(settled.rows, adds, settled.replaced["g"]) == (before,)


def test_rows_that_changed_since_they_were_written_are_not_taken_back() -> None:
    mine = row(A, whole(0), epoch=2)
    taken_over = row(A, whole(0), epoch=3)
    assert restore_rows((taken_over,), [mine], {mine.uid: None}) == (taken_over,)


def test_a_sick_card_can_still_be_emptied() -> None:
    old = row(A, part(0, 500))
    ledger = gpu_node("n1", 1).sick(0).holds(old, row(B, part(0, 500))).build()
    settled = settle(ledger, NodeBatch(frees={old.identity}))
    assert [r.uid for r in settled.rows] == [B.metadata.uid]


def test_an_overbooked_card_is_reported() -> None:
    ledger = gpu_node("n1", 1).holds(row(A, part(0, 600)), row(B, part(0, 600))).build()
    assert overbooked(ledger) == ["n1/gpu0: rows hold 1200 milli and 19200 MiB of 1000 and 16000"]
    assert (
        overbooked(gpu_node("n1", 1).holds(row(A, whole(0)), row(B, whole(0), "nominated")).build())
        == []
    )


def test_a_card_with_too_much_memory_given_away_is_reported() -> None:
    halves = [row(each, [CardShare(0, 500, 9000)]) for each in (A, B)]
    ledger = gpu_node("n1", 1).holds(*halves).build()
    assert overbooked(ledger) == ["n1/gpu0: rows hold 1000 milli and 18000 MiB of 1000 and 16000"]
