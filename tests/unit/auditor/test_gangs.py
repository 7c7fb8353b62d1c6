"""G1: a gang runs whole or not at all."""

from tests.support.auditor import Limits
from tests.unit.auditor.story import Story

CARDS = {"a": "0:500:40000", "b": "0:500:40000", "c": "1:500:40000"}


def gang(*bound: str) -> Story:
    story = Story(Limits(gang_bind_s=30, gang_stale_s=60)).node().group("g", 3)
    for name in CARDS:
        story.pod(name, group="g")
    return bind(story, *bound)


def bind(story: Story, *names: str) -> Story:
    for name in names:
        story.run(name, cards=CARDS[name])
    return story


def test_a_gang_partly_bound_for_too_long_breaks_g1() -> None:
    story = gang("a", "b").wait(30)
    assert story.violations == []
    assert story.wait(1).broken == {"G1"}
    assert "2 bound and 0 completed of at least 3" in story.violations[0].detail


def test_a_gang_that_is_completed_in_time_is_fine() -> None:
    assert bind(gang("a", "b").wait(29), "c").wait(100).violations == []


def test_a_gang_that_is_rolled_back_in_time_is_fine() -> None:
    assert gang("a").wait(20).delete("a").free("a").wait(100).violations == []


def test_a_gang_whose_pods_complete_one_after_another_is_fine() -> None:
    assert (
        gang("a", "b", "c").end("a").free("a").wait(100).end("b").free("b").wait(100).violations
        == []
    )


def test_a_whole_gang_that_loses_a_member_has_time_to_get_it_back() -> None:
    story = gang("a", "b", "c").delete("a").free("a").wait(89)
    assert story.violations == []
    assert story.wait(5).broken == {"G1"}


def test_members_that_are_leaving_are_not_a_partial_gang() -> None:
    story = gang("a", "b", "c").delete("a").free("a")
    for name in ("b", "c"):
        story.change_pod(name, metadata={"deletionTimestamp": "2026-11-21T10:00:00Z"})
    assert story.wait(3600).violations == []


def test_without_a_pod_group_the_pods_say_how_many_they_must_be() -> None:
    asks = {"gpu-fraction": "0.5", "ballast.dev/min-member": "2"}
    story = Story().node().pod("a", group="g", asks=asks).pod("b", group="g", asks=asks)
    assert story.run("a").wait(31).broken == {"G1"}
