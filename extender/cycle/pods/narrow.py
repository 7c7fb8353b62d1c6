"""Chooses the nodes that a pod is released for; kube-scheduler considers only these.

Kube-scheduler asks the extender about a sample of the nodes that pass its own filters, so in a
large cluster it would miss the planned node. A node affinity with node names makes it consider
exactly these, but can't be changed once the gate is gone. So it names the planned node and some
others, on which the pod can be planned again.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from extender.policy.placement.node_filter import NodeFilter
from extender.state.cluster import ClusterState
from extender.state.model import GroupView, PodView, WorkloadView

#: Nodes that a pod is released for. Each costs a pass of kube-scheduler's filters; see the figures
#: in docs/ledger.md.
N_NODES: Final = 4
#: The same for pods with requests that only kube-scheduler can check.
N_NODES_IN_DOUBT: Final = 64
#: With at most so many GPU nodes kube-scheduler does not sample, so no node is named.
N_NODES_UNNAMED: Final = 16


class Narrowing:
    """Chooses nodes for one batch of releases, on the cluster as it is now."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes = state.node_table()
        self._matcher = NodeFilter(self._nodes, 0)

    def nodes_for(self, pod: PodView, node: str) -> tuple[str, ...]:
        """The planned node and others on which the pod may run; empty: no restriction.

        A pod without GPUs is always restricted, because the extender is not asked about it.
        """
        if len(self._nodes.cards.names) <= N_NODES_UNNAMED and pod.demand.wants_gpu:
            return ()
        workload, ix = self._state.workload_of(pod), self._nodes.ix_of(node)
        if ix is None:
            return (node,)
        found: Sequence[int] = self._matcher.candidates(self._nodes.pool[ix], pod.constraints)
        level = _required_level(workload, pod)
        if level:
            labels = self._nodes.labels
            found = [each for each in found if labels[each].get(level) == labels[ix].get(level)]
        in_doubt = workload is not None and workload.doubt is not None
        return self._spread(node, found, N_NODES_IN_DOUBT if in_doubt else N_NODES)

    def _spread(self, node: str, found: Sequence[int], count: int) -> tuple[str, ...]:
        """The node and others, `count` in all, evenly spaced in the order of their names."""
        names = self._nodes.cards.names
        at = bisect_left(found, node, key=lambda ix: names[ix])
        count = min(count, len(found))
        others = (names[found[(at + k * len(found) // count) % len(found)]] for k in range(count))
        return tuple(dict.fromkeys((node, *others)))


def _required_level(workload: WorkloadView | None, pod: PodView) -> str:
    """The widest topology level that requires the pod to be in one domain with others."""
    path = _path_to(workload.tree, pod.group) if workload and workload.tree else []
    levels = (group.topology.required or "" for group in path if group.topology)
    return next((level for level in levels if level), "")


def _path_to(group: GroupView, leaf: str) -> list[GroupView]:
    """The groups from `group` down to this leaf; only `group` if there is no such leaf."""
    for child in group.children:
        below = _path_to(child, leaf)
        if below[-1].name == leaf:
            return [group, *below]
    return [group]
