"""GpuPodGroup, a gang of pods, and GpuTopology, the levels that its topology constraints name."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from extender.api.ledger import Name, Natural
from extender.api.objects import Condition, ObjectMeta
from extender.api.units import MAX_WEIGHT


class TopologyLevel(Struct, rename="camel", kw_only=True):
    """One level: nodes with equal values of its label and of all wider levels are one domain."""

    node_label: Annotated[Name, Meta(description="Key of the node label that defines the level.")]


class GpuTopologySpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    levels: Annotated[
        list[TopologyLevel],
        Meta(description="The levels, widest first, such as zone, block, rack, host."),
    ] = field(default_factory=list)


class GpuTopology(Struct, rename="camel", kw_only=True):
    """The hierarchy of topology domains, such as zones and racks, that node labels define."""

    metadata: ObjectMeta
    spec: GpuTopologySpec = field(default_factory=GpuTopologySpec)


class TopologyConstraint(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The topology domains in which the pods must or should run together."""

    topology: Annotated[
        str,
        Meta(
            description="Name of the GpuTopology; when empty, the only GpuTopology that has the"
            " level."
        ),
    ] = ""
    required_topology_level: Annotated[
        str,
        Meta(
            description="Node label of a level: all pods run in one domain of this level, or none"
            " runs."
        ),
    ] = ""
    preferred_topology_level: Annotated[
        str,
        Meta(
            description="Node label of a level: single domains of this level are tried first, then"
            " wider ones."
        ),
    ] = ""


class SubGroup(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Pods of a group with a minimum and a topology constraint of their own.

    If any pod of a sub-group runs, its minimum must run. Pods belong to sub-groups without
    children. The minimum of a sub-group with children counts all pods below it; by default it is
    the sum of the children's minimums.
    """

    name: Annotated[
        Name,
        Meta(description="Name of the sub-group, as in the pods' label ballast.dev/sub-group."),
    ]
    parent: Annotated[
        str,
        Meta(description="Name of the parent sub-group; empty: the group itself is the parent."),
    ] = ""
    min_member: Annotated[
        int,
        Meta(ge=0, description="Number of its pods that must run together, if any of them runs."),
    ] = 1
    min_sub_group: Annotated[
        Natural | None,
        Meta(
            description="Number of child sub-groups that must reach their minimum; when absent,"
            " minMember applies."
        ),
    ] = None
    topology_constraint: TopologyConstraint | None = None


WorkloadWeight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]


class GpuPodGroupSpec(Struct, rename="camel", kw_only=True, omit_defaults=True):
    min_member: Annotated[
        int,
        Meta(
            ge=1,
            description="Number of pods that must run together. If the group has sub-groups, and"
            " this is 1 and minSubGroup is absent, it is the sum of their minimums.",
        ),
    ] = 1
    min_sub_group: Annotated[
        Natural | None,
        Meta(
            description="Number of top-level sub-groups that must reach their minimum; when absent,"
            " minMember applies."
        ),
    ] = None
    sub_groups: Annotated[
        list[SubGroup], Meta(description="The sub-groups, a tree: each may name its parent.")
    ] = field(default_factory=list)
    topology_constraint: TopologyConstraint | None = None
    project: Annotated[
        str,
        Meta(
            description="Name of the GpuProject that its pods count against; the project of the"
            " namespace when empty."
        ),
    ] = ""
    node_pools: Annotated[
        list[str],
        Meta(
            description="Node pools in order of preference; the default node pools of the project"
            " when empty."
        ),
    ] = field(default_factory=list)
    priority_class_name: Annotated[
        str,
        Meta(
            description="Priority class of the group; when empty, the group has the highest"
            " priority of its pods."
        ),
    ] = ""
    preemptibility: Annotated[
        Literal["", "Preemptible", "NonPreemptible"],
        Meta(
            description="Whether its pods may be evicted for other workloads; when empty, only"
            " groups of a priority below 100 are preemptible."
        ),
    ] = ""
    max_concurrent_pods: Annotated[
        int | None,
        Meta(description="The most pods of the group that may run at once; unlimited when absent."),
    ] = None
    expected_run_seconds: Annotated[
        int | None,
        Meta(description="Expected run time in seconds, used for backfill and forecasts."),
    ] = None
    preemption_delay_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="Seconds that the group stays pending before pods are evicted for it; 0: no"
            " delay.",
        ),
    ] = 0
    weight: Annotated[
        WorkloadWeight | None,
        Meta(
            description="Weight relative to other workloads of its project, in node pools of policy"
            " DemandWeighted; when absent, the pods' annotation ballast.dev/weight, else 1.",
        ),
    ] = None
    staleness_grace_seconds: Annotated[
        int,
        Meta(
            ge=-1,
            description="Seconds that the group may run with fewer pods than its minimum before all"
            " its pods are evicted; -1: no limit.",
        ),
    ] = 60


class GpuPodGroupStatus(Struct, rename="camel", kw_only=True):
    """Numbers of pods. Condition types: `Scheduled`; `Valid`, false while its priority class does
    not exist; and `Stale` while too few of its pods run."""

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
