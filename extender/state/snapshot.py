"""What one cycle decides on: every view of the model at one moment."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from extender.api.kinds import CardShare
from extender.state.model import Amounts, PoolView, QueueView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.tally import Tally


@dataclass(slots=True)
class Snapshot:
    """One consistent picture for one cycle. `now_s` is the only clock a policy may read.

    `queues` and `pools` are keyed by name; `topologies` gives the node labels of each level, the
    widest first; `workloads` are keyed by their key and hold every workload with at least one live
    pod; `tally` sums them up, or is None until it is needed. `orphans` are nodes and cards that
    rows still hold although their pods are gone: soon they are free. `budgets` says how many more
    pods each disruption budget lets go, without the pods that already leave. `held_lately` is what
    each queue held on average over the last day, by queue and node pool, in units of 1/`LATELY`: it
    breaks ties between queues. `kept` are the nodes on which places are kept for the successors of
    pods that were moved. `placed` are uids of pods that earlier rounds of the cycle placed: they
    run here, and do not yet in the cluster; `moved` are those that they move. `nodes` is this
    snapshot's own and may be changed by the simulation that runs on it; everything else is shared
    and constant.
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
    moved: Collection[str] = frozenset()
