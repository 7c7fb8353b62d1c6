"""What a decision sees: pods, workloads, queues and nodes as plain values in integers.

Built by `extender.state.cluster.ClusterState` for the live controller, and by hand in tests and
scenario runs. Nothing here refers to the API server. Views are never changed after they are made,
so snapshots share them; only `NodeTable` has arrays, and a snapshot has its own copy of those.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.api.objects import NodeSelector, Toleration
from extender.api.reasons import Refused
from extender.state.nodes import NodeTable

#: `gated`: held by our gate, no row. `nominated`: gated, its place is held until victims are gone.
#: `reserved`: has a row that may be bound, gated or already released. `bound`: has a node.
#: `foreign`: neither gated by us nor planned (a direct pod that waits for the extender).
PodState = Literal["gated", "nominated", "reserved", "bound", "foreign"]


class Constraints(Struct, frozen=True, gc=False):
    """Where a pod may run, as it says itself. Equal constraints are one shared object."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    gpu_models: tuple[str, ...] = ()


ANYWHERE = Constraints()


class PodView(Struct, frozen=True, gc=False, kw_only=True):
    """One live (not terminal) pod. Times are unix seconds; 0 where not yet known.

    `node` and `cards` say what it holds by its row, or where it is bound without one.
    `resource_version` is the version this view was read from, for patches that must not be stale;
    `is_gated` speaks of our gate, `other_gates` names those of others.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    demand: Demand = Demand()
    state: PodState = "gated"
    is_gated: bool = True
    other_gates: tuple[str, ...] = ()
    is_terminating: bool = False
    is_controlled: bool = True
    node: str = ""
    cards: tuple[CardShare, ...] = ()
    epoch: int = 0
    compute_request_milli: int = 0
    compute_limit_milli: int = 1000
    priority: int = 50
    created_at: int = 0
    started_at: int = 0
    constraints: Constraints = ANYWHERE

    @property
    def key(self) -> str:
        """`namespace/name`, as people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def held_milli(self) -> int:
        """Milli-GPU that the pod's row holds."""
        return sum(card.milli for card in self.cards)


class WorkloadView(Struct, frozen=True, gc=False, kw_only=True):
    """Pods that are decided as one: a pod group, or a single pod.

    `key` is `namespace/name` of the group or of the pod. `pools` are the node pools it may use, in
    order of preference, already resolved. `problem` is why it can't be placed whatever is free.
    """

    key: str
    namespace: str
    name: str
    is_group: bool = False
    project: str = ""
    kind: str = "training"
    priority: int = 50
    is_preemptible: bool = True
    min_member: int = 1
    pools: tuple[str, ...] = ("default",)
    created_at: int = 0
    pods: tuple[PodView, ...] = ()
    max_concurrent_pods: int | None = None
    expected_run_s: int | None = None
    problem: Refused | None = None


@dataclass(slots=True, frozen=True)
class PoolQuota:
    """A queue's figures for GPUs in one node pool, in milli-GPU. `limit_milli` None: unlimited."""

    quota_milli: int = 0
    limit_milli: int | None = None
    weight: int = 1
    rank: int = 0


@dataclass(slots=True, frozen=True)
class QueueView:
    """A department (`parent` empty) or a project (`parent` is its department)."""

    name: str
    parent: str = ""
    created_at: int = 0
    pools: Mapping[str, PoolQuota] = field(default_factory=dict)
    reclaim_min_runtime_s: int = 0
    preempt_min_runtime_s: int = 0


@dataclass(slots=True, frozen=True)
class PoolView:
    """A node pool's policy."""

    name: str
    gpu_placement: Literal["binpack", "spread"] = "binpack"
    has_preemption: bool = True


@dataclass(slots=True)
class Snapshot:
    """One consistent picture for one cycle. `now_s` is the only clock a policy may read.

    `departments` and `projects` are keyed by name, `pools` too; `workloads` by key and hold every
    workload with at least one live pod. `nodes` is this snapshot's own and may be changed by the
    simulation that runs on it; everything else is shared and constant.
    """

    now_s: int
    nodes: NodeTable
    pools: Mapping[str, PoolView]
    departments: Mapping[str, QueueView]
    projects: Mapping[str, QueueView]
    workloads: Mapping[str, WorkloadView]
