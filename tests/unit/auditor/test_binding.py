"""B1, B2, B3: node and cards are set once, together, on a healthy node."""

from tests.support.auditor import Limits
from tests.unit.auditor.story import Story


def planned() -> Story:
    return Story(Limits(lag_s=5)).node().node("n2").pod("a").reserve("a").release("a")


def test_annotate_then_bind_breaks_b3_at_the_annotation() -> None:
    story = planned().change_pod("a", annotations={"ballast.dev/cards": "0:500:40000"})
    assert story.broken == {"B3"}
    story.bind("a", cards=None)
    assert story.broken == {"B3"}


def test_a_binding_without_cards_breaks_b3() -> None:
    assert planned().bind("a", cards=None).broken == {"B3"}


def test_a_binding_with_other_cards_than_the_row_breaks_b3() -> None:
    assert planned().bind("a", cards="1:500:40000").broken == {"B3"}


def test_a_binding_with_unreadable_cards_breaks_b3() -> None:
    assert planned().bind("a", cards="gpu0").broken == {"B3"}


def test_a_binding_without_a_row_breaks_a3_and_b3() -> None:
    story = Story().node().pod("a").change_pod("a", spec={"schedulingGates": []})
    assert story.bind("a").broken == {"A3", "B3"}


def test_a_gpu_pod_created_with_a_node_breaks_b3() -> None:
    story = Story().node()
    pod = {
        "metadata": {
            "name": "a",
            "namespace": "team",
            "uid": "uid-a",
            "labels": {"ballast.dev/project": "red"},
            "annotations": {"gpu-fraction": "0.5"},
        },
        "spec": {"nodeName": "n1", "containers": []},
    }
    assert "B3" in story.write("Pod", "a", pod).broken


def test_a_gpu_pod_created_with_a_node_breaks_b3_though_its_row_and_its_cards_agree() -> None:
    story = Story().node().reserve("a")
    pod = {
        "metadata": {
            "name": "a",
            "namespace": "team",
            "uid": "uid-a",
            "labels": {"ballast.dev/project": "red"},
            "annotations": {"gpu-fraction": "0.5", "ballast.dev/cards": "0:500:40000"},
        },
        "spec": {"nodeName": "n1", "containers": []},
    }
    assert [each.invariant for each in story.write("Pod", "a", pod).violations] == ["B3"]


def test_a_pod_that_lost_its_node_and_is_bound_again_breaks_b2_both_times() -> None:
    story = planned().bind("a")
    story.change_pod("a", annotations={"ballast.dev/cards": None}, spec={"nodeName": ""})
    assert story.broken == {"B2"}
    n_before = len(story.violations)
    assert [each.invariant for each in story.bind("a").violations[n_before:]] == ["B2"]


def test_a_pod_without_gpus_may_go_anywhere() -> None:
    story = Story().node().pod("a", asks={}).bind("a", cards=None)
    assert story.violations == []
    assert story.checker.counts.binds == 0


def test_a_gpu_pod_of_no_project_is_left_to_the_clusters_own_scheduler() -> None:
    story = Story().node().pod("a").change_pod("a", metadata={"labels": {}}).bind("a", cards=None)
    assert story.violations == []


def test_a_pod_that_changes_its_node_breaks_b2() -> None:
    assert "B2" in planned().bind("a").bind("a", "n2").broken


def test_a_pod_bound_while_gated_breaks_b1() -> None:
    story = Story().node().pod("a").reserve("a").bind("a")
    assert story.broken == {"B1"}


def test_a_bind_to_a_node_long_cordoned_breaks_b1() -> None:
    assert planned().cordon("n1").wait(6).bind("a").broken == {"B1"}


def test_a_bind_to_a_node_just_cordoned_is_within_a_watchs_lag() -> None:
    assert planned().cordon("n1").wait(4).bind("a").violations == []


def test_a_bind_to_a_card_long_sick_breaks_b1() -> None:
    assert planned().sicken("n1", 0).wait(6).bind("a").broken == {"B1"}


def test_a_reservation_of_a_card_long_sick_breaks_b1() -> None:
    story = Story().node().pod("a").sicken("n1", 0).wait(6).reserve("a")
    assert story.broken == {"B1"}


def test_another_card_being_sick_does_not_matter() -> None:
    assert planned().sicken("n1", 1).wait(6).bind("a").violations == []
