"""GpuNodePool and GpuTopology: each must be able to contain a node.

A node belongs to the first pool by name that selects it. If an earlier pool selects every node that
a later one selects, the later pool never gets a node.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import fields

from extender.api import names
from extender.api.kinds import GpuNodePool, GpuNodePoolSpec, GpuTopology
from webhooks.catalog import Catalog
from webhooks.kinds.finding import (
    FieldFinding,
    check_labels,
    check_name,
    is_label_key,
    listed,
    odd,
    wrong,
)

HOSTNAME: Final = "kubernetes.io/hostname"
#: Well-known labels, the widest first: a level must not come after a narrower one of these.
WIDER_FIRST: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone", HOSTNAME)
_EXAMPLE: Final = "nodeSelector: {nvidia.com/gpu.product: A100}"


def check_pool(pool: GpuNodePool, known: Catalog) -> Iterator[FieldFinding]:
    """Findings about a GpuNodePool."""
    name, selector = pool.metadata.name, pool.spec.node_selector
    yield from check_name(name, "nodes", "a100")
    yield from check_labels("spec.nodeSelector", selector, _EXAMPLE)
    if name == names.DEFAULT_POOL and selector:
        yield odd(
            "spec.nodeSelector",
            "nodes that no pool selects are in the pool default as well, whatever it selects",
        )
    if pool.spec.policy != "FairShare" and pool.spec.job_order != GpuNodePoolSpec().job_order:
        yield odd("spec.jobOrder", f"has no effect under policy {pool.spec.policy}")
    yield from _check_elastic(pool)
    for other in sorted(known.pools):
        if other != name:
            yield from _check_overlap(name, selector, other, known.pools[other].spec.node_selector)


def _check_elastic(pool: GpuNodePool) -> Iterator[FieldFinding]:
    """Checks that the pool can grow by the nodes that `spec.elastic` describes."""
    elastic, selector = pool.spec.elastic, pool.spec.node_selector
    if elastic is None:
        return
    if pool.spec.policy != "FairShare":
        yield odd("spec.elastic", f"has no effect under policy {pool.spec.policy}")
    if elastic.trigger == "UnschedulablePods" and not selector:
        yield odd(
            "spec.elastic.trigger",
            "pods ask for nodes with the labels of nodeSelector, which has none: the autoscaler"
            " may add nodes of another pool",
        )
    labels = elastic.node.labels
    yield from check_labels("spec.elastic.node.labels", labels, _EXAMPLE)
    for key in sorted(labels.keys() & selector.keys()):
        if labels[key] != selector[key]:
            yield wrong(
                "spec.elastic.node.labels",
                f"{key}: {labels[key]} is not what nodeSelector has, so a new node is in no pool",
                "leave out what nodeSelector says",
                "labels: {topology.kubernetes.io/zone: a}",
            )


def check_pool_gone(pool: GpuNodePool, known: Catalog) -> Iterator[FieldFinding]:
    """Warnings about the deletion of a GpuNodePool."""
    name = pool.metadata.name
    users = [
        each.metadata.name
        for each in known.projects.values()
        if name in each.spec.default_node_pools or any(p.name == name for p in each.spec.node_pools)
    ]
    if users and name != names.DEFAULT_POOL:
        yield odd(
            "metadata.name",
            f"projects {listed(users)} have figures in {name}: its nodes fall to other pools",
        )
    usual = GpuNodePoolSpec()
    lost = [
        each.encode_name
        for each in fields(GpuNodePoolSpec)
        if getattr(pool.spec, each.name) != getattr(usual, each.name)
    ]
    if lost and name == names.DEFAULT_POOL:
        yield odd(
            "metadata.name",
            f"the pool default stays without the object, and loses {listed(lost)}, which have their"
            " default values from now on",
        )


def _check_overlap(
    name: str, own: Mapping[str, str], other: str, theirs: Mapping[str, str]
) -> Iterator[FieldFinding]:
    """Findings about two pools whose selectors could match the same node."""
    if any(theirs.get(key, value) != value for key, value in own.items()):
        return
    if not own and not theirs:
        yield wrong(
            "spec.nodeSelector",
            f"is empty, as that of node pool {other} is, and only one may take all other nodes",
            "select nodes by a label",
            _EXAMPLE,
        )
        return
    if not own or not theirs:
        # A pool without a selector always comes after all others.
        return
    first, last = sorted((name, other))
    of_first, of_last = (own, theirs) if first == name else (theirs, own)
    if of_first.items() <= of_last.items():
        yield wrong(
            "spec.nodeSelector",
            f"node pool {last} would have no node: {first} selects them all and comes first",
            "add a label by which they differ, or give the narrower pool a name that comes first",
            _EXAMPLE,
        )
    else:
        yield odd(
            "spec.nodeSelector",
            f"a node with the labels of both is in {first}, and not in {last}: names decide",
        )


def check_topology(topology: GpuTopology, known: Catalog) -> Iterator[FieldFinding]:
    """Findings about a GpuTopology."""
    levels = [level.node_label for level in topology.spec.levels]
    example = f"levels: [{{nodeLabel: example.com/rack}}, {{nodeLabel: {HOSTNAME}}}]"
    yield from check_name(topology.metadata.name, "pods", "datacenter")
    if not levels:
        yield wrong("spec.levels", "is empty", "list labels of nodes, the widest first", example)
    for ix, label in enumerate(levels):
        if not is_label_key(label):
            yield wrong(
                f"spec.levels[{ix}].nodeLabel",
                f"{label!r:.80} is not a valid label key, so no node has it",
                "give a name of at most 63 characters, with a domain and / before it or without",
                "example.com/rack",
            )
    yield from _check_order(levels, example)
    for other, known_topology in sorted(known.topologies.items()):
        both = {level.node_label for level in known_topology.spec.levels} & set(levels)
        if other != topology.metadata.name and both:
            yield odd(
                "spec.levels",
                f"topology {other} has {listed(both)} too: work that asks for it has to name its"
                f" topology ({names.ANNOTATION_TOPOLOGY})",
            )


def _check_order(levels: list[str], example: str) -> Iterator[FieldFinding]:
    """Checks that no level comes after a narrower one."""
    if HOSTNAME in levels[:-1]:
        yield wrong(
            "spec.levels",
            f"{HOSTNAME} is not the last: nothing is narrower than one node",
            "list the widest first",
            example,
        )
    ranks = [WIDER_FIRST.index(label) for label in levels if label in WIDER_FIRST[:2]]
    if ranks != sorted(ranks):
        yield wrong("spec.levels", "a zone lies in a region", "list the widest first", example)
