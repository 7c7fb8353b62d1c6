"""Which cards of a node a pod gets if the node states which are near."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api import names
from extender.api.card_sets import CardSets, known_card_sets, read_card_sets
from extender.api.units import UnitError
from extender.policy.decide import decide
from extender.policy.placement.near_cards import nearest
from tests.support.snapshots import Cluster
from tests.unit.policy.test_place import places

PAIRS = {names.LABEL_CARDS_BY_NVLINK: "0-1.2-3.4-5.6-7"}
BOTH = PAIRS | {names.LABEL_CARDS_BY_NUMA: "0-3.4-7"}


def node_of(labels: dict[str, str], busy: list[int], rule: str = "binpack") -> Cluster:
    """A node of eight cards of which these are used."""
    cluster = Cluster()
    cluster.pool("default", rule)  # type: ignore[arg-type]
    cluster.project("a", 100)
    cluster.node("n0", gpus=8, labels=labels)
    for at in busy:
        cluster.job(f"busy{at}", "a", on="n0", cards=[at])
    return cluster


def cards_of(cluster: Cluster, gpus: int | str) -> list[int]:
    cluster.job("new", "a", gpus)
    _, cards = places(decide(cluster.snapshot()))["new-0"]
    return cards


@pytest.mark.parametrize(
    ("busy", "gpus", "cards"),
    [
        ([0], 2, [2, 3]),  # not 1 and 2, which are of two pairs
        ([0], 1, [1]),  # the pair that is broken already
        ([0, 4, 6], 4, [1, 2, 3, 5]),  # no set of four is left: a pair, and what is nearest
        ([4], 2, [6, 7]),  # the half that is broken, so that the other stays whole
        ([0], 4, [4, 5, 6, 7]),
        ([0, 2, 4], 2, [6, 7]),  # the one whole pair, whatever its half has left
        ([], 8, list(range(8))),
    ],
)
def test_whole_cards_are_near_and_near_sets_stay_whole(
    busy: list[int], gpus: int, cards: list[int]
) -> None:
    assert cards_of(node_of(BOTH, busy), gpus) == cards


@pytest.mark.parametrize(
    ("nvlink", "busy", "cards"),
    [
        ("0-3", [6, 7], [0, 1]),  # not 4 and 5, which are fewer and have no bridge
        ("0-1", [0, 1, 3], [4, 5]),  # not 2 and 4, which have no bridge and are of two halves
    ],
)
def test_cards_that_no_set_names_are_near_no_other(
    nvlink: str, busy: list[int], cards: list[int]
) -> None:
    labels = BOTH | {names.LABEL_CARDS_BY_NVLINK: nvlink}
    assert cards_of(node_of(labels, busy), 2) == cards


@pytest.mark.parametrize("rule", ["binpack", "spread", "best-fit", "first-fit", "fgd"])
def test_every_rule_of_placement_takes_near_cards(rule: str) -> None:
    assert cards_of(node_of(PAIRS, [0], rule), 2) == [2, 3]


def test_a_part_of_a_card_opens_a_set_that_is_broken() -> None:
    assert cards_of(node_of(BOTH, [5]), "0.5") == [4]
    assert cards_of(node_of(BOTH, [5], "spread"), "0.5") == [0]


def test_a_part_of_a_card_goes_to_a_partly_used_card_first() -> None:
    cluster = node_of(BOTH, [5])
    cluster.job("half", "a", "0.5", on="n0", cards=[1])
    assert cards_of(cluster, "0.5") == [1]


def test_a_node_that_says_nothing_or_nonsense_has_its_first_cards_taken() -> None:
    assert cards_of(node_of({}, [0]), 2) == [1, 2]
    assert cards_of(node_of({names.LABEL_CARDS_BY_NVLINK: "pairs"}, [0]), 2) == [1, 2]


def test_a_label_that_is_not_understood_leaves_the_others_their_effect() -> None:
    labels = PAIRS | {names.LABEL_CARDS_BY_NUMA: "0-3,4-7"}
    assert cards_of(node_of(labels, [0]), 2) == [2, 3]


@pytest.mark.parametrize("text", ["", "a", "0-1.", "3-2", "0-3.3-5", "0,1", "64", "0--1", "00"])
def test_what_is_no_list_of_sets_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="cards-by-pcie"):
        read_card_sets({names.LABEL_CARDS_BY_PCIE: text})
    assert known_card_sets({names.LABEL_CARDS_BY_PCIE: text}) == ()


def test_sets_are_read_the_widest_kind_first() -> None:
    labels = {names.LABEL_CARDS_BY_NVLINK: "0_2.1_3", names.LABEL_CARDS_BY_PCIE: "0-3.4"}
    assert read_card_sets(labels) == (
        (frozenset({0, 1, 2, 3}), frozenset({4})),
        (frozenset({0, 2}), frozenset({1, 3})),
    )


PARTS = BOTH | {names.LABEL_CARDS_BY_NVLINK: "1-2.6-7"}


def nearness(cards: tuple[int, ...], kinds: tuple[CardSets, ...]) -> int:
    """Of the kinds that have a set with all of these cards, the tightest; -1: none."""
    fitting = (at for at, sets in enumerate(kinds) if any(s.issuperset(cards) for s in sets))
    return max(fitting, default=-1)


@pytest.mark.parametrize("labels", [BOTH, PARTS])
@given(st.sets(st.integers(0, 7), min_size=1), st.data())
def test_no_other_cards_are_nearer(
    labels: dict[str, str], idle: set[int], data: st.DataObject
) -> None:
    kinds = read_card_sets(labels)
    n = data.draw(st.integers(2, len(idle))) if len(idle) > 1 else 1
    chosen = nearest(tuple(sorted(idle)), n, kinds)
    assert len(set(chosen)) == n
    assert idle.issuperset(chosen)
    if n > 1:
        others = combinations(sorted(idle), n)
        assert nearness(chosen, kinds) == max(nearness(each, kinds) for each in others)
