"""Nodes, node pools and topologies of a scenario file."""

from typing import Final, Literal

from msgspec import UNSET, UnsetType, field

from extender.api.demand import Delivery
from extender.scenario.model.values import Amount, Name, Natural, Seconds, Written
from extender.state.model import PlacementRule, PoolPolicy

#: The model of a node that states none.
USUAL_MODEL: Final = "A100"


class Level(Written, frozen=True, kw_only=True):
    """One level of a topology: the value of this node label names the domain."""

    label: Name


class Topology(Written, frozen=True, kw_only=True):
    """Levels, the widest first."""

    name: Name
    levels: list[Level]


class Placement(Written, frozen=True, kw_only=True):
    """Which node is preferred, for pods with GPUs and for pods without."""

    gpu: PlacementRule = "binpack"
    cpu: PlacementRule = "binpack"


class Pool(Written, frozen=True, kw_only=True):
    """A node pool: the nodes with all labels of `match`. Absent fields default to the settings."""

    name: Name
    match: dict[str, str] = {}
    policy: PoolPolicy | UnsetType = UNSET
    preemption: bool | UnsetType = UNSET
    placement: Placement | UnsetType = UNSET
    consolidate_after: Seconds | UnsetType = UNSET


class NodeTaint(Written, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Mig(Written, frozen=True, kw_only=True):
    """How the node's cards are cut. With strategy `mixed` only instances can be requested."""

    strategy: Literal["none", "single", "mixed"] = "none"
    instances: dict[str, Natural] = {}


class Node(Written, frozen=True, kw_only=True):
    """A node and its capacity. A stated model is also a label of the node. `offers` is how pods can
    get its cards; a DRA driver offers them by claims, whole or shared."""

    name: Name
    labels: dict[str, str] = {}
    taints: list[NodeTaint] = []
    gpus: Amount = 0
    gpu_memory_mib: Natural = field(default=16384, name="gpuMemoryMiB")
    gpu_model: Name | UnsetType = UNSET
    cpu: Amount = "64"
    memory: Amount = "256Gi"
    max_pods: Natural = 110
    mig: Mig = Mig()
    offers: tuple[Delivery, ...] = ("resource", "agent")
    numa: dict[str, object] = {}
    unschedulable: bool = False

    @property
    def model(self) -> str:
        """The model of its cards."""
        return USUAL_MODEL if self.gpu_model is UNSET else self.gpu_model
