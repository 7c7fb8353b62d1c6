"""The tables that the kernels read."""

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, GpuNodeStatus, Row
from extender.api.objects import ObjectMeta
from extender.state.nodes import CardTable, NodeFacts, NodeTable, RowIndex
from tests.support.snapshot_job import demand_of


def gpu_node(name: str, *rows: Row, gpus: int = 2) -> GpuNode:
    devices = [Device(index=at, memory_mib=16384, model="A100") for at in range(gpus)]
    return GpuNode(
        metadata=ObjectMeta(name=name),
        spec=GpuNodeSpec(rows=list(rows)),
        status=GpuNodeStatus(devices=devices),
    )


def row(uid: str, card: int, milli: int, state: str = "reserved") -> Row:
    share = CardShare(index=card, milli=milli, memory_mib=0)
    return Row(uid=uid, namespace="ns", name=uid, cards=[share], state=state)  # type: ignore[arg-type]


def test_rows_of_every_state_are_taken_off_the_cards() -> None:
    table = CardTable()
    node = gpu_node("n", row("a", 0, 400), row("b", 0, 300, "bound"), row("c", 0, 500, "nominated"))
    assert list(table.free_of(table.set_node(node))) == [-200, 1000]


def test_setting_a_node_again_replaces_what_was_known() -> None:
    table = CardTable()
    ix = table.set_node(gpu_node("n", row("a", 0, 400)))
    assert table.set_node(gpu_node("n", gpus=1)) == ix
    assert list(table.free_of(ix)) == [1000]
    assert table.capacity_milli[ix] == 1000


def test_row_on_a_card_that_is_gone_is_not_counted() -> None:
    table = CardTable()
    assert list(table.free_of(table.set_node(gpu_node("n", row("a", 5, 400))))) == [1000, 1000]


def test_dropped_row_is_reused_by_the_next_node() -> None:
    table = NodeTable()
    table.set_cards(gpu_node("old"))
    other = table.set_cards(gpu_node("other"))
    table.drop_node("old")
    assert table.set_node(NodeFacts("new")) == 0
    assert table.ix_of("other") == other
    assert list(table.cards.free_of(0)) == []


def test_node_known_only_by_its_cards_is_not_ready() -> None:
    table = NodeTable()
    ix = table.set_cards(gpu_node("n"))
    assert not table.is_ready[ix]
    table.set_node(NodeFacts("n"))
    assert table.is_ready[ix]
    assert list(table.cards.free_of(ix)) == [1000, 1000]


def test_copy_is_independent() -> None:
    table = NodeTable()
    ix = table.set_cards(gpu_node("n"))
    copy = table.copy()
    copy.hold(ix, demand_of(1), [CardShare(index=0, milli=1000, memory_mib=0)])
    assert list(table.cards.free_of(ix)) == [1000, 1000]
    copy.give_back(ix, demand_of(1), [CardShare(index=0, milli=1000, memory_mib=0)])
    assert copy == table


def test_rows_are_found_by_uid_on_every_node_that_has_one() -> None:
    index = RowIndex()
    index.set_rows("n0", [row("a", 0, 100)])
    index.set_rows("n1", [row("a", 1, 100), row("b", 0, 100)])
    assert sorted(index.held_of("a")) == ["n0", "n1"]
    index.set_rows("n0", [])
    assert list(index.held_of("a")) == ["n1"]
    index.set_rows("n1", [])
    assert not index.held_of("a")
    assert not index.held_of("b")
