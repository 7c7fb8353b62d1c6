"""The compiled kernels and their Python twins give the same answers."""

from array import array
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.demand import Demand
from extender.kernels import nodes, shares
from extender.state.nodes import NodeFacts, NodeTable
from tests.twins import nodes_twin, shares_twin

RUN = settings(max_examples=200)

demands = st.builds(
    Demand,
    devices=st.integers(0, 4),
    milli=st.sampled_from([1, 250, 500, 999, 1000]),
    gpu_memory_mib=st.just(0),
    cpu_milli=st.integers(0, 4),
    memory_mib=st.integers(0, 4),
) | st.builds(
    Demand, devices=st.integers(1, 3), milli=st.just(0), gpu_memory_mib=st.integers(1, 3 * 10**6)
)


_FREE = [-500, -1, 0, 1, 250, 500, 750, 1000]


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    """Nodes with cards in any state: free, partly free, overfull, missing."""
    table = NodeTable()
    for at in range(draw(st.integers(0, 6))):
        ix = table.set_node(
            NodeFacts(
                f"n{at}",
                free_cpu_milli=draw(st.integers(-1, 4)),
                free_memory_mib=draw(st.integers(-1, 4)),
                free_pods=draw(st.integers(-1, 20)),
                cpu_milli=draw(st.integers(0, 5)),
                memory_mib=draw(st.integers(0, 5)),
            )
        )
        n_cards = draw(st.integers(0, 8))
        table.cards.n_cards[ix] = n_cards
        table.cards.card_mib[ix] = draw(st.sampled_from([0, 1, 16384, 81920]))
        free = draw(st.lists(st.sampled_from(_FREE), min_size=n_cards, max_size=n_cards))
        n_healthy = draw(st.integers(sum(milli > 0 for milli in free), n_cards))
        table.cards.capacity_milli[ix] = 1000 * n_healthy
        first = ix * table.cards.stride
        table.cards.card_free[first : first + n_cards] = array("i", free)
    return table


@RUN
@given(tables(), demands, st.integers(nodes.BINPACK, nodes.FIRST_FIT))
def test_node_kernels_agree_with_their_twins(table: NodeTable, demand: Demand, rule: int) -> None:
    n = len(table)
    fits, twin_fits = bytearray(n), bytearray(n)
    nodes.fit_nodes(table.cards, demand, fits)
    nodes_twin.fit_nodes(table.cards, demand, twin_fits)
    assert fits == twin_fits
    scores, twin_scores = array("i", [9] * n), array("i", [9] * n)
    nodes.score_nodes(table.cards, demand, rule, scores)
    nodes_twin.score_nodes(table.cards, demand, rule, twin_scores)
    assert scores == twin_scores
    candidates = array("i", range(n))
    assert nodes.best_node(table, demand, candidates, rule) == nodes_twin.best_node(
        table, demand, candidates, rule
    )
    for ix in range(n):
        cards = nodes.pick_cards(table.cards, ix, demand, rule)
        assert cards == nodes_twin.pick_cards(table.cards, ix, demand, rule)
        assert bool(cards) == bool(fits[ix] and demand.devices)
    rooms, twin_rooms = array("i", [9] * n), array("i", [9] * n)
    nodes.count_room(table, demand, candidates, 20, rooms)
    nodes_twin.count_room(table, demand, candidates, 20, twin_rooms)
    assert rooms == twin_rooms


claims = st.lists(
    st.tuples(
        st.integers(0, 5) | st.integers(0, 10**12),
        st.integers(0, 20000) | st.integers(0, 10**12),
        st.sampled_from([1, 250, 500, 1000]),
    ),
    max_size=7,
)


@RUN
@given(st.integers(0, 30000) | st.integers(0, 10**12), claims)
def test_division_agrees_with_its_twin_and_with_the_exact_one(
    surplus: int, claimed: list[tuple[int, int, int]]
) -> None:
    weights, rooms, granules = (array("q", [c[at] for c in claimed]) for at in range(3))
    out, twin_out = array("q", bytes(8 * len(claimed))), array("q", bytes(8 * len(claimed)))
    left = shares.divide(surplus, weights, rooms, granules, out)
    assert left == shares_twin.divide(surplus, weights, rooms, granules, twin_out)
    assert out == twin_out
    assert sum(out) + left == surplus
    wanted = sum(room for weight, room in zip(weights, rooms, strict=True) if weight)
    assert left == max(0, surplus - wanted)
    for grant, exact, room, granule in zip(
        out, _exact(surplus, weights, rooms), rooms, granules, strict=True
    ):
        assert 0 <= grant <= room
        if all(each == granule for each in granules) and granule == 1:
            assert abs(grant - exact) < 1


def _exact(surplus: int, weights: "array[int]", rooms: "array[int]") -> list[Fraction]:
    """The division in rational numbers, from its definition: raise a level until all is given."""
    claimants = [i for i, weight in enumerate(weights) if weight]
    level = Fraction(0)
    left = Fraction(surplus)
    for i in sorted(claimants, key=lambda i: Fraction(rooms[i], weights[i])):
        open_weight = sum(weights[j] for j in claimants if Fraction(rooms[j], weights[j]) > level)
        step = Fraction(rooms[i], weights[i]) - level
        if open_weight == 0 or step * open_weight >= left:
            break
        left -= step * open_weight
        level += step
    open_weight = sum(weights[j] for j in claimants if Fraction(rooms[j], weights[j]) > level)
    if open_weight:
        level += left / open_weight
    return [min(Fraction(rooms[i]), level * weights[i]) for i in range(len(weights))]
