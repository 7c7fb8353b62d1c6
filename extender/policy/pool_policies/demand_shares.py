"""The division of GPUs in policy `demand-weighted`; `demand_weighted` states its rules.

Every queue gets a share in proportion to its demand times its weight, between two bounds. The lower
bound is its non-preemptible demand and its smallest task, the upper bound its demand. If not all
lower bounds fit, queues are served by `_QueueDemand.order`; the remaining ones get only their
non-preemptible part. A used budget lowers only the upper bound, so weights stay as without a
budget.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import gcd
from typing import Final

from extender.api.units import MILLI_PER_GPU
from extender.kernels import shares
from extender.policy.preemption.candidate_table import in_eviction_order
from extender.policy.queues.fairshare import children_first, fit_weights, granules
from extender.policy.queues.queue import Queue
from extender.policy.queues.tree import PoolQueues, held_pool, pod_amounts
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

#: How often the division among queues is repeated because some of them cannot use their shares.
_MOST_ROUNDS: Final = 8


@dataclass(slots=True)
class _QueueDemand:
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


_Demands = Mapping[Queue, _QueueDemand]


def divide_by_demand(session: Session, queues: PoolQueues) -> None:
    """Set the GPU share of every queue of the pool. Costs one pass over all pods."""
    demands = _read_demands(session, queues)
    on_cordoned = sum(demands[leaf].on_cordoned for leaf in queues.by_workload.values())
    _divide(queues.roots, queues.capacity[GPU] + on_cordoned, demands)


def _read_demands(session: Session, queues: PoolQueues) -> dict[Queue, _QueueDemand]:
    """The demands of all queues of the pool."""
    pool = queues.pool
    demanding = chain(session.pending, session.left_out)
    waiting = {p.workload.key: p for p in demanding if pool in p.pools}
    demands = {queue: _QueueDemand() for queue in children_first(queues.roots)}
    if queues.has_unequal_cards:
        # A request in MiB is a different part of each card, so granules follow the requests.
        for queue in demands:
            queue.granule = MILLI_PER_GPU
    n_fixed = {queue: queue.allocated_np[GPU] for queue in demands}
    by_age = sorted(queues.by_workload.items(), key=lambda item: item[1].age_key)
    for key, leaf in by_age:
        workload, demand = session.snapshot.workloads[key], demands[leaf]
        demand.priority = workload.priority
        _add_held(session, queues, workload, demand)
        if (pending := waiting.get(key)) is not None:
            _add_waiting(session, queues, pending, (demand, n_fixed))
    _sum_up(demands)
    return demands


def surplus_key(pod: PodView) -> tuple[int, int]:
    """Sort key for evicting surplus of one workload: the lowest order first, then the least run
    time. Pods that it does not tell apart have to be in eviction order already."""
    return pod.order, -pod.started_at


def _add_held(
    session: Session, queues: PoolQueues, workload: WorkloadView, demand: _QueueDemand
) -> None:
    """Add the workload's allocation in the pool."""
    live, here = _held_here(session, queues.pool, workload)
    if not here:
        return
    # The last of these are evicted first.
    here = sorted(in_eviction_order(here), key=surplus_key)[::-1]
    sizes = sorted(_size(queues, pod) for pod in here)
    demand.total = sum(sizes)
    if has_groups(workload):
        minimum = _minimum_of(workload, live, here)
        demand.least = sum(_size(queues, pod) for pod in minimum)
        rest = [_size(queues, pod) for pod in _without(here, minimum)]
        demand.tasks = [demand.least, *rest]
    else:
        n_least = max(1, least_pods(workload) - len(live) + len(here))
        demand.least = sum(sizes[:n_least])
        kept_first = [_size(queues, pod) for pod in here]
        demand.tasks = [sum(kept_first[:n_least]), *kept_first[n_least:]]
    nodes = session.snapshot.nodes
    demand.on_cordoned = sum(
        _size(queues, pod) for pod in here if pod.node and not nodes.takes_pods(pod.node)
    )
    if not workload.is_preemptible:
        demand.fixed = demand.total
    elif are_independent(workload):
        demand.fixed = demand.on_cordoned
    elif len(live) > len(here) and not is_satisfied(workload, _without(live, here)):
        # The minimum also includes pods in other pools, so these are not evicted alone.
        demand.fixed = demand.least
    demand.started_at = min(pod.started_at or session.snapshot.now_s for pod in here)
    _refine_granules(queues, workload, here)


def _add_waiting(
    session: Session,
    queues: PoolQueues,
    pending: Pending,
    to: tuple[_QueueDemand, dict[Queue, int]],
) -> None:
    """Add the waiting pods of a workload, if they could ever be placed in the pool.

    Non-preemptible workloads count up to the stated quotas, the oldest first; without a quota they
    count as any other.
    """
    demand, n_fixed = to
    bound, pool = session.capacity_bound, queues.pool
    if not bound.allows(pending, pool):
        return
    pods = [pod for pod in pending.waiting if bound.allows_each((pod,), pool)]
    total = sum(_size(queues, pod) for pod in pods)
    first = sum(_size(queues, pod) for pod in pending.chunk)
    others = (sum(_size(queues, pod) for pod in chunk) for chunk in pending.other_chunks())
    least = min(chain((first,), others))
    leaf = queues.by_workload[pending.workload.key]
    bounds = [(q, q.np_quota[GPU]) for q in leaf.chain if q.np_quota[GPU] < UNLIMITED]
    if not pending.workload.is_preemptible and bounds:
        total = min(total, *(quota - n_fixed[queue] for queue, quota in bounds))
        if total < least:
            return
        for queue, _ in bounds:
            n_fixed[queue] += total
        demand.fixed += total
    demand.total += total
    demand.least = demand.least or least
    chunk = {pod.uid for pod in pending.chunk}
    demand.tasks += [first, *(_size(queues, pod) for pod in pods if pod.uid not in chunk)]
    _refine_granules(queues, pending.workload, pods)


def _sum_up(demands: _Demands) -> None:
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


def _divide(queues: Sequence[Queue], capacity: int, demands: _Demands) -> int:
    """Divide among sibling queues, and each share among the queue's children; returns what they can
    use.

    What one queue cannot use goes to the others. What remains of several shares then goes to queues
    that can use it in one piece.
    """
    queues = sorted(queues, key=lambda queue: queue.age_key)
    most = [demands[queue].total for queue in queues]
    used: list[int] = []
    for _ in range(_MOST_ROUNDS):
        _share_level(queues, capacity, most, demands)
        used = [_divide_share(queue, queue.share[GPU], demands) for queue in queues]
        given = [queue.share[GPU] for queue in queues]
        is_left = any(n < share for n, share in zip(used, given, strict=True))
        could_use = any(n == share < top for n, share, top in zip(used, given, most, strict=True))
        if not is_left or not could_use:
            # Another round could only lower the shares.
            break
        most = [
            min(top, n) if n < share else top
            for n, share, top in zip(used, given, most, strict=True)
        ]
    _lend_unused(queues, capacity, used, demands)
    return sum(used)


def _divide_share(queue: Queue, share: int, demands: _Demands) -> int:
    """How much of `share` the queue can use; also divides it among the queue's children."""
    if queue.children:
        return _divide(queue.children, share, demands)
    return demands[queue].usable(share)


def _lend_unused(
    queues: Sequence[Queue], capacity: int, used: list[int], demands: _Demands
) -> None:
    """Let queues use the unused part of all shares, and update `used`.

    Queues that already hold more than they can use of their share come first, then the older ones.
    """
    left = capacity - sum(used)
    for i in sorted(range(len(queues)), key=lambda i: queues[i].allocated[GPU] <= used[i]):
        queue, demand = queues[i], demands[queues[i]]
        share, most = queue.share[GPU], min(demand.total, used[i] + left)
        if most <= share or most < demand.least or not queue.figures.gpu.weight:
            continue
        n = _divide_share(queue, most, demands)
        if n > used[i]:
            left -= n - used[i]
            used[i] = queue.share[GPU] = n
        else:
            _divide_share(queue, share, demands)


def _share_level(
    queues: Sequence[Queue], capacity: int, most: Sequence[int], demands: _Demands
) -> None:
    """Set the shares of sibling queues, none above `most`."""
    lower = [min(demands[queue].fixed, top) for queue, top in zip(queues, most, strict=True)]
    left = capacity - sum(lower)
    upper = lower[:]
    if left <= 0:
        _set_shares(queues, _grant(queues, lower, lower, capacity))
        return
    order = sorted(range(len(queues)), key=lambda i: demands[queues[i]].order(queues[i]))
    for i in order:
        more = max(0, demands[queues[i]].least - lower[i])
        if queues[i].figures.gpu.weight and most[i] >= lower[i] + more and more <= left:
            left -= more
            lower[i] += more
            upper[i] = most[i]
    weights = [demands[queue].wanted * queue.figures.gpu.weight for queue in queues]
    _set_shares(queues, _bounded_shares(queues, weights, (lower, upper), capacity))


def _bounded_shares(
    queues: Sequence[Queue],
    weights: Sequence[int],
    bounds: tuple[Sequence[int], Sequence[int]],
    capacity: int,
) -> Sequence[int]:
    """Shares in proportion to the weights, each within its bounds; the lower bounds must fit."""
    lower, upper = bounds
    is_low = [False] * len(queues)
    while True:
        rest = capacity - sum(low for low, at in zip(lower, is_low, strict=True) if at)
        rooms = [0 if at else top for top, at in zip(upper, is_low, strict=True)]
        grants = _grant(queues, weights, rooms, rest)
        below = [i for i, low in enumerate(lower) if not is_low[i] and grants[i] < low]
        if not below:
            return [
                low if at else grant for low, grant, at in zip(lower, grants, is_low, strict=True)
            ]
        for i in below:
            is_low[i] = True


def _grant(
    queues: Sequence[Queue], weights: Sequence[int], rooms: Sequence[int], surplus: int
) -> Sequence[int]:
    """Parts of the surplus by weight, each at most its room."""
    grants = array("q", bytes(8 * len(queues)))
    small, room = array("q", fit_weights(weights)), array("q", rooms)
    shares.divide(surplus, small, room, granules(queues, GPU), grants)
    return grants


def _set_shares(queues: Iterable[Queue], milli: Iterable[int]) -> None:
    for queue, share in zip(queues, milli, strict=True):
        queue.share[GPU] = share


def _held_here(
    session: Session, pool: str, workload: WorkloadView
) -> tuple[list[PodView], list[PodView]]:
    """The workload's placed pods, with those of this cycle; and the ones of them in the pool."""
    nodes = session.snapshot.nodes
    live = live_pods(workload)
    here = [pod for pod in live if held_pool(session.snapshot, pod) == pool]
    if session.is_served(workload.key):
        new = [p for p in session.placed_now(workload.key) if not p.pod.node]
        live += [p.pod for p in new]
        here += [p.pod for p in new if nodes.pool[nodes.cards.ix[p.node]] == pool]
    return live, here


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


def _refine_granules(queues: PoolQueues, workload: WorkloadView, pods: Iterable[PodView]) -> None:
    """If cards differ, reduce the granules of the workload's queues to what these pods request."""
    if queues.has_unequal_cards:
        granule = gcd(MILLI_PER_GPU, *{_size(queues, pod) for pod in pods})
        for queue in queues.by_workload[workload.key].chain:
            queue.granule = gcd(queue.granule, granule)


def _size(queues: PoolQueues, pod: PodView) -> int:
    """The demand of the pod in milli-GPU, the same for pending and running pods on any card."""
    return pod_amounts(pod.demand, queues.smallest_card_mib)[GPU]
