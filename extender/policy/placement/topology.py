"""The topology domains of each node pool, and the workloads' rules about them.

A topology is a list of node labels, the widest first. A domain is the set of nodes that agree on
the labels down to one level. If pod affinity requires pods beside one another, the nodes with one
value of the term's label form a domain too. `domain_search` chooses the domains of a workload.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from extender.policy.placement.node_filter import NodeSet
from extender.policy.workloads.gangs import groups_of, leaves_below
from extender.state.model import GroupView, PodView, TopologyRule, WorkloadView
from extender.state.nodes import NodeTable

#: Name prefix of a topology made from a single label; no GpuTopology has such a name.
_LABEL: Final = "label/"


@dataclass(slots=True, frozen=True)
class TopologyLevel:
    """One level of a topology in one pool: its domains by node ix, and all of them in order."""

    label: str
    domains: Mapping[int, NodeSet]
    frames: Sequence[NodeSet]


class TopologyDomains:
    """The domains of every topology in every pool; each result is cached."""

    def __init__(self, levels: Mapping[str, tuple[str, ...]], nodes: NodeTable) -> None:
        self._labels = levels
        self._nodes = nodes
        self._known: dict[tuple[str, str], list[TopologyLevel]] = {}

    def levels(self, name: str, pool: str) -> list[TopologyLevel]:
        """The topology's levels in the pool, the widest first; empty if it is unknown."""
        key = name, pool
        if key not in self._known:
            is_one_label = name.startswith(_LABEL)
            labels = (name.removeprefix(_LABEL),) if is_one_label else self._labels.get(name, ())
            self._known[key] = [self._read(labels[: at + 1], pool) for at in range(len(labels))]
        return self._known[key]

    def level(self, rule: TopologyRule, pool: str, label: str | None) -> TopologyLevel | None:
        """The level with this label of the rule's topology in the pool."""
        levels = self.levels(rule.topology, pool)
        return next((each for each in levels if each.label == label), None)

    def _read(self, labels: tuple[str, ...], pool: str) -> TopologyLevel:
        """Includes nodes that are not ready, since pods that run on them fix the domain too."""
        found: dict[tuple[str, ...], list[int]] = {}
        for ix, of_pool in enumerate(self._nodes.pool):
            if of_pool != pool:
                continue
            values = tuple(self._nodes.labels[ix].get(label, "") for label in labels)
            if all(values):
                found.setdefault(values, []).append(ix)
        frames = {path: NodeSet("/".join(path), frozenset(found[path])) for path in sorted(found)}
        domains = {ix: frames[path] for path, members in found.items() for ix in members}
        return TopologyLevel(labels[-1], domains, list(frames.values()))


def beside_one_another(workload: WorkloadView, label: str) -> GroupView:
    """The workload's tree of groups, in one domain of the label where pod affinity alone finds no
    placement. If the tree has a topology, that domain is inside the domain of the topology."""
    tree = workload.tree or GroupView(name="", min_member=workload.min_member)
    inside = replace(tree, topology=TopologyRule(f"{_LABEL}{label}", required=label))
    return inside if tree.topology is None else replace(tree, children=(inside,))


def is_by_label(rule: TopologyRule) -> bool:
    """Whether the rule is from `beside_one_another`."""
    return rule.topology.startswith(_LABEL)


def required_rules(
    workload: WorkloadView, pods: Sequence[PodView]
) -> Iterator[tuple[TopologyRule, list[PodView]]]:
    """The required rules of the workload's groups, root first, each with the pods under it."""
    tree = workload.tree
    for group in groups_of(tree) if tree is not None else ():
        rule = group.topology
        if rule is not None and rule.required:
            leaves = leaves_below(group)
            below = list(pods) if group is tree else [pod for pod in pods if pod.group in leaves]
            if below:
                yield rule, below
