"""A pod under review, with everything that determines its changes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from extender.api import names
from extender.api.aliases import GROUP_LABELS, MIN_MEMBER_KEYS, first_of
from extender.api.demand import Delivery, Demand, delivery_of
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuNodePoolSpec, GpuProject, PoolFigures
from extender.api.objects import ObjectMeta, Pod, PriorityClass
from extender.api.units import MILLI_PER_GPU
from webhooks.owners.origin import Origin
from webhooks.vocabulary import Translation


def states_minimum(meta: ObjectMeta) -> bool:
    """Whether a pod states how many pods of its group must run together."""
    keys = (*MIN_MEMBER_KEYS, names.ANNOTATION_SUB_GROUPS)
    return bool(first_of(meta.annotations, keys) or first_of(meta.labels, MIN_MEMBER_KEYS))


@dataclass(slots=True, frozen=True, kw_only=True)
class PodCase:
    """A pod, its demand, its project, and its owner.

    `department` is None if it does not exist; `pools` are the existing node pools by name;
    `classes` are the known priority classes by name. `translation` is of another scheduler's
    vocabulary: it is already applied to `pod` and `demand`.
    """

    pod: Pod
    demand: Demand
    project: GpuProject
    kind: str
    priority_class: str
    origin: Origin
    is_of_daemon_set: bool = False
    department: GpuDepartment | None = None
    pools: Mapping[str, GpuNodePool] = field(default_factory=dict)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    translation: Translation | None = None

    @property
    def known_class(self) -> PriorityClass | None:
        """The priority class of the pod, if it is known."""
        return self.classes.get(self.priority_class)

    @property
    def stated_group(self) -> str:
        """The group that the pod's labels name."""
        return first_of(self.pod.metadata.labels, GROUP_LABELS)

    @property
    def group(self) -> str:
        """The group that the pod names, else its owner's if the pods need one another."""
        if stated := self.stated_group:
            return stated
        is_needed = not self.origin.is_alone or self.states_minimum
        return self.origin.group if is_needed and self.demand.is_gpu_work else ""

    @property
    def states_minimum(self) -> bool:
        """Whether the pod states how many pods of its group must run together."""
        return states_minimum(self.pod.metadata)

    @property
    def replica_of(self) -> str:
        """The owner that the pod is a replica of, if the pod states a floor."""
        if not self.pod.metadata.annotation(names.ANNOTATION_FLOOR):
            return ""
        stated = self.pod.metadata.label(names.LABEL_REPLICA_OF)
        return stated or self.origin.whole or self.origin.group

    @property
    def shares_cards(self) -> bool:
        """Whether the pod may share a card with other pods."""
        return self.demand.gpu_memory_mib > 0 or 0 < self.demand.milli < MILLI_PER_GPU

    @property
    def delivery(self) -> Delivery:
        """How the pod gets its cards."""
        return delivery_of(self.pod, self.demand)

    @property
    def pool_names(self) -> tuple[str, ...]:
        """The node pools that the pod may use, in order of preference."""
        if text := self.pod.metadata.annotation(names.ANNOTATION_NODE_POOLS):
            return tuple(text.split(","))
        spec = self.project.spec
        stated = spec.default_node_pools or [pool.name for pool in spec.node_pools]
        return tuple(stated or sorted({names.DEFAULT_POOL, *self.pools}))

    @property
    def is_strict(self) -> bool:
        """Whether the preferred node pool enforces compute shares strictly."""
        return self._spec_of(self.pool_names[0]).time_slicing.mode == "Strict"

    def divides_time(self, pool_name: str) -> bool:
        """Whether this node pool divides the compute time of shared cards."""
        return self._spec_of(pool_name).time_slicing.mode != "Disabled"

    def lends_memory(self, pool_name: str) -> bool:
        """Whether pods of this node pool may use memory that no pod requested."""
        return self._spec_of(pool_name).memory_lending == "Enabled"

    def _spec_of(self, pool_name: str) -> GpuNodePoolSpec:
        """The spec of the node pool; the default one if the pool does not exist."""
        pool = self.pools.get(pool_name)
        return pool.spec if pool else GpuNodePoolSpec()

    @property
    def node_labels(self) -> Mapping[str, str]:
        """The node labels that the project requires for this kind of work."""
        for selector in self.project.spec.node_affinity:
            if selector.workload_kind == self.kind:
                return selector.match_labels
        return {}

    def figures(self) -> Iterator[tuple[str, str, PoolFigures]]:
        """(name, node pool, figures) of the project, and of its department."""
        for figures in self.project.spec.node_pools:
            yield f"project {self.project.metadata.name}", figures.name, figures
        for figures in self.department.spec.node_pools if self.department else ():
            yield f"department {self.project.spec.department}", figures.name, figures
