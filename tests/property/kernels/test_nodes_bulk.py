"""The kernels for many pods of one shape give the answers of their twins, and of pod after pod."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.demand import Demand
from extender.kernels import holds, nodes, nodes_bulk
from extender.state.nodes import NodeTable
from tests.property.policy.test_twins import demands, tables
from tests.twins import holds_twin, nodes_bulk_twin

RUN = settings(max_examples=300, deadline=None)

rules = st.sampled_from([nodes.BINPACK, nodes.SPREAD, nodes.BEST_FIT, nodes.FIRST_FIT])


@RUN
@given(tables(), demands, rules, st.integers(0, 12), st.data())
def test_bulk_kernels_agree_with_their_twins(
    table: NodeTable, demand: Demand, rule: int, n_pods: int, data: st.DataObject
) -> None:
    candidates = array("i", data.draw(st.permutations(range(len(table)))))
    answers = []
    for counter, kernel in ((holds, nodes_bulk), (holds_twin, nodes_bulk_twin)):
        rooms = array("i", [9] * len(candidates))
        counter.count_room(table, demand, candidates, n_pods, rooms)
        found = []
        for find in (kernel.fill_nodes, kernel.pack_nodes):
            out_ix, out_cards = array("i", [9] * n_pods), array("Q", [9] * n_pods)
            placed = find(table, demand, candidates, rule, out_ix, out_cards)
            found.append((placed, out_ix[:placed], out_cards[:placed]))
        answers.append((rooms, found))
    assert answers[0] == answers[1]


@RUN
@given(tables(), demands, rules, st.integers(0, 12))
def test_filling_is_best_node_and_pick_cards_pod_after_pod(
    table: NodeTable, demand: Demand, rule: int, n_pods: int
) -> None:
    candidates = array("i", range(len(table)))
    out_ix, out_cards = array("i", [9] * n_pods), array("Q", [9] * n_pods)
    placed = nodes_bulk.fill_nodes(table, demand, candidates, rule, out_ix, out_cards)
    held = table.copy()
    for ix, bits in zip(out_ix[:placed], out_cards, strict=False):
        assert ix == nodes.best_node(held, demand, candidates, rule)
        cards = nodes.pick_cards(held.cards, ix, demand, rule)
        assert bits == sum(1 << card for card in cards)
        _take(held, ix, demand, cards)
    if placed < n_pods:
        assert nodes.best_node(held, demand, candidates, rule) == -1


@RUN
@given(tables(), demands, rules)
def test_no_node_takes_more_pods_than_it_has_room_for(
    table: NodeTable, demand: Demand, rule: int
) -> None:
    for ix in range(len(table)):
        rooms, out_ix, out_cards = array("i", [9]), array("i", [9] * 12), array("Q", [9] * 12)
        alone = array("i", [ix])
        holds.count_room(table, demand, alone, 12, rooms)
        placed = nodes_bulk.pack_nodes(table, demand, alone, rule, out_ix, out_cards)
        assert placed <= rooms[0]
        if demand.devices <= 1 or demand.milli == 1000:
            assert placed == rooms[0]


def _take(table: NodeTable, ix: int, demand: Demand, cards: list[int]) -> None:
    need = demand.milli
    if demand.gpu_memory_mib:
        need = -(-demand.gpu_memory_mib * 1000 // table.cards.card_mib[ix])
    for card in cards:
        table.cards.card_free[ix * table.cards.stride + card] -= need
    table.free_cpu_milli[ix] -= demand.cpu_milli
    table.free_memory_mib[ix] -= demand.memory_mib
    table.free_pods[ix] -= 1
