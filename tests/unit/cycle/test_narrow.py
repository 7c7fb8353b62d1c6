"""The nodes to which the release of a pod is limited."""

from typing import Any

from extender.api.events import Upserted
from extender.cycle.pods.narrow import N_NODES, N_NODES_UNNAMED, Narrowing
from extender.state.cluster import ClusterState
from extender.state.model import PodView
from tests.support.builders import department, gpu_node, node, pod, project


def cluster(n_nodes: int, **of_pod: Any) -> tuple[ClusterState, PodView]:
    state, made = ClusterState(), pod("a").needs(of_pod.pop("milli", 500))
    for change, value in of_pod.items():
        made = getattr(made, change)(value)
    held = made.build()
    for obj in (department("science").build(), project("team-a").build(), held):
        state.apply(Upserted(obj))
    for number in range(n_nodes):
        labels = {"rack": f"r{number // 10}"}
        state.apply(Upserted(node(f"n{number:03}").labels(labels).build()))
        state.apply(Upserted(gpu_node(f"n{number:03}", 1).build()))
    view = state.pod(held.metadata.uid)
    assert view is not None
    return state, view


def test_pod_in_a_small_cluster_may_go_anywhere() -> None:
    state, waiting = cluster(N_NODES_UNNAMED)
    assert Narrowing(state).nodes_for(waiting, "n003") == ()


def test_pod_in_a_large_cluster_is_released_for_nodes_far_from_each_other() -> None:
    state, waiting = cluster(80)
    nodes = Narrowing(state).nodes_for(waiting, "n003")
    assert nodes == tuple(f"n{number:03}" for number in range(3, 80, 80 // N_NODES))
    assert len(nodes) == N_NODES


def test_planned_node_is_named_even_if_it_is_not_ready_any_more() -> None:
    state, waiting = cluster(80)
    assert Narrowing(state).nodes_for(waiting, "gone") == ("gone",)
