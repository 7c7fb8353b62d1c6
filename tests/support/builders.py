"""Objects as the API server would send them, in few words: `pod("a").needs(500).gang("g", 4)`.

Every builder ends with `build()`. Names are given; UIDs, versions and times have defaults that
depend on the name alone, so that two builds of one description are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Self

from msgspec.structs import replace

from extender.api import names
from extender.api.demand import DEVICES, FRACTION, MEMORY, MODEL_SELECTOR
from extender.api.kinds import (
    CardShare,
    Department,
    DepartmentSpec,
    Device,
    GpuFigures,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    HostFigures,
    KindSelector,
    MoveHold,
    NodePool,
    NodePoolSpec,
    Placement,
    PlacementRule,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PoolFigures,
    Project,
    ProjectSpec,
    Row,
    RowState,
    SubGroup,
    TimeBasedFairShare,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    TopologySpec,
)
from extender.api.objects import (
    Affinity,
    Condition,
    Container,
    LabelSelector,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    Quantity,
    Resources,
    SchedulingGate,
    Taint,
    Toleration,
)
from extender.api.units import MILLI_PER_GPU, format_gpus, share_mib

WorkloadKind = Literal["training", "interactive", "build", "inference"]

#: The memory of a card where a test does not say, in MiB.
CARD_MIB = 16_000
NOT_COUNTED = HostFigures()
JOB = OwnerReference(api_version="batch/v1", kind="Job", name="job", uid="uid-job", controller=True)


def at_s(seconds: int) -> datetime:
    """An API time from unix seconds."""
    return datetime.fromtimestamp(seconds, UTC)


def whole(*indexes: int, mib: int = CARD_MIB) -> list[CardShare]:
    """Whole cards."""
    return [CardShare(index, MILLI_PER_GPU, mib) for index in indexes]


def part(index: int, milli: int, *, of_mib: int = CARD_MIB) -> list[CardShare]:
    """A share of one card."""
    return [CardShare(index, milli, share_mib(milli, of_mib))]


class _Builder:
    """What all objects have: metadata."""

    def __init__(self, name: str, namespace: str = "") -> None:
        self._meta = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp=at_s(1_000),
        )

    def uid(self, uid: str) -> Self:
        self._meta = replace(self._meta, uid=uid)
        return self

    def version(self, version: int) -> Self:
        self._meta = replace(self._meta, resource_version=str(version))
        return self

    def created(self, seconds: int) -> Self:
        self._meta = replace(self._meta, creation_timestamp=at_s(seconds))
        return self

    def labelled(self, **labels: str) -> Self:
        return self.labels(labels)

    def labels(self, labels: Mapping[str, str]) -> Self:
        self._meta = replace(self._meta, labels={**(self._meta.labels or {}), **labels})
        return self

    def notes(self, annotations: Mapping[str, str]) -> Self:
        merged = {**(self._meta.annotations or {}), **annotations}
        self._meta = replace(self._meta, annotations=merged)
        return self


class PodBuilder(_Builder):
    """A pod of namespace `team-a`, held by our gate, owned by a controller, asking for nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "team-a")
        self._spec = PodSpec(
            scheduler_name=names.SCHEDULER_NAME,
            priority=names.PRIORITY_CLASSES["train"],
            scheduling_gates=[SchedulingGate(names.GATE)],
        )
        self._status = PodStatus(phase="Pending")
        self._requests: dict[str, Quantity] = {}
        self._owners = [JOB]

    def of(self, namespace: str) -> Self:
        self._meta = replace(self._meta, namespace=namespace)
        return self

    def needs(self, milli: int, *, devices: int = 1) -> Self:
        """A fraction of each of `devices` cards, or with a multiple of 1000 whole cards."""
        if milli % MILLI_PER_GPU == 0:
            self._requests[names.NVIDIA_GPU] = milli // MILLI_PER_GPU * devices
        else:
            self.notes({FRACTION: format_gpus(milli)})
            if devices > 1:
                self.notes({DEVICES: str(devices)})
        self._requests[names.GPU_MILLI] = milli * devices
        return self

    def needs_mib(self, mib: int, *, devices: int = 1) -> Self:
        self.notes({MEMORY: str(mib)})
        if devices > 1:
            self.notes({DEVICES: str(devices)})
        self._requests[names.GPU_MILLI] = 1
        return self

    def host(self, cpu: Quantity, memory: Quantity) -> Self:
        self._requests.update(cpu=cpu, memory=memory)
        return self

    def instances(self, resource: str, count: int) -> Self:
        """MIG instances of one profile."""
        self._requests[resource] = count
        return self

    def user(self, name: str) -> Self:
        return self.labels({names.LABEL_USER: name})

    def sub_group(self, name: str) -> Self:
        return self.labels({names.LABEL_SUB_GROUP: name})

    def beside(self, topology_key: str, **labels: str) -> Self:
        """Must run in a domain with pods that have these labels."""
        affinity = self._spec.affinity or Affinity()
        self._spec = replace(
            self._spec, affinity=replace(affinity, pod_affinity=_to_pods(topology_key, labels))
        )
        return self

    def apart(self, topology_key: str, **labels: str) -> Self:
        """Must not run in a domain with pods that have these labels."""
        affinity = self._spec.affinity or Affinity()
        self._spec = replace(
            self._spec,
            affinity=replace(affinity, pod_anti_affinity=_to_pods(topology_key, labels)),
        )
        return self

    def gang(self, name: str, min_member: int = 0) -> Self:
        self.labels({names.LABEL_POD_GROUP: name})
        return self.notes({names.ANNOTATION_MIN_MEMBER: str(min_member)}) if min_member else self

    def project(self, name: str) -> Self:
        return self.labels({names.LABEL_PROJECT: name})

    def kind(self, kind: str) -> Self:
        """A kind of workload and the priority class that goes with it."""
        priority_class = names.CLASS_OF_KIND[kind]
        self.labels({names.LABEL_WORKLOAD_KIND: kind})
        return self.priority(names.PRIORITY_CLASSES[priority_class])

    def priority(self, priority: int) -> Self:
        self._spec = replace(self._spec, priority=priority)
        return self

    def preemptibility(self, word: str) -> Self:
        return self.labels({names.LABEL_PREEMPTIBILITY: word})

    def pools(self, *pools: str) -> Self:
        return self.notes({names.ANNOTATION_NODE_POOLS: ",".join(pools)})

    def models(self, *models: str) -> Self:
        return self.notes({MODEL_SELECTOR: ",".join(models)})

    def on_nodes(self, **labels: str) -> Self:
        self._spec = replace(self._spec, node_selector=labels)
        return self

    def tolerates(self, key: str, effect: str = "") -> Self:
        tolerations = [*(self._spec.tolerations or ()), Toleration(key, "Exists", "", effect)]
        self._spec = replace(self._spec, tolerations=tolerations)
        return self

    def direct(self) -> Self:
        """Without our gate, and not planned."""
        self._spec = replace(self._spec, scheduling_gates=None)
        return self

    def released(self, node: str, epoch: int = 1) -> Self:
        """As the controller leaves it after the gate has fallen."""
        return self.direct().notes({names.ANNOTATION_PLAN: f"{epoch} {node}"})

    def bound(self, node: str, *, started: int = 0) -> Self:
        self._spec = replace(self._spec, scheduling_gates=None, node_name=node)
        if started:
            self._status = replace(self._status, phase="Running", start_time=at_s(started))
        return self

    def ended(self, phase: Literal["Succeeded", "Failed"] = "Succeeded") -> Self:
        self._status = replace(self._status, phase=phase)
        return self

    def terminating(self, since: int = 2_000) -> Self:
        self._meta = replace(self._meta, deletion_timestamp=at_s(since))
        return self

    def bare(self) -> Self:
        """Owned by no controller."""
        self._owners = []
        return self

    def made_by(self, owner: str) -> Self:
        """Owned by the controller of this UID."""
        self._owners = [replace(JOB, uid=owner)]
        return self

    def build(self) -> Pod:
        container = Container("main", Resources(requests=dict(self._requests)))
        return Pod(
            metadata=replace(self._meta, owner_references=list(self._owners)),
            spec=replace(self._spec, containers=[container]),
            status=self._status,
        )


def _to_pods(topology_key: str, labels: Mapping[str, str]) -> PodAffinity:
    selector = LabelSelector(match_labels=dict(labels))
    return PodAffinity([PodAffinityTerm(topology_key=topology_key, label_selector=selector)])


class NodeBuilder(_Builder):
    """A Ready node with 64 CPUs, 256 GiB and 110 pod slots."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._spec = NodeSpec()
        self._ready: str | None = "True"
        self._resources: dict[str, Quantity] = {"cpu": "64", "memory": "256Gi", "pods": "110"}

    def host(self, cpu: Quantity, memory: Quantity, pods: Quantity = "110") -> Self:
        self._resources.update(cpu=cpu, memory=memory, pods=pods)
        return self

    def gpus(self, count: int, mib: int = CARD_MIB, model: str = "") -> Self:
        """Cards as GPU feature discovery labels them."""
        self.labels({names.LABEL_GPU_COUNT: str(count), names.LABEL_GPU_MEMORY: str(mib)})
        return self.labels({names.LABEL_GPU_MODEL: model}) if model else self

    def instances(self, resource: str, count: int) -> Self:
        """MIG instances of one profile, as the device plugin counts them."""
        self._resources[resource] = count
        return self.labels({names.LABEL_MIG_STRATEGY: "mixed"})

    def gpu_milli(self, milli: int) -> Self:
        self._resources[names.GPU_MILLI] = milli
        return self

    def ready(self, status: str | None) -> Self:
        self._ready = status
        return self

    def cordoned(self) -> Self:
        self._spec = replace(self._spec, unschedulable=True)
        return self

    def taint(self, key: str, effect: str = "NoSchedule", value: str = "") -> Self:
        taints = [*(self._spec.taints or ()), Taint(key, effect, value)]
        self._spec = replace(self._spec, taints=taints)
        return self

    def build(self) -> Node:
        ready = [Condition(type="Ready", status=self._ready)] if self._ready else None
        resources = dict(self._resources)
        return Node(self._meta, self._spec, NodeStatus(resources, dict(resources), ready))


class GpuNodeBuilder(_Builder):
    """A ledger without cards and rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._meta = replace(self._meta, uid=f"uid-gpu-{name}")
        self._devices: list[Device] = []
        self._rows: list[Row] = []

    def cards(self, count: int, mib: int = CARD_MIB, model: str = "") -> Self:
        self._devices = [Device(index=i, memory_mib=mib, model=model) for i in range(count)]
        return self

    def sick(self, *indexes: int) -> Self:
        self._devices = [
            replace(device, health="Unhealthy") if device.index in indexes else device
            for device in self._devices
        ]
        return self

    def holds(self, *rows: Row) -> Self:
        self._rows += rows
        return self

    def build(self) -> GpuNode:
        status = GpuNodeStatus(devices=list(self._devices))
        return GpuNode(metadata=self._meta, spec=GpuNodeSpec(rows=list(self._rows)), status=status)


class QueueBuilder(_Builder):
    """Figures per node pool, for departments and projects."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._pools: list[PoolFigures] = []

    def quota(
        self,
        gpus: Quantity,
        *,
        pool: str = names.DEFAULT_POOL,
        limit: Quantity | None = None,
        weight: int = 1,
        rank: int = 0,
        cpu: HostFigures = NOT_COUNTED,
        memory: HostFigures = NOT_COUNTED,
    ) -> Self:
        gpu = GpuFigures(quota=gpus, limit=limit, over_quota_weight=weight)
        figures = PoolFigures(name=pool, gpu=gpu, cpu=cpu, memory=memory, rank=rank)
        self._pools.append(figures)
        return self


class DepartmentBuilder(QueueBuilder):
    """A department without quota."""

    def build(self) -> Department:
        return Department(metadata=self._meta, spec=DepartmentSpec(node_pools=list(self._pools)))


class ProjectBuilder(QueueBuilder):
    """A project of department `science` that has the namespace of its own name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._spec = ProjectSpec(department="science", namespaces=[name])

    def of(self, department: str) -> Self:
        self._spec = replace(self._spec, department=department)
        return self

    def namespaces(self, *namespaces: str) -> Self:
        self._spec = replace(self._spec, namespaces=list(namespaces))
        return self

    def default_pools(self, *pools: str) -> Self:
        self._spec = replace(self._spec, default_node_pools=list(pools))
        return self

    def places(self, kind: WorkloadKind, **on: str) -> Self:
        """Work of this kind must use nodes with these labels."""
        selectors = [*self._spec.node_affinity, KindSelector(workload_kind=kind, match_labels=on)]
        self._spec = replace(self._spec, node_affinity=selectors)
        return self

    def build(self) -> Project:
        return Project(metadata=self._meta, spec=replace(self._spec, node_pools=list(self._pools)))


class PoolBuilder(_Builder):
    """A node pool that selects by label."""

    def __init__(self, name: str, selector: Mapping[str, str]) -> None:
        super().__init__(name)
        self._spec = NodePoolSpec(node_selector=dict(selector))

    def spread(self) -> Self:
        self._spec = replace(self._spec, placement=Placement(gpu="spread"))
        return self

    def placed(self, rule: PlacementRule) -> Self:
        self._spec = replace(self._spec, placement=Placement(gpu=rule))
        return self

    def remembers(self, half_life_s: int, weight_percent: int = 100) -> Self:
        """What was used in the past bends weights."""
        rule = TimeBasedFairShare(weight_percent=weight_percent, half_life_seconds=half_life_s)
        self._spec = replace(self._spec, time_based_fair_share=rule)
        return self

    def without_weights(self) -> Self:
        self._spec = replace(self._spec, over_quota_weights="Disabled")
        return self

    def without_preemption(self) -> Self:
        self._spec = replace(self._spec, preemption="Disabled")
        return self

    def build(self) -> NodePool:
        return NodePool(metadata=self._meta, spec=self._spec)


class PodGroupBuilder(_Builder):
    """A pod group of namespace `team-a`."""

    def __init__(self, name: str, min_member: int) -> None:
        super().__init__(name, "team-a")
        self._meta = replace(self._meta, uid=f"uid-group-{name}")
        self._spec = PodGroupSpec(min_member=min_member)
        self._status = PodGroupStatus()

    def of(self, namespace: str) -> Self:
        self._meta = replace(self._meta, namespace=namespace)
        return self

    def project(self, name: str) -> Self:
        self._spec = replace(self._spec, project=name)
        return self

    def priority_class(self, name: str) -> Self:
        self._spec = replace(self._spec, priority_class_name=name)
        return self

    def preemptibility(self, word: Literal["", "preemptible", "non-preemptible"]) -> Self:
        self._spec = replace(self._spec, preemptibility=word)
        return self

    def pools(self, *pools: str) -> Self:
        self._spec = replace(self._spec, node_pools=list(pools))
        return self

    def needs_groups(self, count: int) -> Self:
        """Sub-groups of the first level that must have their minimum."""
        self._spec = replace(self._spec, min_sub_group=count)
        return self

    def sub_group(self, name: str, min_member: int = 1, **more: Any) -> Self:
        """A sub-group; more: parent, min_sub_group, topology_constraint."""
        added = SubGroup(name=name, min_member=min_member, **more)
        self._spec = replace(self._spec, sub_groups=[*self._spec.sub_groups, added])
        return self

    def near(self, required: str = "", preferred: str = "", *, topology: str = "") -> Self:
        self._spec = replace(
            self._spec,
            topology_constraint=TopologyConstraint(
                topology=topology,
                required_topology_level=required,
                preferred_topology_level=preferred,
            ),
        )
        return self

    def delays(self, preemption_s: int = 0, staleness_s: int = 60) -> Self:
        self._spec = replace(
            self._spec, preemption_delay_seconds=preemption_s, staleness_grace_seconds=staleness_s
        )
        return self

    def told_stale(self, since: str) -> Self:
        """As an earlier leader has left its status."""
        stale = Condition(type="Stale", status="True", last_transition_time=since)
        self._status = PodGroupStatus(conditions=[stale])
        return self

    def build(self) -> PodGroup:
        return PodGroup(metadata=self._meta, spec=self._spec, status=self._status)


def topology(name: str, *levels: str) -> Topology:
    """A topology by the labels of its levels, the widest first."""
    spec = TopologySpec(levels=[TopologyLevel(node_label=label) for label in levels])
    return Topology(metadata=ObjectMeta(name=name, uid=f"uid-topology-{name}"), spec=spec)


def pod(name: str) -> PodBuilder:
    """A gated pod of namespace `team-a`."""
    return PodBuilder(name)


def node(name: str) -> NodeBuilder:
    """A Ready node."""
    return NodeBuilder(name)


def gpu_node(name: str, cards: int = 0) -> GpuNodeBuilder:
    """A node's ledger."""
    return GpuNodeBuilder(name).cards(cards)


def department(name: str) -> DepartmentBuilder:
    """A department."""
    return DepartmentBuilder(name)


def project(name: str) -> ProjectBuilder:
    """A project."""
    return ProjectBuilder(name)


def pool(name: str, **selector: str) -> PoolBuilder:
    """A node pool."""
    return PoolBuilder(name, selector)


def pod_group(name: str, min_member: int) -> PodGroupBuilder:
    """A pod group."""
    return PodGroupBuilder(name, min_member)


def row(
    held_by: Pod,
    cards: Sequence[CardShare],
    state: RowState = "reserved",
    *,
    epoch: int = 1,
    move: MoveHold | None = None,
) -> Row:
    """The row of a pod."""
    meta = held_by.metadata
    return Row(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        group=meta.label(names.LABEL_POD_GROUP),
        cards=list(cards),
        state=state,
        epoch=epoch,
        move=move,
    )


def kept_row(held_by: Pod, cards: Sequence[CardShare], *, cpu_milli: int = 0) -> Row:
    """The row that keeps a place for the successor of a pod that is moved."""
    owner = held_by.metadata.controller
    assert owner is not None
    return row(held_by, cards, "nominated", move=MoveHold(owner=owner.uid, cpu_milli=cpu_milli))
