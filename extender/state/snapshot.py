"""The input of one cycle: every view of the model at one moment."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from extender.api.kinds import CardShare
from extender.state.model import Amounts, Bystanders, PoolView, QueueView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.tally import Tally


@dataclass(slots=True)
class Snapshot:
    """One consistent picture for one cycle. `now_s` is the only clock a policy may read.

    `queues` and `pools` are keyed by name; `topologies` gives the node labels of each level, the
    widest first; `workloads` are keyed by their key and include every workload with a live pod.
    `tally` has their sums, or is None until it is needed. `orphans` are nodes and cards held by
    rows whose pods are gone: they will soon be free. `budgets` is how many more disruptions each
    budget allows, apart from pods that are terminating. `held_lately` is each queue's average
    allocation over the last day, by queue and node pool, in units of 1/`LATELY`; it breaks ties
    between queues. `kept` are the nodes with reservations for successors of moved pods. `placed`
    are UIDs of pods that earlier rounds of the cycle placed, which run in this snapshot but not yet
    in the cluster; `moved` are UIDs of pods that these rounds move, and `promised` those of the
    other ones that will not start at once; `dropped` are keys of workloads that lose their
    nominations in them. `bystanders` are the bound pods without a row in namespaces of pods with
    (anti-)affinity. A simulation may change `nodes`, which belongs to this snapshot; everything
    else is shared and constant.
    """

    now_s: int
    nodes: NodeTable
    pools: Mapping[str, PoolView]
    queues: Mapping[str, QueueView]
    workloads: Mapping[str, WorkloadView]
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tally: Tally | None = None
    orphans: tuple[tuple[str, tuple[CardShare, ...]], ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    held_lately: Mapping[tuple[str, str], Amounts] = field(default_factory=dict)
    kept: Collection[str] = frozenset()
    placed: Collection[str] = frozenset()
    promised: Collection[str] = frozenset()
    moved: Collection[str] = frozenset()
    dropped: Collection[str] = frozenset()
    bystanders: Collection[Bystanders] = ()
