"""The demand of the queues of a `demand-weighted` pool, read from its running and waiting pods."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import gcd

from extender.api.units import MILLI_PER_GPU
from extender.policy.preemption.candidate_table import in_eviction_order
from extender.policy.queues.fairshare import children_first
from extender.policy.queues.queue import Queue
from extender.policy.queues.tree import PoolQueues, held_pool
from extender.policy.session import Session
from extender.policy.workloads.gangs import (
    are_independent,
    has_groups,
    is_satisfied,
    least_pods,
    live_pods,
    unit_of,
)
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU, UNLIMITED, PodView, WorkloadView
from extender.state.tally import pod_amounts


@dataclass(slots=True)
class QueueDemand:
    """The demand of a queue, in milli-GPU.

    - `total`: running pods, and waiting pods that could ever be placed, up to the limit; `wanted`:
      the same without the budget.
    - `fixed`: the part that cannot be evicted, which is served first.
    - `least`: the request of the smallest task.

    For a workload: `on_cordoned` is its allocation on nodes that take no new pods; `started_at` the
    start of its first pod, 0 if none has started; `tasks` the sizes of the units that it starts or
    keeps together, in that order.
    """

    total: int = 0
    wanted: int = 0
    fixed: int = 0
    least: int = 0
    on_cordoned: int = 0
    started_at: int = 0
    priority: int = 0
    tasks: list[int] = field(default_factory=list)

    def usable(self, share: int) -> int:
        """How much of the share a workload can use; tasks larger than what remains are skipped."""
        used = 0
        for size in self.tasks:
            if used + size <= share:
                used += size
        at_least = self.least if self.least <= share else 0
        return max(used, at_least, min(self.fixed, share))

    def order(self, queue: Queue) -> tuple[int, int, int, int, str]:
        """Sort key for serving lower bounds.

        Workloads: running ones first by run time, then by priority, then by age. Other queues: by
        smallest task, then by age.
        """
        if not queue.is_workload:
            return 0, self.least, 0, *queue.age_key
        return int(self.started_at == 0), self.started_at, -self.priority, *queue.age_key


Demands = Mapping[Queue, QueueDemand]


def read_demands(session: Session, queues: PoolQueues) -> Demands:
    """The demands of all queues of the pool, children first. Costs one pass over all pods."""
    demanding = chain(session.backlog.pending, session.backlog.left_out)
    waiting = {p.workload.key: p for p in demanding if queues.pool in p.pools}
    reader = _DemandReader(session, queues)
    by_age = sorted(queues.by_workload.items(), key=lambda item: item[1].age_key)
    for key, _ in by_age:
        reader.add_held(session.snapshot.workloads[key])
        if (pending := waiting.get(key)) is not None:
            reader.add_waiting(pending)
    _sum_up(reader.demands)
    return reader.demands


def surplus_key(pod: PodView) -> tuple[int, int]:
    """Sort key for evicting surplus of one workload: the lowest order first, then the least run
    time. Pods that it does not tell apart have to be in eviction order already."""
    return pod.order, -pod.started_at


@dataclass(slots=True)
class _DemandReader:
    """Adds the demand of one workload after the other.

    `np_milli` is the non-preemptible demand of each queue that is counted so far, in milli-GPU.
    """

    session: Session
    queues: PoolQueues
    demands: dict[Queue, QueueDemand] = field(init=False)
    np_milli: dict[Queue, int] = field(init=False)

    def __post_init__(self) -> None:
        self.demands = {queue: QueueDemand() for queue in children_first(self.queues.roots)}
        self.np_milli = {queue: queue.allocated_np[GPU] for queue in self.demands}
        if self.queues.has_unequal_cards:
            # A request in MiB is a different part of each card, so granules follow the requests.
            for queue in self.demands:
                queue.granule = MILLI_PER_GPU

    def add_held(self, workload: WorkloadView) -> None:
        """Add the workload's allocation in the pool."""
        demand = self.demands[self.queues.by_workload[workload.key]]
        demand.priority = workload.priority
        live, here = self._held_here(workload)
        if not here:
            return
        # The last of these are evicted first.
        here = sorted(in_eviction_order(here), key=surplus_key)[::-1]
        sizes = sorted(self._size(pod) for pod in here)
        demand.total = sum(sizes)
        if has_groups(workload):
            minimum = _minimum_of(workload, live, here)
            demand.least = sum(self._size(pod) for pod in minimum)
            rest = [self._size(pod) for pod in _without(here, minimum)]
            demand.tasks = [demand.least, *rest]
        else:
            n_least = max(1, least_pods(workload) - len(live) + len(here))
            demand.least = sum(sizes[:n_least])
            kept_first = [self._size(pod) for pod in here]
            demand.tasks = [sum(kept_first[:n_least]), *kept_first[n_least:]]
        nodes = self.session.snapshot.nodes
        demand.on_cordoned = sum(
            self._size(pod) for pod in here if pod.node and not nodes.takes_pods(pod.node)
        )
        if not workload.is_preemptible:
            demand.fixed = demand.total
        elif are_independent(workload):
            demand.fixed = demand.on_cordoned
        elif len(live) > len(here) and not is_satisfied(workload, _without(live, here)):
            # The minimum also includes pods in other pools, so these are not evicted alone.
            demand.fixed = demand.least
        demand.started_at = min(pod.started_at or self.session.snapshot.now_s for pod in here)
        self._refine_granules(workload, here)

    def add_waiting(self, pending: Pending) -> None:
        """Add the waiting pods of a workload, if they could ever be placed in the pool.

        Non-preemptible workloads count up to the stated quotas, the oldest first; without a quota
        they count as any other.
        """
        bound, pool = self.session.capacity_bound, self.queues.pool
        if not bound.allows(pending, pool):
            return
        pods = [pod for pod in pending.waiting if bound.allows_each((pod,), pool)]
        total = sum(self._size(pod) for pod in pods)
        first = sum(self._size(pod) for pod in pending.chunk)
        others = (sum(self._size(pod) for pod in chunk) for chunk in pending.other_chunks())
        least = min(chain((first,), others))
        leaf = self.queues.by_workload[pending.workload.key]
        demand = self.demands[leaf]
        bounds = [(q, q.np_quota[GPU]) for q in leaf.chain if q.np_quota[GPU] < UNLIMITED]
        if not pending.workload.is_preemptible and bounds:
            total = min(total, *(quota - self.np_milli[queue] for queue, quota in bounds))
            if total < least:
                return
            for queue, _ in bounds:
                self.np_milli[queue] += total
            demand.fixed += total
        demand.total += total
        demand.least = demand.least or least
        chunk = {pod.uid for pod in pending.chunk}
        demand.tasks += [first, *(self._size(pod) for pod in pods if pod.uid not in chunk)]
        self._refine_granules(pending.workload, pods)

    def _held_here(self, workload: WorkloadView) -> tuple[list[PodView], list[PodView]]:
        """The workload's placed pods, with those of this cycle; and those of them in the pool."""
        session, pool = self.session, self.queues.pool
        nodes = session.snapshot.nodes
        live = live_pods(workload)
        here = [pod for pod in live if held_pool(session.snapshot, pod) == pool]
        new = [p for p in session.draft.placed_of(workload.key) if not p.pod.node]
        live += [p.pod for p in new]
        here += [p.pod for p in new if nodes.pool[nodes.cards.ix[p.node]] == pool]
        return live, here

    def _refine_granules(self, workload: WorkloadView, pods: Iterable[PodView]) -> None:
        """If cards differ, reduce the granules of the workload's queues to its pods' requests."""
        if self.queues.has_unequal_cards:
            granule = gcd(MILLI_PER_GPU, *{self._size(pod) for pod in pods})
            for queue in self.queues.by_workload[workload.key].chain:
                queue.granule = gcd(queue.granule, granule)

    def _size(self, pod: PodView) -> int:
        """The demand of the pod in milli-GPU, the same for pending and running pods on any card."""
        return pod_amounts(pod.demand, self.queues.smallest_card_mib)[GPU]


def _sum_up(demands: Demands) -> None:
    """Sum up the demands of workloads for their ancestors; `demands` lists children first."""
    for queue, demand in demands.items():
        if not queue.children:
            demand.wanted = demand.total
            continue
        below = [demands[child] for child in queue.children if demands[child].total]
        demand.total = min(sum(each.total for each in below), queue.limit[GPU])
        demand.wanted = min(sum(each.wanted for each in below), queue.figures.gpu.limit)
        demand.fixed = min(sum(each.fixed for each in below), demand.total)
        demand.least = min((each.least for each in below), default=0)


def _minimum_of(
    workload: WorkloadView, live: Sequence[PodView], here: Sequence[PodView]
) -> Sequence[PodView]:
    """The pods of `here` that remain once all surplus is evicted, and must be evicted together."""
    while True:
        unit = _next_unit(workload, live, here)
        rest = _without(here, unit)
        if not rest or len(rest) + len(unit) > len(here):
            return here
        live, here = _without(live, unit), rest


def _next_unit(
    workload: WorkloadView, live: Collection[PodView], here: Iterable[PodView]
) -> Collection[PodView]:
    """The smallest eviction unit of any of the pods; ties go to the first pod.

    One pod per group is enough, since the pods of a group have units of the same size.
    """
    by_group: dict[str, PodView] = {}
    for pod in here:
        by_group.setdefault(pod.group, pod)
    return min((unit_of(workload, live, pod) for pod in by_group.values()), key=len)


def _without(pods: Iterable[PodView], gone: Iterable[PodView]) -> list[PodView]:
    uids = {pod.uid for pod in gone}
    return [pod for pod in pods if pod.uid not in uids]
