"""Which candidates of kube-scheduler's preemption are kept, without a server."""

from typing import Any

import pytest

from extender.api.names import LABEL_NODE_POOL
from extender.http.book import Book
from extender.http.claim import PodClaim
from extender.http.verbs.preempt import keep_candidates
from extender.http.wire import MetaPod, MetaVictims
from tests.support.builders import pod, pool, project, whole
from tests.unit.http.books import book, claim, full_node, node, row


def victims(*uids: str) -> MetaVictims:
    return MetaVictims([MetaPod(uid) for uid in uids], 0)


def kept(known: Book, asked: PodClaim, candidates: dict[str, MetaVictims]) -> set[str]:
    answer = keep_candidates(known, asked, candidates)
    assert all(answer[name] is candidates[name] for name in answer)
    return set(answer)


def test_preemptible_pods_of_the_same_project_may_be_taken() -> None:
    known = book(full_node("n1"))
    asked = claim(pod("a").direct().needs(1000))
    assert kept(known, asked, {"n1": victims("uid-h-n1")}) == {"n1"}
    assert known.cards.free_of(0).tolist() == [0]


@pytest.mark.parametrize(
    "fields", [{"project": "team-b"}, {"non_preemptible": True}, {"has_floor": True}]
)
def test_foreign_and_non_preemptible_pods_and_replicas_with_a_floor_may_not(
    fields: dict[str, Any],
) -> None:
    known = book(full_node("n1", **fields))
    assert not kept(known, claim(pod("a").direct().needs(1000)), {"n1": victims("uid-h-n1")})


def test_one_protected_victim_drops_the_whole_node() -> None:
    held = [
        row(pod("mine").build(), whole(0), state="bound"),
        row(pod("other").build(), whole(1), state="bound", project="team-b"),
    ]
    known = book(node("n1", *held).build())
    asked = claim(pod("a").direct().needs(1000))
    assert not kept(known, asked, {"n1": victims("uid-mine", "uid-other")})
    assert kept(known, asked, {"n1": victims("uid-mine")}) == {"n1"}


def test_victims_without_gpus_do_not_make_cards_free() -> None:
    known = book(full_node("n1"), node("n2", cards=1).build())
    asked = claim(pod("a").direct().needs(1000))
    assert kept(known, asked, {"n1": victims("cpu-pod"), "n2": victims("cpu-pod")}) == {"n2"}


def test_a_candidate_without_victims_is_kept_where_the_pod_fits() -> None:
    known = book(full_node("n1"), node("n2", cards=1).build())
    asked = claim(pod("a").direct().needs(1000))
    assert kept(known, asked, {"n1": victims(), "n2": victims(), "n3": victims()}) == {"n2"}


def test_a_victim_whose_row_is_on_another_node_drops_the_candidate() -> None:
    known = book(full_node("n1"), node("n2", cards=1).build())
    asked = claim(pod("a").direct().needs(1000))
    assert not kept(known, asked, {"n2": victims("uid-h-n1")})


def test_what_victims_give_back_counts_for_the_share() -> None:
    known = book(full_node("n1"), node("n2", cards=1).build(), project("team-a").quota(1).build())
    asked = claim(pod("a").direct().needs(1000))
    assert kept(known, asked, {"n1": victims("uid-h-n1"), "n2": victims()}) == {"n1"}


def test_a_pod_for_an_unknown_node_pool_preempts_no_pod() -> None:
    # The pool's name is a letter of the reason's.
    in_pool = node("n1", row(pod("h").build(), whole(0), state="bound"), cards=1).build()
    in_pool.metadata.labels = {LABEL_NODE_POOL: "o"}
    known = book(in_pool, pool("o").build(), project("team-a").quota(1, pool="o").build())
    asked = claim(pod("a").direct().needs(1000).pools("unknown"))
    assert not kept(known, asked, {"n1": victims("uid-h")})
    asked = claim(pod("a").direct().needs(1000).pools("o"))
    assert kept(known, asked, {"n1": victims("uid-h")}) == {"n1"}


def test_a_planned_pod_preempts_no_pod() -> None:
    known = book(full_node("n1"))
    assert not kept(known, claim(pod("a").needs(1000).released("n1")), {"n1": victims("uid-h-n1")})


def test_a_pool_without_preemption_gives_no_victims() -> None:
    known = book(full_node("n1"), pool("default").without_preemption().build())
    asked = claim(pod("a").direct().needs(1000))
    assert not kept(known, asked, {"n1": victims("uid-h-n1")})
