"""Scores of nodes, without a server."""

from extender.http.book import Book
from extender.http.claim import PodClaim
from extender.http.verbs.prioritize import prioritize
from tests.support.builders import part, pod, pool
from tests.unit.http.books import book, claim, node, row


def scores(known: Book, asked: PodClaim, names: list[str]) -> dict[str, int]:
    return {each.host: each.score for each in prioritize(known, asked, names)}


def test_binpack_prefers_the_fuller_node_and_spread_the_emptier() -> None:
    held = row(pod("h").build(), part(0, 500))
    nodes = [node("full", held).build(), node("empty").build()]
    asked = claim(pod("a").direct().needs(500))
    packed = scores(book(*nodes), asked, ["full", "empty"])
    spread = scores(book(*nodes, pool("default").spread().build()), asked, ["full", "empty"])
    assert packed["full"] > packed["empty"]
    assert spread["full"] < spread["empty"]
    assert all(0 <= score <= 10 for score in (*packed.values(), *spread.values()))


def test_best_fit_wants_least_left_and_first_fit_does_not_care() -> None:
    held = row(pod("h").build(), part(0, 500))
    nodes = [node("big", held, cards=16).build(), node("small", cards=1).build()]
    asked = claim(pod("a").direct().needs(500))
    best = scores(book(*nodes, pool("default").placed("BestFit").build()), asked, ["big", "small"])
    first = scores(
        book(*nodes, pool("default").placed("FirstFit").build()), asked, ["big", "small"]
    )
    assert best["small"] > best["big"]
    assert first["small"] == first["big"]


def test_a_node_that_is_not_known_scores_nothing() -> None:
    asked = claim(pod("a").direct().needs(500))
    assert scores(book(node("n1").build()), asked, ["n9"]) == {"n9": 0}


def test_the_planned_node_scores_highest() -> None:
    asked = claim(pod("a").needs(500).released("n2"))
    assert scores(book(), asked, ["n1", "n2"]) == {"n1": 0, "n2": 10}
