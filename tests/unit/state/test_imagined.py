"""Workloads that are not submitted: the pods that their templates would create."""

from typing import Any

from msgspec.structs import replace

from extender.api import names
from extender.api.objects import Pod
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.workloads.imagined import PodSet, Wanted
from tests.support.builders import pod, pool, project
from tests.unit.state.model import state_of

AT_S = 1_700_000_000


def pods(template: Pod, count: int) -> PodSet:
    meta = template.metadata
    return PodSet(meta.labels or {}, meta.annotations or {}, template.spec, count)


def imagined(state: ClusterState, *pod_sets: PodSet) -> WorkloadView | None:
    return state.imagine(Wanted("team-a", "train", pod_sets, AT_S))


def cluster(*objects: Any) -> ClusterState:
    return state_of(project("team-a").build(), pool("default").build(), *objects)


def test_is_what_the_same_pods_are_once_they_exist() -> None:
    template = pod("any").needs(500).labels({"ballast.dev/user": "ann"}).build()
    state = cluster()
    found = imagined(state, pods(template, 2))
    real = cluster(
        *(
            pod(f"train-0-{n}")
            .of("team-a")
            .needs(500)
            .labels({"ballast.dev/user": "ann", names.LABEL_POD_GROUP: "train"})
            .notes({names.ANNOTATION_MIN_MEMBER: "2"})
            .build()
            for n in range(2)
        )
    )
    (exists,) = real.snapshot(AT_S).workloads.values()
    assert found is not None
    for name in ("key", "project", "priority", "min_member", "pools", "user", "is_preemptible"):
        assert getattr(found, name) == getattr(exists, name), name
    assert [each.demand for each in found.pods] == [each.demand for each in exists.pods]
    assert {each.state for each in found.pods} == {"gated"}
    assert not state.snapshot(AT_S).workloads


def test_all_pods_of_all_sets_start_together_and_pods_without_gpus_do_not_count() -> None:
    launcher, worker = pod("launcher").build(), pod("worker").needs(1000).build()
    found = imagined(cluster(), pods(launcher, 1), pods(worker, 3), pods(worker, 1))
    assert found is not None
    assert (len(found.pods), found.min_member) == (4, 4)
    assert len({each.uid for each in found.pods}) == 4
    assert imagined(cluster(), pods(launcher, 1)) is None


def test_a_minimum_that_the_template_states_is_kept() -> None:
    template = pod("any").needs(1000).notes({names.ANNOTATION_MIN_MEMBER: "2"}).build()
    found = imagined(cluster(), pods(template, 4))
    assert found is not None
    assert (len(found.pods), found.min_member) == (4, 2)


def test_a_priority_class_has_its_value_although_admission_has_not_seen_the_pod() -> None:
    template = pod("any").needs(1000).build()
    spec = replace(template.spec, priority=None, priority_class_name="ballast-build")
    found = imagined(cluster(), pods(replace(template, spec=spec), 1))
    assert found is not None
    assert (found.priority, found.is_preemptible) == (100, False)


def test_what_is_not_understood_is_a_problem_as_of_a_pod() -> None:
    template = pod("any").needs(1000).notes({"gpu-fraction": "many"}).build()
    found = imagined(cluster(), pods(template, 1))
    assert found is not None
    assert found.problem is not None
    assert "gpu-fraction" in found.problem.detail
    stranger = state_of(pool("default").build()).imagine(
        Wanted("team-x", "train", (pods(pod("any").needs(1000).build(), 1),), AT_S)
    )
    assert stranger is not None
    assert stranger.problem is not None
    assert "no project lists namespace team-x" in stranger.problem.detail


def test_a_template_that_names_another_teams_project_is_refused_as_by_admission() -> None:
    template = pod("any").needs(1000).project("team-b").build()
    found = imagined(cluster(project("team-b").build()), pods(template, 1))
    assert found is not None
    assert found.problem is not None
    assert found.problem.detail == "namespace team-a belongs to project team-a, not to 'team-b'"
