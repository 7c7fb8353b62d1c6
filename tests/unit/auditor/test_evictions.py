"""E2: which pods may be evicted."""

from typing import Any

from tests.support.auditor.rules import Limits
from tests.unit.auditor.story import Story


def borrowing(quota: object = 1, n_pods: int = 3, **more: Any) -> Story:
    """GpuProject red with a quota of 1 and pods of 0.5 on it, by default half a GPU over quota."""
    story = Story().node(cards=4).department("d", quota).project("red", "d", quota)
    for ix in range(n_pods):
        story.pod(f"p{ix}", **more)
        story.run(f"p{ix}", cards=f"{ix // 2}:500:40000")
    return story.wait(10)


def test_reclaim_from_a_project_above_its_quota_is_fine() -> None:
    story = borrowing().evict("p0", "Reclaimed").rest()
    assert story.violations == []
    assert story.checker.counts.evictions == 1


def test_reclaim_from_a_project_within_its_quota_breaks_e2() -> None:
    story = borrowing(quota=2).evict("p0", "Reclaimed")
    assert story.broken == {"E2"}
    assert "GpuProject red held 1500 of 2000 milli" in story.violations[0].detail


def test_the_second_of_two_evictions_is_judged_by_what_the_first_leaves() -> None:
    assert borrowing().evict("p0", "Reclaimed").evict("p1", "Reclaimed").broken == {"E2"}


def test_a_gang_may_leave_whole_though_its_first_pod_would_have_been_enough() -> None:
    story = borrowing(group="g")
    for ix in range(3):
        story.evict(f"p{ix}", "Reclaimed")
    assert story.violations == []


def test_a_gang_may_leave_whole_though_its_first_pods_are_gone_at_once() -> None:
    story = borrowing(group="g")
    for ix in range(3):
        story.evict(f"p{ix}", "Reclaimed").delete(f"p{ix}").free(f"p{ix}")
    assert story.violations == []
    assert story.checker.counts.evictions == 3


def test_a_deletion_without_an_eviction_is_the_owners_wish() -> None:
    story = borrowing(quota=2).tell_to_leave("p0").mark("p0").delete("p0").free("p0").rest()
    assert story.violations == []
    assert story.checker.counts.evictions == 0


def test_an_eviction_without_an_explanation_is_waited_for_longer() -> None:
    limits = Limits()
    story = borrowing().evict("p0").delete("p0").free("p0")
    now_s = story.now_s + limits.settled_s
    assert not story.checker.is_settled(now_s)
    assert story.checker.is_settled(story.now_s + limits.rest_s)
    assert story.event("p0", "Reclaimed").checker.is_settled(now_s)


def test_a_victim_that_is_not_preemptible_breaks_e2() -> None:
    story = borrowing(priority=125).evict("p0", "Reclaimed")
    assert story.broken == {"E2"}
    assert "not preemptible" in story.violations[0].detail


def test_a_place_held_for_a_pod_of_the_queue_counts_as_had() -> None:
    story = borrowing(quota="1.5").pod("next").reserve("next", state="nominated")
    assert story.evict("p0", "Reclaimed").violations == []


def test_the_event_may_come_before_the_eviction() -> None:
    assert borrowing(quota=2).event("p0", "Reclaimed").evict("p0").broken == {"E2"}


def test_an_eviction_that_nothing_explains_is_judged_as_reclaim_at_the_end() -> None:
    story = borrowing(quota=2).evict("p0")
    assert story.violations == []
    assert story.rest().broken == {"E2"}


def test_an_eviction_that_nothing_explains_is_a_move_where_its_successors_place_is_kept() -> None:
    story = borrowing(quota=2).node("n2").keep("p0", "n2").evict("p0")
    assert story.rest().violations == []
    story = borrowing(quota=2, owner="").node("n2").keep("p0", "n2", owner="uid-job").evict("p0")
    assert "E2" in story.rest().broken


def test_what_ended_by_itself_a_moment_ago_counts_for_the_decider() -> None:
    assert borrowing().end("p1").evict("p0", "Reclaimed").violations == []
    assert borrowing().end("p1").wait(10).evict("p0", "Reclaimed").broken == {"E2"}


def test_preemption_without_a_pod_of_higher_priority_breaks_e2() -> None:
    assert borrowing().evict("p0", "Preempted").broken == {"E2"}


def test_preemption_for_a_waiting_pod_of_higher_priority_is_fine() -> None:
    story = borrowing(quota=2).pod("urgent", priority=75)
    assert story.evict("p0", "Preempted").violations == []


def test_preemption_of_a_pod_that_is_older_than_the_webhooks_is_fine() -> None:
    story = borrowing(quota=2, project="").pod("urgent", priority=75)
    assert story.evict("p0", "Preempted").violations == []


def test_preemption_for_a_pod_of_another_project_breaks_e2() -> None:
    story = borrowing(quota=2).pod("urgent", priority=75, project="blue")
    assert story.evict("p0", "Preempted").broken == {"E2"}


def test_a_stale_gang_may_always_be_stopped() -> None:
    assert borrowing(quota=9).evict("p0", "GangStale").rest().violations == []


def test_a_pod_may_be_moved_when_a_place_is_kept_for_its_successor() -> None:
    story = borrowing(quota=9).node("n2").keep("p0", "n2").evict("p0", "Moved").delete("p0")
    story.free("p0", "n1").pod("heir").free("p0", "n2").run("heir", "n2").rest()
    assert story.violations == []


def test_a_move_without_a_place_for_the_successor_breaks_e2() -> None:
    story = borrowing(quota=9).evict("p0", "Moved")
    assert story.broken == {"E2"}
    assert "no place is kept" in story.violations[0].detail


def test_the_kept_place_of_a_pod_that_has_ended_may_be_its_successors_already() -> None:
    story = borrowing(quota=9).end("p0").evict("p0", "Moved")
    assert story.broken == set()


def test_a_move_of_a_pod_that_nothing_makes_again_breaks_e2() -> None:
    story = borrowing(quota=9, owner="").node("n2").keep("p0", "n2", owner="uid-job")
    assert "E2" in story.evict("p0", "Moved").broken


def test_a_pod_that_was_moved_counts_for_its_project_where_its_successor_will_be() -> None:
    story = borrowing(quota="1.25").node("n2").keep("p0", "n2").evict("p0", "Moved")
    assert story.evict("p1", "Reclaimed").delete("p0").free("p0", "n1").violations == []
    assert story.evict("p2", "Reclaimed").broken == {"E2"}


def test_what_is_kept_for_a_successor_does_not_make_its_project_look_richer() -> None:
    story = borrowing(quota="1.5").node("n2").keep("p0", "n2")
    assert story.evict("p1", "Reclaimed").broken == {"E2"}


def test_an_eviction_that_was_cut_off_after_its_mark_is_none() -> None:
    story = borrowing(quota=9).mark("p0").rest()
    assert story.violations == []
    assert story.checker.counts.evictions == 0


def test_a_pod_that_was_only_marked_is_judged_when_it_is_deleted() -> None:
    """Marked by a reclaim that etcd lost, and moved by the next plan, which keeps a place."""
    story = borrowing(quota=9).mark("p0").node("n2").keep("p0", "n2")
    assert story.evict("p0", "Moved").rest().violations == []
    story = borrowing(quota=9).node("n2").keep("p0", "n2").mark("p0").free("p0", "n2")
    assert story.tell_to_leave("p0").event("p0", "Moved").broken == {"E2"}


def test_a_pod_that_was_only_marked_still_counts_for_its_project() -> None:
    assert borrowing().mark("p0").evict("p1", "Reclaimed").violations == []
    assert borrowing().mark("p0").end("p0").evict("p1", "Reclaimed").violations == []


def test_a_pod_that_was_only_marked_may_be_deleted_later() -> None:
    """A controller that is killed ends its request, too, and the load deletes the pod's Job."""
    story = borrowing(quota=9).mark("p0").tell_to_leave("p0", after_s=29).delete("p0").rest()
    assert story.violations == []
    story = borrowing(quota=9).mark("p0").tell_to_leave("p0", after_s=1).delete("p0").rest()
    assert story.broken == {"E2"}


def test_a_pod_that_was_only_marked_may_be_deleted_after_it_has_ended() -> None:
    """An event alone can say that it was evicted: the mark is not the write before."""
    story = borrowing(quota=9).mark("p0").end("p0").tell_to_leave("p0").rest()
    assert story.violations == []
    story = borrowing(quota=9).mark("p0").change_pod("p0", annotations={"note": "x"})
    assert story.tell_to_leave("p0").event("p0", "Reclaimed").broken == {"E2"}
    assert story.checker.counts.evictions == 1
