"""The kernels that choose victims give the answers of their twins, and keep their promises."""

from array import array
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.demand import Demand
from extender.kernels import appraisal, choice, clearing, sums, vacancy, victims
from tests.twins import (
    appraisal_twin,
    choice_twin,
    clearing_twin,
    sums_twin,
    vacancy_twin,
    victims_twin,
)
from tests.unit.kernels.herds import Case, Giver, Place, Pod, Work

RUN = settings(max_examples=200, deadline=None)

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
    """Up to three nodes, mostly full, and terms of every kind."""
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
        kernel.sum_units(case.herd, total, largest)
        answers.append((idle, total, largest))
    assert answers[0] == answers[1]


@RUN
@given(cases(), st.data())
def test_room_without_some_pods_agrees_with_the_twin(case: Case, data: st.DataObject) -> None:
    kernels = [
        kernel.Vacancy(case.table, case.herd, case.demand, *case.extras)
        for kernel in (vacancy, vacancy_twin)
    ]
    for ix in range(len(case.places)):
        here = range(case.herd.start[ix], case.herd.start[ix + 1])
        gone = array("i", [p for p in here if data.draw(st.booleans())])
        rooms = [kernel.room(ix, gone, 5) for kernel in kernels]
        assert rooms[0] == rooms[1]


@RUN
@given(cases(), st.randoms(use_true_random=False))
def test_appraisals_agree_whatever_left_before(case: Case, random: object) -> None:
    kernels = [kernel.Appraisal(case.herd, case.terms) for kernel in (appraisal, appraisal_twin)]
    chosen = array("i")
    order = list(range(len(case.pods)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for p in order:
        prices = [kernel.price(p, chosen) for kernel in kernels]
        assert prices[0] == prices[1]
        if prices[0] is not None:
            chosen.append(p)


@RUN
@given(cases(), st.randoms(use_true_random=False))
def test_what_is_needed_of_a_list_agrees_with_the_twin(case: Case, random: object) -> None:
    kernels = [kernel.Choice(*case.arguments) for kernel in (choice, choice_twin)]
    for ix in range(len(case.places)):
        pods = list(range(case.herd.start[ix], case.herd.start[ix + 1]))
        random.shuffle(pods)  # type: ignore[attr-defined]
        answers = [kernel.needed(ix, array("i", pods)) for kernel in kernels]
        assert answers[0] == answers[1]


@RUN
@given(cases())
def test_who_leaves_agrees_with_the_twin(case: Case) -> None:
    for ix in range(len(case.places)):
        assert chosen_by(clearing, case, ix) == chosen_by(clearing_twin, case, ix)


@RUN
@given(cases())
def test_one_more_fits_when_the_chosen_left_and_not_before(case: Case) -> None:
    node = vacancy.Vacancy(case.table, case.herd, case.demand, *case.extras)
    for ix in range(len(case.places)):
        chosen = chosen_by(clearing, case, ix)
        if chosen is not None:
            assert node.room(ix, array("i", chosen), 1) == 1
            assert not chosen or node.room(ix, array("i"), 1) == 0


@RUN
@given(cases(), st.integers(0, 9), st.data())
def test_prices_agree_with_the_twin_while_nodes_change(
    case: Case, most: int, data: st.DataObject
) -> None:
    candidates = array("i", data.draw(st.permutations(range(len(case.places)))))
    extras = case.extras
    rooms = [
        kernel.Room(case.table, candidates, case.herd, case.terms, case.demand, *extras)
        for kernel in (victims, victims_twin)
    ]
    for room in rooms:
        room.update_all()
    assert_alike(rooms, len(candidates), most)
    at = data.draw(st.integers(0, len(candidates) - 1))
    case.table.free_pods[candidates[at]] += 1
    for room in rooms:
        room.update(array("i", [at]))
    assert_alike(rooms, len(candidates), most)
    for room in rooms:
        room.exclude(at)
    assert rooms[0].cheapest() == rooms[1].cheapest() != at


def chosen_by(kernel: ModuleType, case: Case, ix: int) -> list[int] | None:
    """The pods that leave the node, or None where nothing helps."""
    out = array("i", [9] * (case.herd.most_pods + 1))
    n = kernel.Clearing(*case.arguments).choose(ix, out)
    return None if n < 0 else list(out[:n])


def assert_alike(rooms: "list[victims.Room | victims_twin.Room]", n: int, most: int) -> None:
    """The same prices, the same cheapest node, the same capacity."""
    for at in range(n):
        prices = [room.price(at) for room in rooms]
        assert prices[0][0] == prices[1][0]
        if prices[0][0] != victims.IMPOSSIBLE:
            assert prices[0] == prices[1]
    assert rooms[0].cheapest() == rooms[1].cheapest()
    assert rooms[0].capacity(most) == rooms[1].capacity(most)
