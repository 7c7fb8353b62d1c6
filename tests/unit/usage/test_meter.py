"""Holds: from when to when a row held cards, from the revisions of the ledger."""

import pytest
from msgspec.structs import replace

from extender.api.events import Removed
from extender.api.kinds import GpuNode
from extender.usage.meter import Hold, UsageMeter
from tests.unit.usage.ledgers import revision, row

NOW_S = 999_999
INSTANCE = "nvidia.com/mig-2g.10gb"


def meter(**users: str) -> UsageMeter:
    return UsageMeter(users.get)


def spans(of: UsageMeter) -> list[tuple[str, int, int, int | None]]:
    return sorted((each.uid, each.milli, each.since, each.until) for each in of.holds())


def test_a_row_holds_from_its_reservation_to_the_write_that_removes_it() -> None:
    seen = meter()
    seen.observe(revision(102, row("p", 500, 100)), NOW_S)
    seen.observe(revision(160), NOW_S)
    assert spans(seen) == [("p", 500, 100, 160)]


def test_a_place_that_is_only_promised_is_not_held() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 1000, 100, state="nominated")), NOW_S)
    assert spans(seen) == []
    seen.observe(revision(130, row("p", 1000, 129)), NOW_S)
    assert spans(seen) == [("p", 1000, 129, None)]


def test_a_row_that_becomes_bound_or_comes_of_a_newer_plan_is_one_hold() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 1000, 100)), NOW_S)
    seen.observe(revision(105, row("p", 1000, 104)), NOW_S)
    seen.observe(revision(110, row("p", 1000, 104, state="bound")), NOW_S)
    assert spans(seen) == [("p", 1000, 100, None)]


def test_another_amount_begins_another_hold() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 500, 100)), NOW_S)
    seen.observe(revision(140, row("p", 250, 100)), NOW_S)
    assert spans(seen) == [("p", 250, 140, None), ("p", 500, 100, 140)]


def test_an_instance_of_a_card_counts_as_in_quotas() -> None:
    """A GPU for each compute slice."""
    seen, held = meter(), replace(row("p", 0, 100), cards=[], counted={INSTANCE: 2})
    seen.observe(revision(100, held), NOW_S)
    assert spans(seen) == [("p", 4000, 100, None)]


def test_a_ledger_that_says_no_times_is_taken_at_the_time_it_is_seen() -> None:
    seen = meter()
    seen.observe(revision(0, row("p", 500, 0)), 200)
    seen.observe(revision(0), 260)
    assert spans(seen) == [("p", 500, 200, 260)]


def test_times_of_a_clock_that_was_ahead_are_those_at_which_they_are_seen() -> None:
    seen, far = meter(), 4_000_000_000
    seen.observe(revision(far, row("p", 500, far)), 200)
    seen.observe(revision(far), 260)
    assert spans(seen) == [("p", 500, 200, 260)]


@pytest.mark.parametrize(("ahead_s", "since"), [(60, 260), (61, 200)])
def test_a_reservation_more_than_a_minute_ahead_counts_as_now(ahead_s: int, since: int) -> None:
    seen = meter()
    seen.observe(revision(200, row("p", 500, 200 + ahead_s)), 200)
    assert spans(seen) == [("p", 500, since, None)]


def test_times_of_clocks_that_differ_by_seconds_stand_so_that_all_replicas_count_alike() -> None:
    seen = meter()
    seen.observe(revision(205, row("p", 500, 205)), 200)
    seen.observe(revision(265), 260)
    assert spans(seen) == [("p", 500, 205, 265)]


def test_a_node_that_goes_takes_its_holds_along() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 500, 100)), NOW_S)
    seen.observe(Removed(GpuNode, "uid-gpu-n", "", "n"), 150)
    assert spans(seen) == [("p", 500, 100, 150)]


def test_the_pool_and_model_are_those_of_the_node_when_the_row_came() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 500, 100), pool="a"), NOW_S)
    seen.observe(revision(100, row("p", 500, 100), pool="b"), NOW_S)
    (hold,) = seen.holds()
    assert (hold.node_pool, hold.model) == ("a", "A100")


def test_the_user_is_found_when_the_pod_is_seen_later_than_its_row() -> None:
    users: dict[str, str] = {}
    seen = UsageMeter(users.get)
    seen.observe(revision(100, row("p", 500, 100), row("q", 500, 100)), NOW_S)
    users["p"] = "ann"
    seen.observe(revision(101, row("q", 500, 100)), NOW_S)
    users["q"] = "bo"
    seen.name_users(seen.holds())
    assert {each.uid: each.user for each in seen.holds()} == {"p": "ann", "q": "bo"}


def test_work_that_is_lost_is_told_of_rows_that_are_there() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 500, 100)), NOW_S)
    seen.lose("n", "p", 7_000, 130)
    seen.lose("n", "unknown", 7_000, 130)
    (loss,) = seen.losses()
    assert (loss.hold.uid, loss.at, loss.milli_s) == ("p", 130, 7_000)


def test_what_ended_long_ago_is_forgotten_and_what_lasts_is_not() -> None:
    seen = meter()
    seen.observe(revision(100, row("p", 500, 100), row("q", 500, 100)), NOW_S)
    seen.lose("n", "p", 1, 120)
    seen.observe(revision(150, row("q", 500, 100)), NOW_S)
    seen.forget(150)
    assert [each.uid for each in sorted(seen.holds(), key=_uid)] == ["p", "q"]
    seen.forget(151)
    assert [each.uid for each in seen.holds()] == ["q"]
    assert seen.losses() == ()


def _uid(hold: Hold) -> str:
    return hold.uid
