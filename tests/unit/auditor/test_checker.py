"""The checker as a whole: baselines, order, recordings, verdicts."""

from pathlib import Path

import msgspec
import pytest

from tests.support.auditor import Change, Checker, Counts, Verdict
from tests.support.auditor.__main__ import judge
from tests.support.auditor.history import Recording, locate
from tests.unit.auditor.story import Story, parse


def as_initial(story: Story) -> list[Change]:
    """The last state of every object of a story, as an observer that starts late finds it."""
    last = {(each.kind, each.name): each for each in story.history}
    return [msgspec.structs.replace(each, is_initial=True) for each in last.values()]


def test_a_good_state_found_at_the_start_is_fine_in_any_order() -> None:
    found = as_initial(Story().node().pod("a").run("a"))
    for order in (found, found[::-1]):
        checker = Checker()
        assert [v for change in order for v in checker.observe(change)] == []
        assert checker.tick(101.0) == []
        assert checker.counts == Counts()


def test_a_double_booking_found_at_the_start_is_reported() -> None:
    story = Story().node().pod("a").pod("b").reserve("a", cards=parse("0:900:1"))
    checker = Checker()
    for change in as_initial(story.reserve("b", cards=parse("0:900:1"))):
        checker.observe(change)
    assert [each.invariant for each in checker.tick(101.0)] == ["A1"]


def test_revisions_that_go_back_are_not_a_history() -> None:
    story = Story().node()
    with pytest.raises(ValueError, match="not a history"):
        story.checker.observe(story.history[0])


def test_a_recording_gives_the_same_verdict_again(tmp_path: Path) -> None:
    story = Story().node().pod("a").pod("b").run("a").run("b").free("a")
    recording = Recording(tmp_path / "history.jsonl")
    for change in story.history:
        recording.write(change)
    recording.close()
    again = judge(tmp_path / "history.jsonl")
    assert [str(each) for each in again.violations] == [str(each) for each in story.violations]
    assert again.counts == story.checker.counts


def test_an_audit_that_saw_no_bind_does_not_pass() -> None:
    assert not Verdict(Counts(revisions=10), []).is_clean
    assert Verdict(Counts(revisions=10), [], needs_binds=False).is_clean
    assert Verdict(Counts(binds=1), []).is_clean


def test_an_audit_that_lost_history_does_not_pass() -> None:
    assert not Verdict(Counts(binds=1), [], ["compacted"]).is_clean


def test_the_same_name_with_another_uid_is_another_pod() -> None:
    story = Story().node().pod("a").run("a").delete("a").free("a").pod("a")
    story.change_pod("a", metadata={"uid": "uid-new"}).bind("a")
    assert "A3" in story.broken


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("pods/team/a", ("Pod", "team", "a")),
        ("minions/n1", ("Node", "", "n1")),
        ("ballast.dev/gpunodes/n1", ("GpuNode", "", "n1")),
        ("ballast.dev/gpupodgroups/team/g", ("GpuPodGroup", "team", "g")),
        ("leases/kube-system/x", None),
        ("ballast.dev/else/n1", None),
        ("podtemplates/team/a", None),
    ],
)
def test_keys_of_etcd_are_located(key: str, place: tuple[str, str, str] | None) -> None:
    assert locate(key) == place
