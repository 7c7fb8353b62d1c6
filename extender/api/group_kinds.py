"""Groups of pods that are placed as one, and the topologies they ask nearness in."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from extender.api.ledger import Name, Natural
from extender.api.objects import Condition, ObjectMeta
from extender.api.units import MAX_WEIGHT


class TopologyLevel(Struct, rename="camel", kw_only=True):
    """Nodes that agree on this label, and on those of all wider levels, are one domain."""

    node_label: Annotated[Name, Meta(description="Key of a label of nodes.")]


class GpuTopologySpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    levels: Annotated[
        list[TopologyLevel], Meta(description="The widest first, such as zone, block, rack, host.")
    ] = field(default_factory=list)


class GpuTopology(Struct, rename="camel", kw_only=True):
    """How near nodes are to one another, by node labels."""

    metadata: ObjectMeta
    spec: GpuTopologySpec = field(default_factory=GpuTopologySpec)


class TopologyConstraint(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How near to one another pods must or should be; levels are named by their node label."""

    topology: Annotated[
        str, Meta(description="Name of a GpuTopology; the only one that has the level when empty.")
    ] = ""
    required_topology_level: Annotated[
        str, Meta(description="All pods run in one domain of this level, or none runs.")
    ] = ""
    preferred_topology_level: Annotated[
        str, Meta(description="Domains of this level are tried first, then wider ones.")
    ] = ""


class SubGroup(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Pods of a group that need one another more than the rest; pods name it by a label.

    A sub-group that holds any pod holds its minimum. Pods belong to sub-groups without children; a
    minimum of one that has children counts all pods below it, and is by default the sum of theirs.
    """

    name: Annotated[Name, Meta(description="What pods write into the label ballast.dev/sub-group.")]
    parent: Annotated[str, Meta(description="The sub-group around it; the group when empty.")] = ""
    min_member: Annotated[int, Meta(ge=0, description="Pods that run together, or none.")] = 1
    min_sub_group: Annotated[
        Natural | None,
        Meta(description="Children that must have their minimum; minMember decides when absent."),
    ] = None
    topology_constraint: TopologyConstraint | None = None


WorkloadWeight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]


class GpuPodGroupSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    min_member: Annotated[
        int,
        Meta(
            ge=1,
            description="Pods that run together or not at all. With sub-groups, the sum of their"
            " minimums while this is 1 and minSubGroup is absent.",
        ),
    ] = 1
    min_sub_group: Annotated[
        Natural | None,
        Meta(description="Sub-groups of the first level that must have their minimum."),
    ] = None
    sub_groups: Annotated[
        list[SubGroup], Meta(description="A tree: each names the sub-group around it.")
    ] = field(default_factory=list)
    topology_constraint: TopologyConstraint | None = None
    project: Annotated[
        str, Meta(description="The GpuProject of its pods; that of the namespace when empty.")
    ] = ""
    node_pools: Annotated[
        list[str],
        Meta(description="Node pools in order of preference; those of the project when empty."),
    ] = field(default_factory=list)
    priority_class_name: Annotated[
        str, Meta(description="Priority class of the group; its pods' highest when empty.")
    ] = ""
    preemptibility: Annotated[
        Literal["", "Preemptible", "NonPreemptible"],
        Meta(
            description="Whether it may be evicted for other work; decided by its priority when"
            " empty."
        ),
    ] = ""
    max_concurrent_pods: Annotated[
        int | None, Meta(description="Pods of the group that may run at once.")
    ] = None
    expected_run_seconds: Annotated[
        int | None, Meta(description="Expected run time, used to backfill.")
    ] = None
    preemption_delay_seconds: Annotated[
        int, Meta(ge=0, description="How long it waits before other work is evicted for it.")
    ] = 0
    weight: Annotated[
        WorkloadWeight | None,
        Meta(
            description="In node pools of policy DemandWeighted, its weight beside other workloads"
            " of its project; absent: what its pods' annotation ballast.dev/weight says, else 1.",
        ),
    ] = None
    staleness_grace_seconds: Annotated[
        int,
        Meta(
            ge=-1,
            description="How long it may run below its minimum before all its pods are evicted;"
            " -1: for ever.",
        ),
    ] = 60


class GpuPodGroupStatus(Struct, rename="camel", kw_only=True):
    """Condition types: `Scheduled`, and `Stale` while too few of its pods run."""

    observed_generation: Natural = 0
    project: str = ""
    pending: Natural = 0
    scheduled: Natural = 0
    running: Natural = 0
    conditions: list[Condition] = field(default_factory=list)


class GpuPodGroup(Struct, rename="camel", kw_only=True):
    """A gang: pods that start together or not at all."""

    metadata: ObjectMeta
    spec: GpuPodGroupSpec = field(default_factory=GpuPodGroupSpec)
    status: GpuPodGroupStatus = field(default_factory=GpuPodGroupStatus)
