"""The ledger's rule holds whatever is asked of it."""

from hypothesis import given
from hypothesis import strategies as st

from extender.api.kinds import CardShare, GpuNode, Row
from extender.ledger.rows import NodeBatch, add_rows, restore_rows, settle
from tests.support.builders import CARD_MIB, gpu_node
from tests.support.overbooked import overbooked

UIDS = [f"u{number}" for number in range(6)]

shares = st.builds(
    CardShare,
    index=st.integers(0, 3),
    milli=st.sampled_from([1, 250, 333, 500, 667, 999, 1000]),
    memory_mib=st.sampled_from([0, 1, CARD_MIB // 3, CARD_MIB // 2, CARD_MIB]),
)
rows = st.builds(
    Row,
    uid=st.sampled_from(UIDS),
    namespace=st.just("team-a"),
    name=st.just("p"),
    cards=st.lists(shares, min_size=1, max_size=2, unique_by=lambda card: card.index),
    state=st.sampled_from(["nominated", "reserved", "bound"]),
    epoch=st.integers(0, 3),
    reserved_at=st.integers(0, 1),
)
uids = st.sets(st.sampled_from(UIDS), max_size=2)
batches = st.builds(
    NodeBatch,
    frees=st.sets(rows.map(lambda row: row.identity), max_size=2),
    bound=uids,
    adds=st.lists(st.tuples(st.sampled_from("abc"), rows), max_size=6),
)


def ledger_after(history: list[NodeBatch]) -> GpuNode:
    ledger = gpu_node("n1", 3).build()
    for batch in history:
        ledger = gpu_node("n1", 3).holds(*settle(ledger, batch).rows).build()
    return ledger


@given(st.lists(batches, max_size=8))
def test_no_card_is_ever_overbooked(history: list[NodeBatch]) -> None:
    assert overbooked(ledger_after(history)) == []


@given(st.lists(batches, max_size=4), batches)
def test_a_pod_has_one_row_and_refused_changes_add_none(
    history: list[NodeBatch], batch: NodeBatch
) -> None:
    before = ledger_after(history)
    settled = settle(before, batch)
    held = [row.uid for row in settled.rows]
    assert len(set(held)) == len(held)
    asked = [row for change, row in batch.adds if change not in settled.refused]
    refused_only = [
        row for change, row in batch.adds if change in settled.refused and row not in asked
    ]
    assert not [row for row in refused_only if row in settled.rows and row not in before.spec.rows]


@given(st.lists(batches, max_size=4), batches)
def test_what_was_added_can_be_taken_back(history: list[NodeBatch], batch: NodeBatch) -> None:
    only_adds = NodeBatch(adds=[("a", row) for _, row in batch.adds])
    before = ledger_after(history)
    settled = settle(before, only_adds)
    added = [row for _, row in only_adds.adds]
    if len({row.uid for row in added}) == len(added):
        back = restore_rows(settled.rows, added, settled.replaced.get("a", {}))
        assert back == tuple(before.spec.rows)


@given(st.lists(batches, max_size=4), st.lists(rows, max_size=3, unique_by=lambda row: row.uid))
def test_adding_twice_is_adding_once(history: list[NodeBatch], wanted: list[Row]) -> None:
    before = ledger_after(history)
    once = add_rows(before, wanted)
    if isinstance(once, tuple):
        assert add_rows(gpu_node("n1", 3).holds(*once).build(), wanted) == once


@given(st.lists(batches, max_size=8), st.integers(0, 4))
def test_rows_leave_the_cards_that_foreign_pods_hold(history: list[NodeBatch], gpus: int) -> None:
    def with_rows(*rows: Row) -> GpuNode:
        built = gpu_node("n1", 3).holds(*rows)
        return (built.foreign("s", gpus) if gpus else built).build()

    ledger = with_rows()
    for batch in history:
        # A pod that is bound already is written as it is.
        batch.adds = [(change, row) for change, row in batch.adds if row.state != "bound"]
        ledger = with_rows(*settle(ledger, batch).rows)
    for states in (("reserved", "bound"), ("nominated",)):
        held = [row for row in ledger.spec.rows if row.state in states]
        used = {card.index for row in held for card in row.cards}
        assert not used or len(used) + min(gpus, 3) <= 3
