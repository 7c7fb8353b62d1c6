"""The model of a test's objects, and its snapshot."""

from typing import Any

from extender.api.events import Upserted
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.nodes import NodeTable
from tests.support.builders import department, project


def state_of(*objects: Any) -> ClusterState:
    """A model of these objects and of the department that builders name."""
    state = ClusterState()
    for obj in (department("science").build(), *objects):
        state.apply(Upserted(obj))
    state.validate_state()
    return state


def team_state(*objects: Any) -> ClusterState:
    """A model of these objects, in which `team-a` has a project."""
    return state_of(project("team-a").build(), *objects)


def workloads_of(state: ClusterState) -> dict[str, WorkloadView]:
    """The workloads by key."""
    state.validate_state()
    return dict(state.snapshot(0).workloads)


def view_of(state: ClusterState, now_s: int = 0) -> WorkloadView:
    """The one workload there is."""
    state.validate_state()
    (workload,) = state.snapshot(now_s).workloads.values()
    return workload


def only(*objects: Any) -> WorkloadView:
    """The one workload there is, in a cluster where `team-a` has a project."""
    return view_of(team_state(*objects))


def nodes_of(state: ClusterState) -> NodeTable:
    """The table of nodes."""
    state.validate_state()
    return state.snapshot(0).nodes


def free_cards(state: ClusterState, name: str) -> list[int]:
    """What each card of the node has free, in milli."""
    nodes = nodes_of(state)
    return list(nodes.cards.free_of(nodes.cards.ix[name]))


def host_of(state: ClusterState, name: str) -> tuple[int, int, int]:
    """Milli-CPU, MiB and pod slots that the node has free."""
    nodes = nodes_of(state)
    ix = nodes.cards.ix[name]
    return nodes.free_cpu_milli[ix], nodes.free_memory_mib[ix], nodes.free_pods[ix]


def is_ready(state: ClusterState, name: str) -> bool:
    """Whether pods may be placed on the node."""
    nodes = nodes_of(state)
    return bool(nodes.is_ready[nodes.cards.ix[name]])


def strays(state: ClusterState) -> list[tuple[str, str, str, bool]]:
    """The rows to be freed: node, UID, cause, and whether that is sure."""
    state.validate_state()
    return [(s.node, s.row.uid, s.cause, s.is_confirmed) for s in state.rows_to_free()]
