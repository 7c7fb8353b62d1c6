"""A3, A4, R1: every bound pod has its row, every row its pod, and rows are freed in time."""

import pytest

from tests.support.auditor import Limits
from tests.unit.auditor.story import Story, parse


def test_a_row_freed_while_its_pod_runs_breaks_a3() -> None:
    assert {"A3", "B3"} >= Story().node().pod("a").run("a").free("a").broken > set()


def test_a_pod_that_has_ended_needs_no_row_whatever_its_status_says_later() -> None:
    story = Story().node().pod("a").run("a").end("a", "Failed").free("a")
    assert story.change_pod("a", status={"phase": "Running"}).broken == set()


def test_a_row_freed_on_the_deletion_timestamp_breaks_a3() -> None:
    story = Story().node().pod("a").run("a")
    story.change_pod("a", metadata={"deletionTimestamp": "2026-11-21T10:00:00Z"}).free("a")
    assert "A3" in story.broken


def test_a_row_on_another_node_than_its_pods_breaks_a3() -> None:
    story = Story().node().node("n2").pod("a").reserve("a", "n2").release("a", "n2").bind("a", "n1")
    assert "A3" in story.broken


@pytest.mark.parametrize("leave", [Story.delete, Story.end])
def test_a_row_may_be_freed_once_its_pod_is_gone_or_has_ended(leave: object) -> None:
    story = Story().node().pod("a").run("a")
    leave(story, "a")  # type: ignore[operator]
    assert story.free("a").violations == []


def test_a_row_freed_while_its_plan_may_still_be_bound_breaks_r1() -> None:
    story = Story().node().pod("a").reserve("a").release("a")
    assert story.free("a").broken == {"R1"}


def test_a_row_may_be_freed_after_its_plan_was_taken_back() -> None:
    story = Story().node().pod("a").reserve("a").release("a")
    story.change_pod("a", annotations={"ballast.dev/plan": None}).free("a")
    assert story.violations == []


def test_a_release_without_a_row_in_the_ledger_breaks_r1() -> None:
    assert Story().node().pod("a").release("a").broken == {"R1"}


def test_a_release_by_an_older_plan_than_the_row_breaks_r1() -> None:
    assert Story().node().pod("a").reserve("a").release("a", epoch=3).broken == {"R1"}


def test_a_release_of_a_nominated_row_breaks_r1() -> None:
    assert Story().node().pod("a").reserve("a", state="nominated").release("a").broken == {"R1"}


def test_two_rows_of_one_bound_pod_break_a3() -> None:
    story = Story().node().node("n2").pod("a").run("a").reserve("a", "n2")
    assert "A3" in story.broken


@pytest.mark.parametrize(
    ("asks", "cards"),
    [
        ({"gpu-fraction": "0.25"}, "0:500:40000"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "0:500:40000"),
        ({"gpu-memory": "16000"}, "0:199:16000"),
        ({"gpu-memory": "16000"}, "0:200:15000"),
        ({"gpu-fraction": "half"}, "0:500:40000"),
    ],
)
def test_a_row_that_is_not_what_the_pod_asked_for_breaks_a3(
    asks: dict[str, str], cards: str
) -> None:
    assert "A3" in Story().node().pod("a", asks=asks).run("a", cards=cards).broken


@pytest.mark.parametrize(
    ("asks", "cards"),
    [
        ({"gpu-fraction": "0.25"}, "1:250:20000"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "0:500:40000,1:500:40000"),
        ({"gpu-memory": "16000"}, "0:200:16000"),
    ],
)
def test_a_row_that_is_what_the_pod_asked_for_is_fine(asks: dict[str, str], cards: str) -> None:
    assert Story().node().pod("a", asks=asks).run("a", cards=cards).violations == []


def test_whole_cards_are_read_from_the_resources() -> None:
    story = Story().node().pod("a", asks={})
    resources = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"ballast.dev/gpu-milli": "2k"}}
    story.change_pod("a", spec={"containers": [{"name": "main", "resources": resources}]})
    assert story.run("a", cards="0:1000:80000,1:1000:80000").violations == []


def test_a_side_car_holds_its_card_beside_the_containers_and_other_init_containers_do_not() -> None:
    story = Story().node().pod("a", asks={})
    one = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    side_car = one | {"restartPolicy": "Always"}
    story.change_pod("a", spec={"containers": [one], "initContainers": [one, side_car]})
    assert story.run("a", cards="0:1000:80000,1:1000:80000").violations == []


def test_a_row_that_outlives_its_pod_breaks_a4_after_its_time() -> None:
    story = Story(Limits(orphan_row_s=60)).node().pod("a").run("a").delete("a").wait(1)
    assert story.wait(59).broken == set()
    assert story.wait(2).broken == {"A4"}
    assert len(story.wait(50).violations) == 1


def test_a_row_of_a_pod_that_never_was_breaks_a4_after_its_time() -> None:
    story = Story(Limits(orphan_row_s=60)).node().reserve("ghost", cards=parse("0:1:1")).wait(1)
    assert story.wait(70).broken == {"A4"}


def test_a_moved_pod_has_a_second_row_that_keeps_its_successors_place() -> None:
    story = Story().node().node("n2").pod("a").run("a").keep("a", "n2")
    assert story.violations == []


def test_a_kept_place_may_be_given_up_while_its_pod_stays() -> None:
    story = Story().node().node("n2").pod("a").run("a").keep("a", "n2").free("a", "n2")
    assert story.violations == []


def test_a_bound_row_that_is_freed_for_a_kept_place_breaks_a5() -> None:
    story = Story().node().node("n2").pod("a").run("a").keep("a", "n2").free("a", "n1")
    assert "A5" in story.broken


def test_a_second_row_that_keeps_nothing_for_a_successor_breaks_a3() -> None:
    story = Story().node().node("n2").pod("a").run("a").reserve("a", "n2", state="nominated")
    assert story.broken == {"A3"}


def test_a_kept_place_that_could_be_bound_breaks_a3() -> None:
    story = Story().node().node("n2").pod("a").run("a")
    assert story.reserve("a", "n2", keeps_for="uid-job").broken == {"A3"}


def test_a_place_kept_for_pods_of_another_owner_breaks_a3() -> None:
    story = Story().node().node("n2").pod("a").run("a").keep("a", "n2", owner="uid-other")
    assert story.broken == {"A3"}


def test_a_second_kept_place_that_is_not_freed_in_time_breaks_a3() -> None:
    story = Story().node().node("n2").node("n3").pod("a").run("a").keep("a", "n2").keep("a", "n3")
    assert story.wait(1).wait(story.checker.limits.orphan_row_s).violations == []
    assert story.wait(2).broken == {"A3"}


def test_a_second_kept_place_that_is_freed_in_time_breaks_nothing() -> None:
    story = Story().node().node("n2").node("n3").pod("a").run("a").keep("a", "n2").keep("a", "n3")
    story.wait(1).free("a", "n2").wait(story.checker.limits.orphan_row_s + 2)
    assert story.violations == []


def test_a_kept_place_that_outlives_its_pod_for_too_long_breaks_a4() -> None:
    story = Story().node().node("n2").pod("a").run("a").keep("a", "n2").delete("a").free("a")
    story.wait(1).wait(story.checker.limits.orphan_row_s + 1)
    assert story.violations == []
    assert story.wait(story.checker.limits.kept_row_s).broken == {"A4"}
