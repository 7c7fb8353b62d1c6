"""Pods that stay on their own node keep their cards; pods placed there move over."""

from extender.api.kinds import CardShare
from extender.policy.placement.same_cards import keep_cards
from extender.state.model import PodView


def on(uid: str, node: str, *cards: tuple[int, int]) -> PodView:
    shares = tuple(CardShare(index, milli, 0) for index, milli in cards)
    return PodView(uid=uid, namespace="ns", name=uid, node=node, cards=shares)


def ended(before: list[PodView], *after: PodView) -> dict[str, tuple[tuple[int, int], ...]]:
    ends = {pod.uid: pod for pod in after}
    keep_cards(before, ends)
    return {
        uid: tuple((share.index, share.milli) for share in pod.cards) for uid, pod in ends.items()
    }


def test_a_pod_on_its_own_node_has_its_cards_again_and_others_have_the_rest() -> None:
    before = [on("a", "n0", (0, 1000)), on("b", "n0", (1, 1000))]
    after = on("a", "n0", (1, 1000)), on("b", "n0", (2, 1000)), on("new", "n0", (0, 1000))
    assert ended(before, *after) == {"a": ((0, 1000),), "b": ((1, 1000),), "new": ((2, 1000),)}


def test_halves_that_were_given_its_card_move_together() -> None:
    after = on("a", "n0", (3, 1000)), on("x", "n0", (0, 500)), on("y", "n0", (0, 250))
    assert ended([on("a", "n0", (0, 1000))], *after) == {
        "a": ((0, 1000),),
        "x": ((3, 500),),
        "y": ((3, 250),),
    }


def test_pods_of_several_cards_keep_those_that_they_can() -> None:
    after = on("a", "n0", (2, 1000), (3, 1000)), on("new", "n0", (0, 1000), (1, 1000))
    assert ended([on("a", "n0", (0, 1000), (1, 1000))], *after) == {
        "a": ((0, 1000), (1, 1000)),
        "new": ((2, 1000), (3, 1000)),
    }


def test_equal_parts_of_cards_are_exchanged_with_what_was_placed_there() -> None:
    before = [on("a", "n0", (0, 500)), on("b", "n0", (1, 500)), on("new", "")]
    after = on("a", "n0", (1, 500)), on("b", "n0", (0, 500)), on("new", "n0", (0, 500))
    assert ended(before, *after) == {"a": ((0, 500),), "b": ((1, 500),), "new": ((0, 500),)}
    after = on("a", "n0", (2, 500)), on("b", "n0", (1, 500)), on("new", "n0", (0, 500))
    assert ended(before, *after) == {"a": ((0, 500),), "b": ((1, 500),), "new": ((2, 500),)}


def test_parts_of_other_sizes_and_of_pods_that_stayed_are_not_exchanged() -> None:
    before = [on("a", "n0", (0, 500)), on("small", "")]
    after = on("a", "n0", (1, 500)), on("small", "n0", (0, 250)), on("stayed", "n0", (0, 500))
    assert ended(before, *after) == {
        "a": ((1, 500),),
        "small": ((0, 250),),
        "stayed": ((0, 500),),
    }


def test_parts_of_several_cards_are_exchanged_one_by_one() -> None:
    before = [on("a", "n0", (0, 500), (1, 500)), on("new", "")]
    after = on("a", "n0", (1, 500), (2, 500)), on("new", "n0", (0, 500))
    assert ended(before, *after) == {"a": ((0, 500), (1, 500)), "new": ((2, 500),)}
    after = on("a", "n0", (1, 500), (2, 500)), on("new", "n0", (0, 500), (2, 500))
    assert ended(before, *after) == {"a": ((1, 500), (2, 500)), "new": ((0, 500), (2, 500))}


def test_of_pods_that_would_exchange_with_the_same_pod_the_first_by_name_does() -> None:
    before = [on("a", "n0", (0, 500)), on("b", "n0", (0, 500)), on("new", "")]
    after = on("a", "n0", (1, 500)), on("b", "n0", (2, 500)), on("new", "n0", (0, 500))
    for listed in (before, before[::-1]):
        assert ended(listed, *after) == {"a": ((0, 500),), "b": ((2, 500),), "new": ((1, 500),)}


def test_other_nodes_stay_as_they_are() -> None:
    before = [on("a", "n0", (0, 500)), on("b", "n1", (0, 1000))]
    after = on("a", "n0", (1, 500)), on("b", "n2", (1, 1000))
    assert ended(before, *after) == {"a": ((1, 500),), "b": ((1, 1000),)}


def test_cards_stay_in_order() -> None:
    before = on("a", "n0", (0, 1000), (1, 1000))
    after = on("a", "n0", (1, 1000), (2, 1000)), on("new", "n0", (0, 1000), (3, 1000))
    assert ended([before], *after) == {
        "a": ((0, 1000), (1, 1000)),
        "new": ((2, 1000), (3, 1000)),
    }
