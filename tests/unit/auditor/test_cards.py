"""A1, A2, A5: no card is allocated twice."""

from tests.unit.auditor.story import Story, parse


def two_pods() -> Story:
    return Story().node().pod("a").pod("b")


def test_two_halves_of_a_card_are_fine() -> None:
    story = two_pods().run("a").run("b", cards="0:500:40000")
    assert story.violations == []
    assert story.checker.counts.binds == 2


def test_a_write_without_compare_and_swap_that_fills_a_card_twice_breaks_a1() -> None:
    story = two_pods().pod("c", fraction="0.7")
    story.reserve("a").reserve("b")
    assert story.broken == set()
    story.reserve("c", cards=parse("0:700:56000"))
    assert story.broken == {"A1"}
    assert "1700 of 1000 milli" in story.violations[0].detail


def test_a_lost_row_of_a_stale_write_is_seen_when_its_pod_is_bound() -> None:
    """Two writers read the same GpuNode; the second one's write forgets the first one's row."""
    story = two_pods().reserve("a").release("a")
    story.free("a").reserve("b")
    story.bind("a")
    assert {"A3", "B3", "R1"} <= story.broken


def test_memory_beyond_the_cards_breaks_a1_though_milli_fit() -> None:
    story = two_pods().reserve("a", cards=parse("0:500:60000"))
    story.reserve("b", cards=parse("0:500:60000"))
    assert story.broken == {"A1"}


def test_a_row_on_a_card_that_is_not_there_breaks_a1() -> None:
    assert two_pods().reserve("a", cards=parse("5:500:40000")).broken == {"A1"}


def test_a_row_beside_a_whole_card_breaks_a2() -> None:
    story = two_pods().reserve("a", cards=parse("0:1000:80000"))
    assert story.reserve("b", cards=parse("0:1:0")).broken == {"A1", "A2"}


def test_a_row_of_a_pod_that_has_ended_takes_no_room() -> None:
    story = Story().node().pod("a", fraction="0.9").pod("b", fraction="0.9")
    story.run("a", cards="0:900:72000").end("a").run("b", cards="0:900:72000")
    assert story.violations == []


def test_a_row_of_a_pod_that_is_leaving_takes_room_until_it_is_gone() -> None:
    leaving = {"deletionTimestamp": "2026-11-21T10:00:00Z"}
    story = Story().node().pod("a").run("a").change_pod("a", metadata=leaving)
    for name in ("b", "c"):
        story.pod(name).reserve(name)
    assert "A1" in story.broken


def test_a_nominated_row_may_overlap_what_its_victims_still_hold() -> None:
    story = two_pods().run("a", cards="0:500:40000").pod("big")
    story.reserve("big", cards=parse("0:1000:80000"), state="nominated")
    assert story.violations == []


def test_two_nominated_rows_may_not_claim_the_same_place() -> None:
    story = two_pods().reserve("a", cards=parse("0:700:1"), state="nominated")
    assert story.reserve("b", cards=parse("0:700:1"), state="nominated").broken == {"A1"}


def test_a_reservation_may_not_take_a_place_that_is_held_for_another() -> None:
    story = two_pods().reserve("a", cards=parse("0:700:1"), state="nominated")
    story.reserve("b", cards=parse("0:500:40000"))
    assert story.broken == {"A1"}
    assert "held for team/a" in story.violations[0].detail


def test_a_wrong_that_lasts_is_reported_once() -> None:
    story = two_pods().reserve("a", cards=parse("0:900:1")).reserve("b", cards=parse("0:900:1"))
    story.pod("c").reserve("c", cards=parse("1:500:40000"))
    assert len(story.violations) == 1


def test_a_bound_row_that_changes_its_card_breaks_a5() -> None:
    story = Story().node().pod("a").run("a")
    story.reserve("a", cards=parse("1:500:40000"), state="bound")
    assert "A5" in story.broken


def test_a_bound_row_that_moves_to_another_node_breaks_a5() -> None:
    story = Story().node().node("n2").pod("a").run("a").reserve("a", "n2", state="bound")
    assert "A5" in story.free("a", "n1").broken
