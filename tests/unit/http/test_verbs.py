"""filter, prioritize and preempt on a book that was filled by events, without a server."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.events import Removed, Synced, Upserted
from extender.api.kinds import (
    GpuDepartment,
    GpuNode,
    GpuNodePool,
    GpuProject,
    MonthUse,
    PoolUse,
    QueueStatus,
    Row,
)
from extender.api.months import PER_GPU_HOUR, month_of
from extender.api.names import LABEL_NODE_POOL
from extender.api.objects import Pod
from extender.api.reasons import Reason, sentence
from extender.http.book import Book
from extender.http.claim import PodClaim, read_claim
from extender.http.verbs.filter import Verdict, filter_nodes
from extender.http.verbs.place import pick_on
from extender.http.verbs.preempt import keep_candidates
from extender.http.verbs.prioritize import prioritize
from extender.http.wire import MetaPod, MetaVictims
from tests.support.builders import (
    GpuNodeBuilder,
    PodBuilder,
    department,
    gpu_node,
    part,
    pod,
    pool,
    project,
    whole,
)
from tests.support.builders import row as row_of


def book(*objects: object) -> Book:
    """A book of project team-a with a quota of 100 GPUs, and of these objects."""
    made = Book()
    for each in (project("team-a").quota(100).build(), *objects):
        made.apply(Upserted(each))
    return made


def row(holder: Pod, *args: Any, project: str = "team-a", **fields: Any) -> Row:
    return replace(row_of(holder, *args), project=project, **fields)


def node(name: str, *rows: Row, cards: int = 2) -> GpuNodeBuilder:
    return gpu_node(name, cards).holds(*rows)


def claim(builder: PodBuilder) -> PodClaim:
    return read_claim(builder.build())


def reasons(texts: dict[str, str]) -> dict[str, Reason]:
    """Each text's reason; a text that is not a constant sentence fails."""
    found = {name: Reason(text.split(":")[0]) for name, text in texts.items()}
    assert all(texts[name] == sentence(reason) for name, reason in found.items())
    return found


def with_share(name: str, fair_share: str, quota: str = "1") -> GpuProject:
    made = project(name).quota(quota).build()
    status = QueueStatus(node_pools=[PoolUse(name="default", fair_share=fair_share)])
    return replace(made, status=status)


# -- filter: planned ------------------------------------------------------------------------------


def test_a_planned_pod_is_kept_on_its_node_only() -> None:
    planned = pod("a").needs(500).released("n1", epoch=4)
    held = row(planned.build(), part(0, 500), epoch=4)
    known = book(node("n1", held).build(), node("n2").build())
    assert filter_nodes(known, claim(planned), ["n1", "n2", "n3"]) == Verdict(["n1"])


def test_a_planned_pod_is_refused_on_every_other_node() -> None:
    planned = pod("a").needs(500).released("n1", epoch=4)
    held = row(planned.build(), part(0, 500), epoch=4)
    verdict = filter_nodes(book(node("n1", held).build()), claim(planned), ["n2", "n3"])
    assert (verdict.kept, verdict.failed) == ([], {})
    assert reasons(verdict.unresolvable) == dict.fromkeys(("n2", "n3"), Reason.PLANNED_ELSEWHERE)


def test_a_refused_planned_pod_is_told_of_every_node() -> None:
    planned = pod("a").needs(500).released("n1", epoch=4)
    verdict = filter_nodes(book(node("n1").build()), claim(planned), ["n1", "n2"])
    assert reasons(verdict.unresolvable) == {
        "n1": Reason.PLAN_NOT_RESERVED,
        "n2": Reason.PLANNED_ELSEWHERE,
    }


@pytest.mark.parametrize(
    ("state", "epoch"), [("reserved", 3), ("reserved", 5), ("nominated", 4), ("reserved", 0)]
)
def test_a_row_of_another_plan_or_only_nominated_admits_no_pod(state: str, epoch: int) -> None:
    planned = pod("a").needs(500).released("n1", epoch=4)
    held = row(planned.build(), part(0, 500), state=state, epoch=epoch)
    verdict = filter_nodes(book(node("n1", held).build()), claim(planned), ["n1"])
    assert reasons(verdict.unresolvable) == {"n1": Reason.PLAN_NOT_RESERVED}


def test_a_bound_row_still_admits_its_pod() -> None:
    planned = pod("a").needs(500).released("n1", epoch=4)
    held = row(planned.build(), part(0, 500), state="bound", epoch=4)
    assert filter_nodes(book(node("n1", held).build()), claim(planned), ["n1"]).kept == ["n1"]


def test_a_row_of_another_uid_admits_no_pod() -> None:
    held = row(pod("a").uid("old").build(), part(0, 500), epoch=4)
    planned = pod("a").uid("new").needs(500).released("n1", epoch=4)
    assert filter_nodes(book(node("n1", held).build()), claim(planned), ["n1"]).kept == []


def test_a_planned_card_that_fell_ill_is_refused() -> None:
    planned = pod("a").needs(500).released("n1", epoch=4)
    held = row(planned.build(), part(1, 500), epoch=4)
    verdict = filter_nodes(book(node("n1", held).sick(1).build()), claim(planned), ["n1"])
    assert reasons(verdict.unresolvable) == {"n1": Reason.CARD_UNHEALTHY}


@pytest.mark.parametrize("plan", ["n1", "x n1", "1 n1 n2", "-1 n1", "1 N1", "1  n1", "01 n1", " "])
def test_a_plan_that_is_not_understood_admits_no_pod(plan: str) -> None:
    told = pod("a").needs(500).direct().notes({"ballast.dev/plan": plan})
    verdict = filter_nodes(book(node("n1").build()), claim(told), ["n1"])
    assert reasons(verdict.unresolvable) == {"n1": Reason.NOT_PLANNED}


def test_a_gated_pod_is_kept_nowhere() -> None:
    verdict = filter_nodes(book(node("n1").build()), claim(pod("a").needs(500)), ["n1"])
    assert reasons(verdict.unresolvable) == {"n1": Reason.NOT_PLANNED}


# -- filter: direct -------------------------------------------------------------------------------


def test_a_direct_pod_is_kept_where_a_card_fits() -> None:
    full = [row(pod(f"h{i}").build(), part(i, 700)) for i in (0, 1)]
    known = book(node("n1", *full).build(), node("n2", full[0]).build())
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1", "n2", "n3"])
    assert verdict.kept == ["n2"]
    assert reasons(verdict.failed) == {"n1": Reason.CARDS_BUSY}
    assert reasons(verdict.unresolvable) == {"n3": Reason.UNKNOWN_NODE}


def test_a_sick_card_fits_nothing() -> None:
    verdict = filter_nodes(
        book(node("n1").sick(0, 1).build()), claim(pod("a").direct().needs(100)), ["n1"]
    )
    assert reasons(verdict.failed) == {"n1": Reason.CARDS_BUSY}


def test_a_nominated_row_keeps_direct_pods_off() -> None:
    held = [row(pod(f"h{i}").build(), part(i, 900), state="nominated") for i in (0, 1)]
    verdict = filter_nodes(
        book(node("n1", *held).build()), claim(pod("a").direct().needs(200)), ["n1"]
    )
    assert verdict.kept == []


def test_a_direct_pod_with_a_class_that_its_project_does_not_allow_is_kept_nowhere() -> None:
    allowing = with_share("team-a", "4", "4")
    allowing.spec.allowed_priority_classes = ["ballast-training"]
    known = book(node("n1").build(), allowing)
    built = pod("a").direct().needs(300).build()
    built.spec.priority_class_name = "ballast-inference"
    verdict = filter_nodes(known, read_claim(built), ["n1"])
    found = reasons(verdict.unresolvable | verdict.failed)
    assert found == {"n1": Reason.PRIORITY_CLASS_NOT_ALLOWED}


def test_cards_that_foreign_pods_hold_fit_nothing() -> None:
    known = book(node("n1").foreign("s", 2).build(), node("n2").foreign("s", 1).build())
    direct = claim(pod("a").direct().needs(300))
    assert filter_nodes(known, direct, ["n1", "n2"]).kept == ["n2"]
    for ledger, picked in (("n1", []), ("n2", [0])):
        found = known.node(ledger)
        assert found is not None
        cards = pick_on(found, (), direct.demand, "binpack")
        assert [card.index for card in cards] == picked


def test_memory_is_turned_into_a_share_of_the_nodes_cards() -> None:
    known = book(
        node("small").cards(1, mib=8_000).build(), node("large").cards(1, mib=40_000).build()
    )
    verdict = filter_nodes(known, claim(pod("a").direct().needs_mib(9_000)), ["small", "large"])
    assert verdict.kept == ["large"]


def test_a_card_model_that_was_not_asked_for_is_refused() -> None:
    known = book(
        node("n1").cards(1, model="A100").build(), node("n2").cards(1, model="Tesla-T4").build()
    )
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500).models("t4")), ["n1", "n2"])
    assert verdict.kept == ["n2"]
    assert reasons(verdict.unresolvable) == {"n1": Reason.NO_MATCHING_NODE}


def test_nodes_of_other_pools_are_refused() -> None:
    fast = node("n1").labels({LABEL_NODE_POOL: "fast"}).build()
    known = book(fast, node("n2").build(), pool("fast", speed="high").build())
    chosen = claim(pod("a").direct().needs(500).pools("default"))
    verdict = filter_nodes(known, chosen, ["n1", "n2"])
    assert verdict.kept == ["n2"]
    assert reasons(verdict.unresolvable) == {"n1": Reason.NO_MATCHING_NODE}


def test_a_pool_that_does_not_exist_is_refused_everywhere() -> None:
    verdict = filter_nodes(
        book(node("n1").build()), claim(pod("a").direct().needs(500).pools("gone")), ["n1"]
    )
    assert reasons(verdict.unresolvable) == {"n1": Reason.UNKNOWN_NODE_POOL}


def test_a_namespace_of_no_project_is_refused_everywhere() -> None:
    stranger = claim(pod("a").of("elsewhere").direct().needs(500))
    verdict = filter_nodes(book(node("n1").build()), stranger, ["n1"])
    assert reasons(verdict.unresolvable) == {"n1": Reason.UNKNOWN_PROJECT}


def test_a_request_that_is_not_understood_is_refused_everywhere() -> None:
    told = pod("a").direct().notes({"gpu-fraction": "0.5\n"})
    verdict = filter_nodes(book(node("n1").build()), claim(told), ["n1"])
    assert reasons(verdict.unresolvable) == {"n1": Reason.INVALID_REQUEST}


def test_a_pod_without_gpus_passes_everywhere() -> None:
    verdict = filter_nodes(book(), claim(pod("a").direct()), ["n1", "n2"])
    assert verdict == Verdict(["n1", "n2"])


@pytest.mark.parametrize(
    ("fair_share", "quota", "held", "is_kept"),
    [
        ("0", "1", 500, True),
        ("0", "1", 600, False),
        ("1.5", "1", 1000, True),
        ("1.5", "1", 1001, False),
        ("nonsense", "1", 500, True),
    ],
)
def test_a_direct_pod_stays_within_quota_or_fair_share(
    fair_share: str, quota: str, held: int, is_kept: bool
) -> None:
    rows = [row(pod("h").build(), [*part(0, min(held, 1000)), *part(1, max(held - 1000, 1))])]
    rows = [replace(rows[0], cards=[c for c in rows[0].cards if held > 1000 or c.index == 0])]
    known = book(node("n1", *rows).build(), with_share("team-a", fair_share, quota))
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1"])
    assert (verdict.kept == ["n1"]) is is_kept
    if not is_kept:
        assert reasons(verdict.failed) == {"n1": Reason.OVER_FAIR_SHARE}


def test_work_that_may_not_be_evicted_is_never_placed_directly() -> None:
    fixed = claim(pod("a").direct().needs(500).kind("inference"))
    verdict = filter_nodes(book(node("n1").build()), fixed, ["n1"])
    assert verdict.kept == []
    assert reasons(verdict.unresolvable) == {"n1": Reason.NOT_PLANNED}


@pytest.mark.parametrize(("limit", "told"), [("0.4", {"n1": Reason.OVER_LIMIT}), ("0.5", {})])
def test_a_limit_binds_even_below_the_share(limit: str, told: dict[str, Reason]) -> None:
    known = book(node("n1").build(), project("team-a").quota(1, limit=limit).build())
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1"])
    assert reasons(verdict.failed) == told


@pytest.mark.parametrize(("share", "is_kept"), [("1", False), ("2", True)])
def test_a_direct_pod_stays_within_its_departments_share(share: str, is_kept: bool) -> None:
    other = project("team-b").quota(4).build()
    held = row(pod("h").build(), whole(0), project="team-b")
    science = department("science").quota("0.5").build()
    shared = QueueStatus(node_pools=[PoolUse(name="default", fair_share=share)])
    known = book(node("n1", held).build(), other, replace(science, status=shared))
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1"])
    assert (verdict.kept == ["n1"]) is is_kept
    known.apply(Removed(GpuDepartment, "uid-science", "", "science"))
    assert filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1"]).kept == ["n1"]


def test_a_project_that_changes_its_department_takes_its_use_along() -> None:
    held = row(pod("h").build(), whole(0), project="team-b")
    known = book(node("n1", held).build(), project("team-b").of("science").build())
    assert known.use_of_department("science", "default") == 1000
    known.apply(Upserted(project("team-b").of("arts").build()))
    assert known.use_of_department("science", "default") == 0
    assert known.use_of_department("arts", "default") == 1000


def test_a_direct_pod_that_has_a_row_is_kept_on_that_node_only() -> None:
    held = row(pod("a").build(), part(0, 500), epoch=0)
    known = book(node("n1", held).build(), node("n2").build())
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1", "n2"])
    assert verdict.kept == ["n1"]


def test_a_pod_whose_plan_was_revoked_waits_for_the_next() -> None:
    held = row(pod("a").build(), part(0, 500), epoch=0, reserved_at=77)
    known = book(node("n1", held).build(), node("n2").build())
    revoked = pod("a").direct().needs(500).notes({"ballast.dev/revoked": "n1 0 77"})
    verdict = filter_nodes(known, claim(revoked), ["n1", "n2"])
    assert verdict.kept == []
    assert set(reasons(verdict.unresolvable).values()) == {Reason.NOT_PLANNED}


def test_a_pod_of_a_group_is_never_placed_directly() -> None:
    member = pod("a").direct().needs(500).gang("g", 2)
    verdict = filter_nodes(book(node("n1").build()), claim(member), ["n1"])
    assert verdict.kept == []


# -- prioritize -----------------------------------------------------------------------------------


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


# -- preempt --------------------------------------------------------------------------------------


def victims(*uids: str) -> MetaVictims:
    return MetaVictims([MetaPod(uid) for uid in uids], 0)


def kept(known: Book, asked: PodClaim, candidates: dict[str, MetaVictims]) -> set[str]:
    answer = keep_candidates(known, asked, candidates)
    assert all(answer[name] is candidates[name] for name in answer)
    return set(answer)


def full_node(name: str, **fields: Any) -> GpuNode:
    """A node of one card that pod `h-<name>` holds."""
    held = row(pod(f"h-{name}").build(), whole(0), state="bound", **fields)
    return node(name, held, cards=1).build()


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


def test_a_planned_pod_preempts_no_pod() -> None:
    known = book(full_node("n1"))
    assert not kept(known, claim(pod("a").needs(1000).released("n1")), {"n1": victims("uid-h-n1")})


def test_a_pool_without_preemption_gives_no_victims() -> None:
    known = book(full_node("n1"), pool("default").without_preemption().build())
    asked = claim(pod("a").direct().needs(1000))
    assert not kept(known, asked, {"n1": victims("uid-h-n1")})


# -- the book -------------------------------------------------------------------------------------


def test_the_book_is_ready_when_all_kinds_are_listed() -> None:
    known = Book()
    for kind in (GpuNode, GpuNodePool, GpuDepartment):
        known.apply(Synced(kind))
    assert not known.is_synced
    known.apply(Synced(GpuProject))
    assert known.is_synced


def test_an_older_version_of_a_ledger_is_passed_over() -> None:
    held = row(pod("h").build(), part(0, 500))
    known = book(node("n1", held).version(7).build())
    known.apply(Upserted(node("n1").version(6).build()))
    assert known.row("uid-h", "n1") == held
    known.apply(Upserted(node("n1").version(8).build()))
    assert known.row("uid-h", "n1") is None


def test_a_ledger_made_anew_counts_from_its_first_version() -> None:
    held = row(pod("h").build(), part(0, 500))
    known = book(node("n1", held).version(7).build())
    known.apply(Upserted(node("n1").uid("second").version(3).build()))
    assert known.row("uid-h", "n1") is None


def test_use_follows_rows_and_pools() -> None:
    held = row(pod("h").build(), part(0, 500))
    labelled = node("n1", held).labels({LABEL_NODE_POOL: "fast"}).build()
    known = book(labelled)
    assert known.use_of("team-a", "fast") == 500
    known.apply(Upserted(pool("fast", speed="high").build()))
    assert known.use_of("team-a", "fast") == 500
    known.apply(Removed(GpuNode, "uid-gpu-n1", "", "n1"))
    assert known.use_of("team-a", "fast") == 0
    assert (len(known), known.pool_of("n1")) == (0, "")


def test_a_promise_counts_until_it_is_kept_or_broken() -> None:
    known = book()
    with known.promised("team-a", "default", 700):
        assert known.use_of("team-a", "default") == 700
    assert known.use_of("team-a", "default") == 0


def test_direct_pod_of_a_project_without_hours_left_stays_within_its_quota() -> None:
    month = MonthUse(
        month=month_of(int(time.time())), gpu_hours="1.0", milli_gpu_seconds=PER_GPU_HOUR
    )
    use = PoolUse(name="default", fair_share="2", month=month)
    spent = project("team-a").quota("0.4", gpu_hours=1).build()
    known = book(node("n1").build(), replace(spent, status=QueueStatus(node_pools=[use])))
    verdict = filter_nodes(known, claim(pod("a").direct().needs(500)), ["n1"])
    assert reasons(verdict.failed) == {"n1": Reason.OVER_BUDGET}
    assert filter_nodes(known, claim(pod("a").direct().needs(400)), ["n1"]).kept == ["n1"]
