"""Which pending workloads an elastic node pool should get new nodes for, and how many.

A what-if: every elastic pool is filled up to its maximum with empty nodes, no queue may use more of
it than its quota, and one round of `allocate` decides. A pending workload that is then placed on
new nodes is entitled to a scale-up. Pods that no nodes can be added for are left out, so that they
take no resources from work behind them. Pure. Costs one decision without evictions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import Struct, structs

from extender.api.kinds import Device
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU
from extender.policy.decide import decide
from extender.policy.plan import Admission, Placement, Plan, Settings
from extender.state.model import (
    ElasticView,
    Figures,
    PodView,
    PoolQuota,
    QueueView,
    WorkloadView,
)
from extender.state.nodes import NodeFacts, NodeTable
from extender.state.snapshot import Snapshot

#: Prefix of the names of new nodes, which is not valid in a Node's name.
_NEW: Final = "new/"
#: Reasons of work that is placed, or evicts pods, as soon as that is allowed.
_NEEDS_NO_NODE: Final = frozenset(
    {Reason.WAITING_FOR_VICTIMS, Reason.VICTIMS_PROTECTED, Reason.SCHEDULER_AWAY}
)
_WHOLE_ONLY: Final = "nodes are added for whole GPUs only"
#: A pod that has lost its gate and its claim is deleted, since a gate cannot be restored.
_OWNED_ONLY: Final = "nodes are added only for pods that a controller creates again"


class ScaleUp(Struct, frozen=True):
    """The new `nodes` of `pool` on which the workload would run; workloads may share one. `pods`
    are those that it would start in this pool, on existing nodes as well, but not those in other
    pools: a request is for one pool. `starting` are the UIDs of all."""

    workload: WorkloadView
    pool: str
    pods: tuple[PodView, ...]
    nodes: frozenset[str]
    starting: frozenset[str]

    @property
    def n_nodes(self) -> int:
        """How many nodes the workload lacks."""
        return len(self.nodes)


@dataclass(slots=True)
class ScaleUps:
    """By workload key: what to request from an autoscaler, and why other work gets no nodes."""

    wanted: dict[str, ScaleUp] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def left_waiting(plan: Plan) -> list[str]:
    """Keys of the workloads that the plan cannot place: not now, not once other pods terminate or
    may be evicted, and not once kube-scheduler is back. Excludes work the cycle had no time for."""
    given = {each.workload.key for each in plan.admissions} | plan.cut
    return [
        key
        for key, refused in plan.waits.items()
        if key not in given and refused.reason not in _NEEDS_NO_NODE
    ]


def scale_ups(snapshot: Snapshot, keys: Iterable[str]) -> ScaleUps:
    """The new nodes that these pending workloads need; uses up the snapshot's node table."""
    elastic = {name: view.elastic for name, view in snapshot.pools.items() if view.elastic}
    found = ScaleUps()
    waiting = [
        workload
        for key in keys
        if (workload := snapshot.workloads.get(key)) is not None
        and not elastic.keys().isdisjoint(workload.pools)
    ]
    if not waiting:
        return found
    asked = ((each.key, _why_not_requested(each, elastic)) for each in waiting)
    found.refused = {key: why_not for key, why_not in asked if why_not}
    _leave_out(snapshot, found.refused)
    for name, view in elastic.items():
        _fill_up(snapshot, name, view)
    snapshot.queues = {
        name: _within_quota(queue, elastic) for name, queue in snapshot.queues.items()
    }
    snapshot.tally = None
    plan = decide(snapshot, Settings(stages=("allocate",)))
    admissions = {each.workload.key: each for each in plan.admissions}
    for workload in waiting:
        key = workload.key
        if key in found.refused:
            continue
        given = admissions.get(key)
        if given is None:
            found.refused[key] = _why_not(workload, plan.waits.get(key))
        elif (made := _scale_up(snapshot, given)) is not None:
            found.wanted[key] = made
    return found


def _why_not_requested(workload: WorkloadView, elastic: Mapping[str, ElasticView]) -> str:
    """Why no nodes can be requested for the pending pods at all; empty if they can be."""
    pods = [pod for pod in workload.pods if pod.state == "gated"]
    if not all(map(_is_whole, pods)) or not any(pod.demand.wants_gpu for pod in pods):
        return _WHOLE_ONLY
    reads_pods = any(elastic[pool].reads_pods for pool in workload.pools if pool in elastic)
    is_lasting = any(not pod.is_controlled for pod in pods)
    return _OWNED_ONLY if reads_pods and is_lasting else ""


def _leave_out(snapshot: Snapshot, keys: Iterable[str]) -> None:
    """Drop the pending pods of these workloads, but not their placed pods."""
    workloads = dict(snapshot.workloads)
    for key in keys:
        workload = workloads.pop(key)
        if kept := tuple(pod for pod in workload.pods if pod.state != "gated"):
            workloads[key] = structs.replace(workload, pods=kept)
    snapshot.workloads = workloads


def _fill_up(snapshot: Snapshot, pool: str, view: ElasticView) -> None:
    """Add empty nodes up to the pool's maximum."""
    table = snapshot.nodes
    n_there = sum(of == pool and _is_counted(table, ix) for ix, of in enumerate(table.pool))
    devices = [
        Device(index=i, memory_mib=view.card_mib, model=view.card_model) for i in range(view.n_gpus)
    ]
    for number in range(view.max_nodes - n_there):
        name = f"{_NEW}{pool}/{number}"
        facts = NodeFacts(
            name=name,
            pool=pool,
            labels={**dict(view.labels), "kubernetes.io/hostname": name},
            free_cpu_milli=view.cpu_milli,
            free_memory_mib=view.memory_mib,
            cpu_milli=view.cpu_milli,
            memory_mib=view.memory_mib,
        )
        table.add_empty(facts, devices)


def _is_counted(table: NodeTable, ix: int) -> bool:
    """Whether the node counts as one that the pool has. A node that is not ready and whose GPUs are
    free is still starting, and does not."""
    cards = table.cards
    is_used = sum(cards.free_of(ix)) < cards.capacity_milli[ix]
    return cards.n_cards[ix] > 0 and (bool(table.is_ready[ix]) or is_used)


def _within_quota(queue: QueueView, elastic: Mapping[str, ElasticView]) -> QueueView:
    """The queue, limited to its quota in these pools."""
    pools = dict(queue.pools)
    for pool in elastic:
        figures = pools.get(pool, PoolQuota())
        gpu, cpu, memory = (_bound(each) for each in figures.figures)
        pools[pool] = replace(figures, gpu=gpu, cpu=cpu, memory=memory)
    return replace(queue, pools=pools)


def _bound(figures: Figures) -> Figures:
    return replace(figures, limit=min(figures.limit, figures.quota))


def _scale_up(snapshot: Snapshot, given: Admission) -> ScaleUp | None:
    """The new nodes that the admission needs in the first of the workload's pools where it needs
    any for GPUs; None if it needs none."""
    by_pool: dict[str, list[Placement]] = {}
    for each in given.placements:
        by_pool.setdefault(_pool_of(snapshot, each), []).append(each)
    for pool in given.workload.pools:
        here = by_pool.get(pool, [])
        new = frozenset(each.node for each in here if each.node.startswith(_NEW))
        if new and any(each.pod.demand.wants_gpu for each in here):
            pods = tuple(each.pod for each in here)
            starting = frozenset(each.pod.uid for each in given.placements)
            return ScaleUp(given.workload, pool, pods, new, starting)
    return None


def _pool_of(snapshot: Snapshot, placement: Placement) -> str:
    ix = snapshot.nodes.ix_of(placement.node)
    assert ix is not None
    return snapshot.nodes.pool[ix]


def _is_whole(pod: PodView) -> bool:
    """Whether the pod requests whole GPUs or none, so that an autoscaler can be asked."""
    demand = pod.demand
    return not demand.counted and not demand.gpu_memory_mib and demand.milli in (0, MILLI_PER_GPU)


def _why_not(workload: WorkloadView, refused: Refused | None) -> str:
    if refused is not None and refused.reason is Reason.OVER_LIMIT:
        return "only work within its project's and department's quota gets new nodes"
    detail = refused.detail.removeprefix(f"{workload.key}: ") if refused else ""
    return f"new nodes do not help: {detail or 'its turn has not come'}"
