"""The queue tree of one node pool, with what every queue holds and asks for.

Amounts are GPUs in milli, CPU in milli, memory in MiB, always in this order. The figures of a
`Queue` change while a cycle is simulated; whoever changes them goes through `Simulation.charge`, so
that a rollback restores them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.policy.plan import QueueShare
from extender.state.model import (
    CPU,
    GPU,
    MEMORY,
    NOTHING,
    UNLIMITED,
    Amounts,
    Figures,
    PodView,
    PoolQuota,
    QueueView,
    Snapshot,
    WorkloadView,
)

RESOURCES = (GPU, CPU, MEMORY)


def _nothing() -> list[int]:
    return [0, 0, 0]


@dataclass(slots=True, eq=False)
class Queue:
    """A queue in one node pool: a department, a project, or any level between or below.

    `allocated` is what it holds or is promised, without pods that are leaving; `leaving` is what
    those still hold; `held` is what its reserved and bound rows hold, leaving or not, and
    `requested` what it held and asked for when shares were divided. `np` stands for non-preemptible
    work, which is part of the whole. Reclaim lets a queue take up to `share_to_take` and keep
    `share_to_keep`; see `fairshare` for how they differ. `chain` is the queue and what is above it.
    """

    name: str
    parent: "Queue | None" = None
    created_at: int = 0
    figures: PoolQuota = field(default_factory=PoolQuota)
    reclaim_min_runtime_s: int = 0
    preempt_min_runtime_s: int = 0
    children: "list[Queue]" = field(default_factory=list)
    chain: "tuple[Queue, ...]" = field(init=False)
    quota: Amounts = field(init=False)
    limit: Amounts = field(init=False)
    allocated: list[int] = field(default_factory=_nothing)
    allocated_np: list[int] = field(default_factory=_nothing)
    leaving: list[int] = field(default_factory=_nothing)
    leaving_np: list[int] = field(default_factory=_nothing)
    held: list[int] = field(default_factory=_nothing)
    held_np: list[int] = field(default_factory=_nothing)
    pending: list[int] = field(default_factory=_nothing)
    pending_np: list[int] = field(default_factory=_nothing)
    has_fractions: bool = False
    requested: Amounts = NOTHING
    share: list[int] = field(default_factory=_nothing)
    share_to_take: Amounts = NOTHING
    share_to_keep: Amounts = NOTHING

    def __post_init__(self) -> None:
        self.chain = (self,) if self.parent is None else (self, *self.parent.chain)
        gpu, cpu, memory = self.figures.figures
        self.quota = gpu.quota, cpu.quota, memory.quota
        self.limit = gpu.limit, cpu.limit, memory.limit
        if self.parent is not None:
            self.parent.children.append(self)

    @property
    def age_key(self) -> tuple[int, str]:
        """Sorts the oldest first: the order that breaks every tie."""
        return self.created_at, self.name

    def wanted(self, resource: int, is_leaving_counted: bool) -> int:
        """Demand that a fair share may answer: what could run, capped by the limits.

        Non-preemptible work beyond quota can't run, so it entitles to nothing; a queue wants what
        the queues below it want. Pods that are leaving may or may not come back.
        """
        if self.children:
            wanted = sum(child.wanted(resource, is_leaving_counted) for child in self.children)
        else:
            wanted = self.allocated[resource] + self.pending[resource]
            np_wanted = self.allocated_np[resource] + self.pending_np[resource]
            if is_leaving_counted:
                wanted += self.leaving[resource]
                np_wanted += self.leaving_np[resource]
            may_run = max(min(np_wanted, self.quota[resource]), self.allocated_np[resource])
            wanted += may_run - np_wanted
        return min(wanted, self.limit[resource])

    def as_share(self) -> QueueShare:
        """The figures to publish."""
        return QueueShare(
            quota=self.quota,
            limit=self.limit,
            fair_share=frozen(self.share),
            allocated=frozen(self.held),
            allocated_non_preemptible=frozen(self.held_np),
            requested=self.requested,
        )


@dataclass(slots=True)
class PoolQueues:
    """The queues of one node pool by name, its roots in order of age, and what they share."""

    pool: str
    by_name: dict[str, Queue] = field(default_factory=dict)
    roots: list[Queue] = field(default_factory=list)
    capacity: list[int] = field(default_factory=_nothing)
    smallest_card_mib: int = 0
    largest_card_mib: int = 0

    def leaf_of(self, workload: WorkloadView) -> Queue | None:
        """The queue that the workload's pods are charged to; None when its project is unknown."""
        return self.by_name.get(workload.project)


def build_queues(snapshot: Snapshot) -> dict[str, PoolQueues]:
    """The queues of every node pool with what the snapshot's pods hold and ask for."""
    pools = {name: _empty_queues(snapshot, name) for name in sorted(snapshot.pools)}
    _count_capacity(snapshot, pools)
    for workload in snapshot.workloads.values():
        _count_workload(snapshot, pools, workload)
    return pools


def pod_amounts(demand: Demand, card_mib: int) -> Amounts:
    """What a pod without cards will be charged; a request in MiB is measured on `card_mib`."""
    if demand.gpu_memory_mib == 0:
        milli = demand.devices * demand.milli
    else:
        milli = demand.devices * min(MILLI_PER_GPU, share_milli(demand.gpu_memory_mib, card_mib))
    if demand.counted:
        milli += demand.counted_milli
    return milli, demand.cpu_milli, demand.memory_mib


def held_amounts(pod: PodView, card_mib: int) -> Amounts:
    """What a pod is charged that has a place; without cards by its row, as if it had none yet."""
    if not pod.cards:
        return pod_amounts(pod.demand, card_mib)
    demand = pod.demand
    return pod.held_milli + demand.counted_milli, demand.cpu_milli, demand.memory_mib


def sum_amounts(many: Iterable[Amounts]) -> Amounts:
    """The sum, resource by resource."""
    gpu = cpu = memory = 0
    for amounts in many:
        gpu += amounts[0]
        cpu += amounts[1]
        memory += amounts[2]
    return gpu, cpu, memory


def held_pool(snapshot: Snapshot, pod: PodView) -> str:
    """The node pool of the node that the pod holds; empty when it holds none that is known."""
    ix = snapshot.nodes.ix_of(pod.node) if pod.node else None
    return "" if ix is None else snapshot.nodes.pool[ix]


def startable(workload: WorkloadView) -> Iterable[PodView]:
    """The pods that could start if they had a place, no more than may run at once."""
    waiting = [
        pod
        for pod in workload.pods
        if pod.state in _WAITING and not pod.is_terminating and not pod.other_gates
    ]
    if workload.max_concurrent_pods is None:
        return waiting
    n_live = sum(p.state not in _WAITING and not p.is_terminating for p in workload.pods)
    waiting.sort(key=lambda pod: (pod.created_at, pod.key))
    return waiting[: max(0, workload.max_concurrent_pods - n_live)]


_WAITING = ("gated", "foreign")


def frozen(amounts: list[int]) -> Amounts:
    """The amounts as they are now."""
    return amounts[0], amounts[1], amounts[2]


def _empty_queues(snapshot: Snapshot, pool: str) -> PoolQueues:
    """The tree without usage. A queue whose parent doesn't exist has one with its quotas."""
    queues = PoolQueues(pool)
    absent: dict[str, list[QueueView]] = {}
    for view in snapshot.queues.values():
        if view.parent and view.parent not in snapshot.queues:
            absent.setdefault(view.parent, []).append(view)
    for name in sorted(absent):
        queues.by_name[name] = _stand_in(name, absent[name], pool)
    below: dict[str, list[QueueView]] = {}
    for view in sorted(snapshot.queues.values(), key=lambda view: (view.created_at, view.name)):
        below.setdefault(view.parent, []).append(view)
    ready = [*below.get("", ()), *(v for name in sorted(absent) for v in below[name])]
    # Queues are made parents first; views that are their own ancestors are never reached.
    while ready:
        view = ready.pop(0)
        queues.by_name[view.name] = Queue(
            name=view.name,
            parent=queues.by_name.get(view.parent),
            created_at=view.created_at,
            figures=view.pools.get(pool, PoolQuota()),
            reclaim_min_runtime_s=view.reclaim_min_runtime_s,
            preempt_min_runtime_s=view.preempt_min_runtime_s,
        )
        ready.extend(below.get(view.name, ()))
    queues.roots = [queue for queue in queues.by_name.values() if queue.parent is None]
    queues.roots.sort(key=lambda queue: queue.age_key)
    return queues


def _stand_in(name: str, views: list[QueueView], pool: str) -> Queue:
    """A queue that doesn't exist: its quota is what those below it have."""
    quota = sum_amounts(
        tuple(f.quota for f in view.pools.get(pool, PoolQuota()).figures)  # type: ignore[misc]
        for view in views
    )
    gpu, cpu, memory = (
        Figures(min(UNLIMITED, amount), weight=min(UNLIMITED, amount) or 1) for amount in quota
    )
    oldest = min(view.created_at for view in views)
    return Queue(name, None, oldest, PoolQuota(gpu, cpu, memory))


def _count_capacity(snapshot: Snapshot, pools: dict[str, PoolQueues]) -> None:
    nodes = snapshot.nodes
    for ix in range(len(nodes)):
        queues = pools.get(nodes.pool[ix])
        if queues is None or not nodes.is_ready[ix]:
            continue
        queues.capacity[GPU] += nodes.cards.capacity_milli[ix]
        queues.capacity[CPU] += nodes.cpu_milli[ix]
        queues.capacity[MEMORY] += nodes.memory_mib[ix]
        if mib := nodes.cards.card_mib[ix]:
            queues.largest_card_mib = max(queues.largest_card_mib, mib)
            queues.smallest_card_mib = min(queues.smallest_card_mib or mib, mib)


def _count_workload(
    snapshot: Snapshot, pools: dict[str, PoolQueues], workload: WorkloadView
) -> None:
    for pod in workload.pods:
        if pod.state not in _WAITING:
            _count_held(snapshot, pools, workload, pod)
    if workload.problem is not None:
        return
    waiting = startable(workload)
    for pool in dict.fromkeys(workload.pools):
        queues = pools.get(pool)
        leaf = queues.leaf_of(workload) if queues else None
        if queues is None or leaf is None:
            continue
        for pod in waiting:
            amounts = pod_amounts(pod.demand, queues.smallest_card_mib)
            is_fraction = amounts[GPU] % MILLI_PER_GPU != 0
            for queue in leaf.chain:
                queue.has_fractions = queue.has_fractions or is_fraction
                add(queue.pending, amounts)
                if not workload.is_preemptible:
                    add(queue.pending_np, amounts)


def _count_held(
    snapshot: Snapshot, pools: dict[str, PoolQueues], workload: WorkloadView, pod: PodView
) -> None:
    queues = pools.get(held_pool(snapshot, pod))
    if queues is None:
        return
    amounts = held_amounts(pod, queues.smallest_card_mib)
    leaf = queues.leaf_of(workload)
    if leaf is None:
        # Work outside every queue is not shared: the others divide what it leaves.
        for resource in RESOURCES:
            queues.capacity[resource] = max(0, queues.capacity[resource] - amounts[resource])
        return
    np_amounts = NOTHING if workload.is_preemptible else amounts
    is_fraction = amounts[GPU] % MILLI_PER_GPU != 0
    for queue in leaf.chain:
        queue.has_fractions = queue.has_fractions or is_fraction
        if pod.is_terminating:
            add(queue.leaving, amounts)
            add(queue.leaving_np, np_amounts)
        else:
            add(queue.allocated, amounts)
            add(queue.allocated_np, np_amounts)
        if pod.state != "nominated":
            add(queue.held, amounts)
            add(queue.held_np, np_amounts)


def add(to: list[int], amounts: Amounts) -> None:
    """Add in place, resource by resource."""
    to[0] += amounts[0]
    to[1] += amounts[1]
    to[2] += amounts[2]


def subtract(of: list[int], amounts: Amounts) -> None:
    """Subtract in place, resource by resource."""
    of[0] -= amounts[0]
    of[1] -= amounts[1]
    of[2] -= amounts[2]
