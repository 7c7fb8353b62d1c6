"""Which waiting workloads an elastic node pool should get new nodes for, and how many nodes.

A what-if on the rules that decide everything else: every elastic pool is filled up with empty nodes
to its maximum, no queue may use more of it than its quota, and one round of `allocate` decides. A
workload that waits and gets its places so, some of them on new nodes, is entitled to a scale-up.
Pure. Costs one decision without evictions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import Struct

from extender.api.kinds import Device
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU
from extender.policy.decide import decide
from extender.policy.plan import Admission, Plan, Settings
from extender.state.model import ElasticView, PodView, PoolQuota, QueueView, WorkloadView
from extender.state.nodes import NodeFacts
from extender.state.snapshot import Snapshot

#: A new node has this before its name: no Node can be called so.
_NEW: Final = "new/"


class ScaleUp(Struct, frozen=True):
    """`nodes`, not there yet, of `pool` on which the workload would run: workloads may share one.
    `pods` are all that it would start, on nodes that are there as well."""

    workload: WorkloadView
    pool: str
    pods: tuple[PodView, ...]
    nodes: frozenset[str]

    @property
    def n_nodes(self) -> int:
        """How many nodes it lacks."""
        return len(self.nodes)


@dataclass(slots=True)
class ScaleUps:
    """By workload key: what to ask an autoscaler for, and why other work gets no nodes."""

    wanted: dict[str, ScaleUp] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def left_waiting(plan: Plan) -> list[str]:
    """Keys of the workloads that the plan gives no place, neither now nor when others have left."""
    given = {each.workload.key for each in plan.admissions}
    return [
        key
        for key, refused in plan.waits.items()
        if key not in given and refused.reason is not Reason.WAITING_FOR_VICTIMS
    ]


def scale_ups(snapshot: Snapshot, keys: Iterable[str]) -> ScaleUps:
    """What these workloads, which wait, need of new nodes; the snapshot's node table is used up by
    the simulation."""
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
    for name, view in elastic.items():
        _fill_up(snapshot, name, view)
    snapshot.queues = {
        name: _within_quota(queue, elastic) for name, queue in snapshot.queues.items()
    }
    snapshot.tally = None
    plan = decide(snapshot, Settings(stages=("allocate",)))
    admissions = {each.workload.key: each for each in plan.admissions}
    for workload in waiting:
        given = admissions.get(workload.key)
        if given is None:
            found.refused[workload.key] = _why_not(workload, plan.waits.get(workload.key))
        elif not all(_is_whole(each.pod) for each in given.placements):
            found.refused[workload.key] = "nodes are added for whole GPUs only"
        elif (made := _scale_up(given)) is not None:
            found.wanted[workload.key] = made
    return found


def _fill_up(snapshot: Snapshot, pool: str, view: ElasticView) -> None:
    """Add the nodes that the pool lacks to its maximum. A node that is not ready is still to come,
    so it counts as one of them."""
    table = snapshot.nodes
    n_ready = sum(
        bool(table.is_ready[ix]) and table.cards.capacity_milli[ix] > 0
        for ix, of in enumerate(table.pool)
        if of == pool
    )
    devices = [
        Device(index=i, memory_mib=view.card_mib, model=view.card_model) for i in range(view.n_gpus)
    ]
    for number in range(view.max_nodes - n_ready):
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


def _within_quota(queue: QueueView, elastic: Mapping[str, ElasticView]) -> QueueView:
    """The queue, which may borrow nothing in these pools."""
    pools = dict(queue.pools)
    for pool in elastic:
        figures = pools.get(pool, PoolQuota())
        gpu = replace(figures.gpu, limit=min(figures.gpu.limit, figures.gpu.quota))
        pools[pool] = replace(figures, gpu=gpu)
    return replace(queue, pools=pools)


def _scale_up(given: Admission) -> ScaleUp | None:
    """What the admission needs of new nodes; None: none."""
    new = frozenset(each.node for each in given.placements if each.node.startswith(_NEW))
    if not new:
        return None
    pool = min(new).split("/")[1]
    pods = tuple(each.pod for each in given.placements)
    return ScaleUp(given.workload, pool, pods, new)


def _is_whole(pod: PodView) -> bool:
    """Whether an autoscaler can be told what the pod asks for."""
    demand = pod.demand
    return not demand.counted and not demand.gpu_memory_mib and demand.milli in (0, MILLI_PER_GPU)


def _why_not(workload: WorkloadView, refused: Refused | None) -> str:
    if refused is not None and refused.reason is Reason.OVER_LIMIT:
        return "only work within its project's and department's quota gets new nodes"
    told = refused.detail.removeprefix(f"{workload.key}: ") if refused else ""
    return f"new nodes do not help: {told or 'its turn has not come'}"
