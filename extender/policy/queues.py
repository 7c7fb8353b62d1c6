"""Departments and projects of one node pool, with what they hold and ask for, in milli-GPU.

`Queue` figures change while a cycle is simulated; whoever changes them goes through
`Simulation.charge`, so that a rollback restores them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.policy.plan import QueueShare
from extender.state.model import PodView, PoolQuota, QueueView, Snapshot, WorkloadView


@dataclass(slots=True, eq=False)
class Queue:
    """A department (`parent` None) or a project in one node pool.

    `allocated_milli` is what it holds or is promised, without pods that are leaving;
    `leaving_milli` is what those still hold; `held_milli` is what its reserved and bound rows hold,
    leaving or not, and `requested_milli` what it held and asked for when shares were divided. `np`
    stands for non-preemptible work, which is part of the whole. Reclaim lets a queue take up to
    `share_to_take_milli` and keep `share_to_keep_milli`; see `fairshare` for how they differ.
    """

    name: str
    parent: "Queue | None" = None
    created_at: int = 0
    figures: PoolQuota = field(default_factory=PoolQuota)
    reclaim_min_runtime_s: int = 0
    children: "list[Queue]" = field(default_factory=list)
    allocated_milli: int = 0
    allocated_np_milli: int = 0
    leaving_milli: int = 0
    leaving_np_milli: int = 0
    held_milli: int = 0
    held_np_milli: int = 0
    pending_milli: int = 0
    pending_np_milli: int = 0
    has_fractions: bool = False
    requested_milli: int = 0
    share_milli: int = 0
    share_to_take_milli: int = 0
    share_to_keep_milli: int = 0

    @property
    def age_key(self) -> tuple[int, str]:
        """Sorts the oldest first: the order that breaks every tie."""
        return self.created_at, self.name

    @property
    def chain(self) -> "tuple[Queue, ...]":
        """The queue and its department."""
        return (self,) if self.parent is None else (self, self.parent)

    @property
    def quota_milli(self) -> int:
        """What it may always have."""
        return self.figures.quota_milli

    @property
    def ceiling_milli(self) -> int:
        """The most it may hold: its limit, or more than there can be."""
        limit = self.figures.limit_milli
        return 1 << 62 if limit is None else limit

    def wanted_milli(self, is_leaving_counted: bool) -> int:
        """Demand that a fair share may answer: what could run, capped by the limits.

        Non-preemptible work beyond quota can't run, so it entitles to nothing; a department wants
        what its projects want. Pods that are leaving may or may not come back.
        """
        if self.children:
            wanted = sum(child.wanted_milli(is_leaving_counted) for child in self.children)
        else:
            wanted = self.allocated_milli + self.pending_milli
            np_milli = self.allocated_np_milli + self.pending_np_milli
            if is_leaving_counted:
                wanted += self.leaving_milli
                np_milli += self.leaving_np_milli
            may_run = max(min(np_milli, self.quota_milli), self.allocated_np_milli)
            wanted += may_run - np_milli
        return min(wanted, self.ceiling_milli)

    def as_share(self) -> QueueShare:
        """The figures to publish."""
        return QueueShare(
            quota_milli=self.quota_milli,
            limit_milli=self.figures.limit_milli,
            fair_share_milli=self.share_milli,
            allocated_milli=self.held_milli,
            allocated_non_preemptible_milli=self.held_np_milli,
            requested_milli=self.requested_milli,
        )


@dataclass(slots=True)
class PoolQueues:
    """The queues of one node pool, and the milli-GPU they share."""

    pool: str
    departments: dict[str, Queue] = field(default_factory=dict)
    projects: dict[str, Queue] = field(default_factory=dict)
    capacity_milli: int = 0
    smallest_card_mib: int = 0
    largest_card_mib: int = 0


def build_queues(snapshot: Snapshot) -> dict[str, PoolQueues]:
    """The queues of every node pool with what the snapshot's pods hold and ask for."""
    pools = {name: _empty_queues(snapshot, name) for name in sorted(snapshot.pools)}
    _count_capacity(snapshot, pools)
    for workload in snapshot.workloads.values():
        _count_workload(snapshot, pools, workload)
    return pools


def pod_milli(demand: Demand, card_mib: int) -> int:
    """Milli-GPU of a pod that has no cards yet; a request in MiB is measured on `card_mib`."""
    if demand.gpu_memory_mib == 0:
        return demand.devices * demand.milli
    return demand.devices * min(MILLI_PER_GPU, share_milli(demand.gpu_memory_mib, card_mib))


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


def _empty_queues(snapshot: Snapshot, pool: str) -> PoolQueues:
    """The tree without usage. A department that doesn't exist has the quotas of its projects."""
    queues = PoolQueues(pool)
    for view in sorted(snapshot.departments.values(), key=lambda view: view.name):
        queues.departments[view.name] = _queue(view, pool)
    absent: dict[str, list[QueueView]] = {}
    for view in sorted(snapshot.projects.values(), key=lambda view: view.name):
        if view.parent not in snapshot.departments:
            absent.setdefault(view.parent, []).append(view)
    for name, views in absent.items():
        quota = sum(view.pools.get(pool, PoolQuota()).quota_milli for view in views)
        oldest = min(view.created_at for view in views)
        queues.departments[name] = Queue(name, None, oldest, PoolQuota(quota_milli=quota))
    for view in sorted(snapshot.projects.values(), key=lambda view: (view.created_at, view.name)):
        queue = _queue(view, pool)
        queue.parent = queues.departments[view.parent]
        queue.parent.children.append(queue)
        queues.projects[view.name] = queue
    return queues


def _queue(view: QueueView, pool: str) -> Queue:
    return Queue(
        name=view.name,
        created_at=view.created_at,
        figures=view.pools.get(pool, PoolQuota()),
        reclaim_min_runtime_s=view.reclaim_min_runtime_s,
    )


def _count_capacity(snapshot: Snapshot, pools: dict[str, PoolQueues]) -> None:
    nodes = snapshot.nodes
    for ix in range(len(nodes)):
        queues = pools.get(nodes.pool[ix])
        if queues is None or not nodes.is_ready[ix]:
            continue
        queues.capacity_milli += nodes.cards.capacity_milli[ix]
        if mib := nodes.cards.card_mib[ix]:
            queues.largest_card_mib = max(queues.largest_card_mib, mib)
            queues.smallest_card_mib = min(queues.smallest_card_mib or mib, mib)


def _count_workload(
    snapshot: Snapshot, pools: dict[str, PoolQueues], workload: WorkloadView
) -> None:
    is_np = not workload.is_preemptible
    for pod in workload.pods:
        if pod.state not in _WAITING:
            _count_held(snapshot, pools, workload, pod)
    if workload.problem is not None:
        return
    waiting = startable(workload)
    for pool in dict.fromkeys(workload.pools):
        queues = pools.get(pool)
        project = queues.projects.get(workload.project) if queues else None
        if queues is None or project is None:
            continue
        for pod in waiting:
            milli = pod_milli(pod.demand, queues.smallest_card_mib)
            if milli % MILLI_PER_GPU:
                project.has_fractions = True
                _department(project).has_fractions = True
            for queue in project.chain:
                queue.pending_milli += milli
                if is_np:
                    queue.pending_np_milli += milli


def _count_held(
    snapshot: Snapshot, pools: dict[str, PoolQueues], workload: WorkloadView, pod: PodView
) -> None:
    queues = pools.get(held_pool(snapshot, pod))
    if queues is None:
        return
    milli = pod.held_milli if pod.cards else pod_milli(pod.demand, queues.smallest_card_mib)
    project = queues.projects.get(workload.project)
    if project is None:
        # Work outside every queue is not shared: the others divide what it leaves.
        queues.capacity_milli = max(0, queues.capacity_milli - milli)
        return
    np_milli = 0 if workload.is_preemptible else milli
    is_fraction = milli % MILLI_PER_GPU != 0
    for queue in project.chain:
        queue.has_fractions = queue.has_fractions or is_fraction
        if pod.is_terminating:
            queue.leaving_milli += milli
            queue.leaving_np_milli += np_milli
        else:
            queue.allocated_milli += milli
            queue.allocated_np_milli += np_milli
        if pod.state != "nominated":
            queue.held_milli += milli
            queue.held_np_milli += np_milli


def _department(project: Queue) -> Queue:
    assert project.parent is not None
    return project.parent
