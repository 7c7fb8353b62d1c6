"""Which nodes filter keeps, on a book that was filled by events, without a server."""

import time

import pytest
from msgspec.structs import replace

from extender.api.events import Removed, Upserted
from extender.api.kinds import GpuDepartment, MonthUse, PoolUse, QueueStatus
from extender.api.months import PER_GPU_HOUR, month_of
from extender.api.names import LABEL_NODE_POOL
from extender.api.reasons import Reason
from extender.http.claim import read_claim
from extender.http.verbs.filter import Verdict, filter_nodes
from extender.http.verbs.place import pick_on
from tests.support.builders import department, part, pod, pool, project, whole
from tests.unit.http.books import book, claim, node, reasons, row, with_share

# -- planned pods ---------------------------------------------------------------------------------


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


# -- direct pods ----------------------------------------------------------------------------------


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
