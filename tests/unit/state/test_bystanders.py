"""Bound pods without a row, which the affinity of other pods may select."""

from typing import Any

from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, pod, project, row, whole
from tests.unit.state.model import state_of

HOST = "kubernetes.io/hostname"


def scene() -> tuple[Any, ...]:
    """A pod with affinity; `cache` has no GPU, `stranger` a GPU without a row."""
    held = pod("held").needs(1000).labelled(app="db").bound("n1").build()
    return (
        project("team-a").build(),
        node("n1").gpus(2).labelled(zone="east").build(),
        node("plain").labelled(zone="west").build(),
        gpu_node("n1", 2).holds(row(held, whole(0), "bound")).build(),
        held,
        pod("cache").host("1", "1Gi").unledgered().labelled(app="db").bound("plain").build(),
        pod("stranger").needs(1000).unledgered().labelled(app="db").bound("n1").build(),
        pod("far").of("team-b").host("1", "1Gi").unledgered().bound("n1").build(),
        pod("asks").needs(1000).beside("zone", app="db").build(),
    )


def bystanders(state: ClusterState) -> set[tuple[str, Any, str, int]]:
    found = state.snapshot(0).bystanders
    return {(e.namespace, e.labels, e.node_labels["zone"], e.n_pods) for e in found}


def test_they_are_those_of_namespaces_whose_pods_have_affinity() -> None:
    state = state_of(*scene())
    labels = (("app", "db"),)
    assert bystanders(state) == {("team-a", labels, zone, 1) for zone in ("east", "west")}
    state.validate_state()


def test_no_one_counts_them_where_no_pod_has_affinity() -> None:
    state = state_of(*scene())
    state.apply(Removed(Pod, "uid-asks", "team-a", "asks"))
    assert not bystanders(state)


def test_one_that_comes_or_goes_is_news_to_a_decision() -> None:
    state = state_of(*scene())
    before = state.version()
    state.apply(Removed(Pod, "uid-cache", "team-a", "cache"))
    assert state.version() != before
    assert {zone for _, _, zone, _ in bystanders(state)} == {"east"}
    late = pod("late").host("1", "1Gi").unledgered().labelled(app="db").bound("plain").build()
    state.apply(Upserted(late))
    assert state.version() == before
