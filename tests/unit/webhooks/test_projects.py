"""Which project a namespace may use."""

from extender.api.events import Removed, Synced, Upserted
from extender.api.kinds import GpuProject
from extender.api.reasons import Reason, Refused
from tests.support.admission import index_of, project
from tests.support.builders.metadata import at_s
from webhooks.projects import ProjectIndex


def name_of(found: GpuProject | Refused | None) -> str:
    assert isinstance(found, GpuProject), found
    return found.metadata.name


def detail_of(found: GpuProject | Refused | None) -> str:
    assert isinstance(found, Refused), found
    assert found.reason is Reason.UNKNOWN_PROJECT
    return found.detail


def test_namespace_belongs_to_the_project_that_lists_it() -> None:
    index = index_of(project("vision", "team-a", "team-b"), project("speech", "team-c"))
    assert name_of(index.project_of("team-b")) == "vision"
    assert index.project_of("team-d") is None


def test_project_may_be_named_by_its_own_namespaces_only() -> None:
    index = index_of(project("vision", "team-a"), project("speech", "team-c"))
    assert name_of(index.project_of("team-a", "vision")) == "vision"
    assert "it may use vision" in detail_of(index.project_of("team-a", "speech"))


def test_refusal_does_not_tell_whether_another_project_exists() -> None:
    index = index_of(project("vision", "team-a"), project("speech", "team-c"))
    exists = detail_of(index.project_of("team-a", "speech")).replace("speech", "?")
    assert exists == detail_of(index.project_of("team-a", "absent")).replace("absent", "?")
    assert "speech" not in detail_of(index.project_of("team-z", "absent"))


def test_namespace_belongs_to_the_oldest_project_that_lists_it() -> None:
    older, younger = project("vision", "team-a"), project("speech", "team-a")
    older.metadata.creation_timestamp = at_s(1_000)
    younger.metadata.creation_timestamp = at_s(1_001)
    index = index_of(younger, older)
    assert name_of(index.project_of("team-a")) == "vision"
    assert name_of(index.project_of("team-a", "vision")) == "vision"
    assert "it may use vision" in detail_of(index.project_of("team-a", "speech"))
    index.deliver(Removed(GpuProject, "uid-vision", "", "vision"))
    assert name_of(index.project_of("team-a")) == "speech"


def test_projects_of_one_second_own_a_namespace_by_name() -> None:
    index = index_of(project("vision", "team-a"), project("speech", "team-a"))
    assert name_of(index.project_of("team-a")) == "speech"


def test_changed_project_loses_the_namespaces_it_no_longer_lists() -> None:
    index = index_of(project("vision", "team-a", "team-b"))
    index.deliver(Upserted(project("vision", "team-b")))
    assert index.project_of("team-a") is None
    assert name_of(index.project_of("team-b")) == "vision"


def test_removed_project_is_forgotten() -> None:
    index = index_of(project("vision", "team-a"))
    index.deliver(Removed(GpuProject, "uid-vision", "", "vision"))
    assert index.project_of("team-a") is None


def test_recreated_project_survives_the_late_removal_of_the_old_one() -> None:
    index = index_of(project("vision", "team-a", uid="old"))
    index.deliver(Upserted(project("vision", "team-a", uid="new")))
    index.deliver(Removed(GpuProject, "old", "", "vision"))
    assert name_of(index.project_of("team-a")) == "vision"


def test_index_is_synced_once_the_first_list_is_complete() -> None:
    index = ProjectIndex()
    assert not index.is_synced
    index.deliver(Synced(GpuProject))
    assert index.is_synced
