"""The owner that a workload is a replica of, from its pods."""

from extender.api import names
from extender.state.model import ReplicaOf, WorkloadView
from tests.support.builders import pod, project
from tests.support.builders.pods import PodBuilder
from tests.unit.state.model import only, state_of, workloads_of


def replica(name: str, floor: str = "2") -> PodBuilder:
    made = pod(name).needs(1000).kind("inference")
    return made.labels({names.LABEL_REPLICA_OF: "deployment-llm"}).notes(
        {names.ANNOTATION_FLOOR: floor}
    )


def test_a_replica_is_a_workload_of_its_own_that_may_be_evicted() -> None:
    view = only(replica("llm-1").build())
    assert view.replica == ReplicaOf("deployment-llm", 2)
    assert (view.priority, view.is_preemptible) == (125, True)


def test_a_gang_is_a_replica_as_its_youngest_pod_says() -> None:
    old = replica("llm-0-0").gang("llm-0", 2).created(100).build()
    young = replica("llm-0-1", "3").gang("llm-0", 2).created(200).build()
    assert only(old, young).replica == ReplicaOf("deployment-llm", 3)


def test_a_gang_of_which_one_pod_states_a_floor_may_be_evicted() -> None:
    leader = replica("llm-0-0").gang("llm-0", 2).build()
    worker = pod("llm-0-1").needs(1000).kind("inference").gang("llm-0", 2).build()
    view = only(leader, worker)
    assert view.replica == ReplicaOf("deployment-llm", 2)
    assert view.is_preemptible


def test_without_an_owner_or_a_floor_it_is_none() -> None:
    views: list[WorkloadView] = []
    for made in (
        pod("bare").needs(1000).notes({names.ANNOTATION_FLOOR: "2"}),
        pod("named").needs(1000).labels({names.LABEL_REPLICA_OF: "deployment-llm"}),
    ):
        views.append(only(made.build()))
    assert [view.replica for view in views] == [None, None]


def test_a_floor_that_is_not_understood_keeps_the_pod_from_its_place() -> None:
    view = only(replica("llm-1", "two").build())
    assert view.replica is None
    assert view.problem is not None
    assert names.ANNOTATION_FLOOR in view.problem.detail


def test_the_sums_list_replicas_and_forget_those_that_are_gone() -> None:
    state = state_of(project("team-a").build(), replica("llm-1").build())
    tally = state.snapshot(0).tally
    assert tally is not None
    assert tally.replicas == {"team-a/llm-1"}
    assert len(workloads_of(state)) == 1
