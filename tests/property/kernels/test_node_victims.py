"""The kernels that choose victims give the answers of their twins."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.demand import Demand
from extender.kernels import node_victims, sums
from tests.twins import node_victims_twin, sums_twin
from tests.unit.kernels.cases import Case, Giver, Place, Pod, Work

RUN = settings(max_examples=200)

amounts = st.tuples(*[st.integers(0, 3).map(lambda n: 500 * n)] * 3)
floors = st.tuples(amounts, amounts)
demands = st.builds(
    Demand,
    st.integers(1, 3) | st.just(0),
    st.sampled_from([250, 500, 600, 1000]),
    st.just(0),
    st.integers(0, 4),
    st.integers(0, 4),
) | st.builds(Demand, st.integers(1, 2), st.just(0), st.sampled_from([1000, 8192, 20000]))
works = st.builds(
    Work,
    queue=st.integers(0, 2),
    surplus=st.integers(0, 3),
    priority=st.integers(0, 3),
    rank=st.integers(0, 2),
    age=st.integers(0, 3),
    is_stuck=st.sampled_from([False] * 7 + [True]),
)
givers = st.builds(
    Giver,
    has=st.tuples(*[st.integers(2, 14).map(lambda n: 500 * n)] * 3),
    floors=floors,
    tiers=st.sampled_from([0, 1, 2, 2, 2, 2]),
    path=st.sampled_from([(), (0,), (0, 2), (1, 2), (2,)]),
    is_mobile=st.booleans(),
)


@st.composite
def pods_on(draw: st.DrawFn, node: int, n_cards: int, n_extra: int) -> list[Pod]:
    """Pods that hold no more than there is of each card."""
    held = [0] * n_cards
    pods = []
    for turn in range(draw(st.integers(2, 6))):
        milli = draw(st.sampled_from([250, 500, 1000, 1000]))
        open_cards = [card for card in range(n_cards) if held[card] + milli <= 1000]
        cards = tuple(open_cards[: draw(st.integers(0, 2))])
        for card in cards:
            held[card] += milli
        pods.append(
            Pod(
                node,
                owner=draw(st.integers(0, 3)),
                cards=cards,
                milli=milli,
                cpu=draw(st.integers(0, 3)),
                memory=draw(st.integers(0, 3)),
                lost=draw(st.integers(0, 4)),
                turn=turn,
                shape=draw(st.integers(0, 1)),
                is_here=draw(st.sampled_from([True] * 7 + [False])),
                is_core=draw(st.sampled_from([False] * 4 + [True])),
                may_move=draw(st.booleans()),
                safe=draw(st.sampled_from([0] * 8 + [1, 2])),
                extra=tuple(draw(st.integers(0, 1)) for _ in range(n_extra)),
            )
        )
    return pods


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to three nodes, mostly full, and pods of every eligibility."""
    n_extra = draw(st.sampled_from([0, 0, 1, 2]))
    places, pods = [], []
    for node in range(draw(st.integers(1, 3))):
        n_cards = draw(st.sampled_from([0, 1, 2, 3, 4, 4]))
        own = draw(pods_on(node, n_cards, n_extra))
        used = [sum(pod.milli for pod in own if card in pod.cards) for card in range(n_cards)]
        free = [min(1000 - milli, draw(st.sampled_from([0, 0, 500, 1000, -200]))) for milli in used]
        places.append(
            Place(
                free,
                cpu=draw(st.integers(-1, 8)),
                memory=draw(st.integers(-1, 8)),
                slots=draw(st.integers(0, 2)),
                mib=draw(st.sampled_from([0, 16384, 16384, 16384])),
                extra=tuple(draw(st.integers(0, 1)) for _ in range(n_extra)),
            )
        )
        pods += own
    return Case(
        places,
        pods,
        work=[draw(works) for _ in range(4)],
        givers=[draw(givers) for _ in range(3)],
        demand=draw(demands),
        extra_need=tuple(draw(st.integers(1, 2)) for _ in range(n_extra)),
        moves=(draw(st.booleans()), False),
        below_priority=draw(st.sampled_from([2, 4, 4])),
    )


@RUN
@given(cases(), st.integers(0, 12))
def test_sums_agree_with_their_twin(case: Case, n: int) -> None:
    answers = []
    for kernel in (sums, sums_twin):
        idle, total, largest = array("q", [9] * 3), array("q", [9] * 9), array("q", [9] * 9)
        kernel.sum_idle(case.table, array("i", range(len(case.places))), idle)
        kernel.sum_units(case.candidates, total, largest)
        answers.append((idle, total, largest))
    assert answers[0] == answers[1]


@RUN
@given(cases())
def test_the_victims_on_a_node_are_those_of_the_twin(case: Case) -> None:
    kernels = both(case, array("i", range(len(case.places))))
    for ix in range(len(case.places)):
        chosen = []
        for kernel in kernels:
            out = array("i", [-1] * (case.candidates.most_pods + 1))
            chosen.append((kernel.choose(ix, out), list(out)))
        assert chosen[0] == chosen[1]
    assert_alike(kernels, len(case.places), 5)


@RUN
@given(cases(), st.integers(0, 9), st.data())
def test_costs_agree_with_the_twin_while_nodes_change(
    case: Case, most: int, data: st.DataObject
) -> None:
    node_ixs = array("i", data.draw(st.permutations(range(len(case.places)))))
    kernels = both(case, node_ixs)
    for kernel in kernels:
        kernel.update(node_ixs)
    assert_alike(kernels, len(node_ixs), most)
    at = data.draw(st.integers(0, len(node_ixs) - 1))
    case.table.free_pods[node_ixs[at]] += 1
    for kernel in kernels:
        kernel.update(array("i", [at]))
    assert_alike(kernels, len(node_ixs), most)
    for kernel in kernels:
        kernel.exclude(at)
    assert kernels[0].cheapest() == kernels[1].cheapest() != at


Kernel = node_victims.NodeVictims | node_victims_twin.NodeVictims


def both(case: Case, node_ixs: "array[int]") -> list[Kernel]:
    """The kernel and its twin."""
    return [
        kernel.NodeVictims(
            case.table, node_ixs, case.candidates, case.eligibility, case.demand, *case.extras
        )
        for kernel in (node_victims, node_victims_twin)
    ]


def assert_alike(kernels: list[Kernel], n: int, most: int) -> None:
    """The same costs, the same cheapest node, the same capacity."""
    for at in range(n):
        assert kernels[0].cost(at) == kernels[1].cost(at)
    assert kernels[0].cheapest() == kernels[1].cheapest()
    assert kernels[0].capacity(most) == kernels[1].capacity(most)
