"""Q1, Q2, Q4: quotas of non-preemptible pods, and correct reports."""

from typing import Any

from tests.unit.auditor.story import Story


def cluster(project_quota: object = 1, department_quota: object = 2, **status: Any) -> Story:
    story = Story().node(cards=4).department("d", department_quota)
    return story.project("red", "d", project_quota, **status).project("blue", "d", 2)


def serve(story: Story, name: str, project: str, index: int) -> Story:
    story.pod(name, fraction="0.9", project=project, priority=125)
    cards = f"{index}:900:72000"
    return story.run(name, cards=cards, project=project, non_preemptible=True)


def test_non_preemptible_work_within_quota_is_fine() -> None:
    assert serve(cluster(), "a", "red", 0).violations == []


def test_non_preemptible_work_above_the_projects_quota_breaks_q1() -> None:
    story = serve(serve(cluster(), "a", "red", 0), "b", "red", 1)
    assert story.broken == {"Q1"}
    assert story.violations[0].subject == "GpuProject red"


def test_non_preemptible_work_above_the_departments_quota_breaks_q1() -> None:
    story = serve(serve(cluster(1, "1.5"), "a", "red", 0), "b", "blue", 1)
    assert {each.subject for each in story.violations} == {"GpuDepartment d"}
    assert story.broken == {"Q1"}


def test_preemptible_work_may_go_over_quota() -> None:
    story = cluster()
    for name, index in (("a", 0), ("b", 1), ("c", 2)):
        story.pod(name, fraction="0.9").run(name, cards=f"{index}:900:72000")
    assert story.violations == []


def test_what_a_cut_quota_leaves_in_excess_may_stay_but_not_grow() -> None:
    story = serve(cluster(2, 4), "a", "red", 0).project("red", "d", 0).wait(60)
    assert story.violations == []
    assert serve(story, "b", "red", 1).broken == {"Q1"}


def test_a_quota_cut_just_now_does_not_count_against_the_ledgers_writer() -> None:
    story = cluster(1, 4).wait(60).project("red", "d", 0)
    assert serve(story, "a", "red", 0).violations == []


def test_a_report_that_is_not_what_the_rows_hold_breaks_q4() -> None:
    story = cluster(1, 2, allocated="1.5").pod("a").run("a")
    assert story.rest().broken == {"Q4"}


def test_a_report_that_is_what_the_rows_hold_is_fine() -> None:
    story = cluster().pod("a").run("a").project("red", "d", 1, allocated="0.5")
    assert story.department("d", 2, allocated="0.5").rest().violations == []


def test_a_place_held_for_a_waiting_workload_may_be_reported_or_not() -> None:
    for said in ("0.5", "1"):
        story = cluster().pod("a").run("a").pod("b")
        story.reserve("b", state="nominated").project("red", "d", 1, allocated=said)
        assert story.rest().violations == []


def test_projects_that_are_promised_more_than_their_department_break_q2() -> None:
    story = Story().node(cards=4).department("d", 2, fairShare="2")
    story.project("red", "d", 1, fairShare="1.5").project("blue", "d", 1, fairShare="0.501")
    assert story.rest().broken == {"Q2"}


def test_departments_that_are_promised_more_than_there_is_break_q2() -> None:
    story = Story().node(cards=4).department("d", 1, fairShare="3")
    assert story.department("e", 1, fairShare="1.001").rest().broken == {"Q2"}


def test_nodes_of_another_pool_are_counted_in_that_pool() -> None:
    story = cluster()
    pool = {"metadata": {"name": "fast"}, "spec": {"nodeSelector": {"tier": "fast"}}}
    story.write("GpuNodePool", "fast", pool).node("f1", labels={"tier": "fast"})
    story.pod("a", priority=125).run("a", "f1", non_preemptible=True)
    assert "no quota" not in story.broken
    assert story.broken == {"Q1"}
    assert "pool fast" in story.violations[0].detail
