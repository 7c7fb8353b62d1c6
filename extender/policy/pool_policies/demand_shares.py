"""The division of GPUs in policy `demand-weighted`; `demand_weighted` states its rules.

Between its lower and its upper bound every queue gets a share in proportion to its demand times its
weight. The lower bound is its non-preemptible work, and the least that it can use: its smallest
task. The upper bound is its demand. Where the lower bounds of all queues do not fit, those are
served in order (`_Demand.order`), and the others get their non-preemptible part only. A budget that
is used lowers the upper bound alone, so other work takes as much as it would without a budget.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import gcd
from typing import Final

from extender.api.units import MILLI_PER_GPU
from extender.kernels import shares
from extender.policy.preemption.candidate_table import in_leaving_order
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
    """What a queue asks for, in milli: `total` is what it runs, and what waits and could ever be
    placed, up to its limit; `wanted` the same without its budget; `fixed` the part that can not be
    evicted, and has its GPUs first; `least` what its smallest task needs.

    Of a workload, `on_cordoned` is what it holds on nodes that take no new pods, `started_at` is
    when its first pod started, 0: none has; `tasks` are the sizes of what it starts or keeps
    together, in that order.
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
        """How much of its share a workload can use: a task that is too large for the rest of the
        share is passed over."""
        used = 0
        for size in self.tasks:
            if used + size <= share:
                used += size
        at_least = self.least if self.least <= share else 0
        return max(used, at_least, min(self.fixed, share))

    def order(self, queue: Queue) -> tuple[int, int, int, int, str]:
        """Sorts the queues that get what they need at least before others. Workloads: those that
        run, the longest first, then the best priority, then the oldest. All other queues: the
        smallest task, then the oldest.
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
    asking = chain(session.pending, session.left_out)
    waiting = {p.workload.key: p for p in asking if pool in p.pools}
    demands = {queue: _QueueDemand() for queue in children_first(queues.roots)}
    if queues.has_unequal_cards:
        # The same memory is another part of another card: shares are rounded to what pods ask for.
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
    _add_up(demands)
    return demands


def surplus_key(pod: PodView) -> tuple[int, int]:
    """Sorts pods of one workload, which are in leaving order, by which of them are surplus first:
    those of the lowest order, then those that have run least."""
    return pod.order, -pod.started_at


def _add_held(
    session: Session, queues: PoolQueues, workload: WorkloadView, demand: _QueueDemand
) -> None:
    """Add what the workload holds in the pool."""
    live, here = _held_here(session, queues.pool, workload)
    if not here:
        return
    # Surplus is evicted in this order, read backwards.
    here = sorted(in_leaving_order(here), key=surplus_key)[::-1]
    sizes = sorted(_size(queues, pod) for pod in here)
    demand.total = sum(sizes)
    if has_groups(workload):
        core = _core_of(workload, live, here)
        demand.least = sum(_size(queues, pod) for pod in core)
        rest = [_size(queues, pod) for pod in _without(here, core)]
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
        # What must run beside its pods in other pools is not evicted here alone.
        demand.fixed = demand.least
    demand.started_at = min(pod.started_at or session.snapshot.now_s for pod in here)
    _round_shares(queues, workload, here)


def _add_waiting(
    session: Session,
    queues: PoolQueues,
    pending: Pending,
    to: tuple[_QueueDemand, dict[Queue, int]],
) -> None:
    """Add what waits of a workload, if it could ever be placed in the pool. Non-preemptible work
    counts up to the quotas that are stated, the oldest first; without any it is work as any other.
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
    _round_shares(queues, pending.workload, pods)


def _add_up(demands: _Demands) -> None:
    """Sum up the demands of workloads for the queues above them, which are in order, children
    first."""
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
    """Divide among queues of one parent, and each share among the queues below; returns what they
    can use of it. What one of them cannot use of its share goes to the others, and what is left of
    several shares to those of them that can use it together."""
    queues = sorted(queues, key=lambda queue: queue.age_key)
    most = [demands[queue].total for queue in queues]
    used: list[int] = []
    for _ in range(_MOST_ROUNDS):
        _share_out(queues, capacity, most, demands)
        used = [_use(queue, queue.share[GPU], demands) for queue in queues]
        given = [queue.share[GPU] for queue in queues]
        is_left = any(n < share for n, share in zip(used, given, strict=True))
        could_use = any(n == share < top for n, share, top in zip(used, given, most, strict=True))
        if not is_left or not could_use:
            # Dividing less among the queues below would only leave them less.
            break
        most = [
            min(top, n) if n < share else top
            for n, share, top in zip(used, given, most, strict=True)
        ]
    _lend_rests(queues, capacity, used, demands)
    return sum(used)


def _use(queue: Queue, share: int, demands: _Demands) -> int:
    """What the queue can use of so much; it is divided among the queues below."""
    if queue.children:
        return _divide(queue.children, share, demands)
    return demands[queue].usable(share)


def _lend_rests(queues: Sequence[Queue], capacity: int, used: list[int], demands: _Demands) -> None:
    """Let queues use more than their shares of what all leave unused: those that do already before
    the others, the older first. `used` is kept up to date."""
    left = capacity - sum(used)
    for i in sorted(range(len(queues)), key=lambda i: queues[i].allocated[GPU] <= used[i]):
        queue, demand = queues[i], demands[queues[i]]
        share, most = queue.share[GPU], min(demand.total, used[i] + left)
        if most <= share or most < demand.least or not queue.figures.gpu.weight:
            continue
        n = _use(queue, most, demands)
        if n > used[i]:
            left -= n - used[i]
            used[i] = queue.share[GPU] = n
        else:
            _use(queue, share, demands)


def _share_out(
    queues: Sequence[Queue], capacity: int, most: Sequence[int], demands: _Demands
) -> None:
    """Set the shares of queues of one parent, none above `most`."""
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
    _set_shares(queues, _between(queues, weights, (lower, upper), capacity))


def _between(
    queues: Sequence[Queue],
    weights: Sequence[int],
    bounds: tuple[Sequence[int], Sequence[int]],
    capacity: int,
) -> Sequence[int]:
    """Shares in proportion to the weights, but none outside its bounds; the lower ones fit."""
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
    """Parts of the surplus by weight, none larger than its room."""
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
    """Its pods that hold places, those given in this cycle included, and of them the ones in the
    pool."""
    nodes = session.snapshot.nodes
    live = live_pods(workload)
    here = [pod for pod in live if held_pool(session.snapshot, pod) == pool]
    if session.is_served(workload.key):
        new = [p for p in session.placed_now(workload.key) if not p.pod.node]
        live += [p.pod for p in new]
        here += [p.pod for p in new if nodes.pool[nodes.cards.ix[p.node]] == pool]
    return live, here


def _core_of(
    workload: WorkloadView, live: Sequence[PodView], here: Sequence[PodView]
) -> Sequence[PodView]:
    """What is left of the pods `here` once all surplus has gone: the rest leaves together."""
    while True:
        unit = _next_unit(workload, live, here)
        rest = _without(here, unit)
        if not rest or len(rest) + len(unit) > len(here):
            return here
        live, here = _without(live, unit), rest


def _next_unit(
    workload: WorkloadView, live: Collection[PodView], here: Iterable[PodView]
) -> Collection[PodView]:
    """The smallest unit around any of the pods; around the first of those where it is one of
    several. Pods of one group are alike in this."""
    by_group: dict[str, PodView] = {}
    for pod in here:
        by_group.setdefault(pod.group, pod)
    return min((unit_of(workload, live, pod) for pod in by_group.values()), key=len)


def _without(pods: Iterable[PodView], gone: Iterable[PodView]) -> list[PodView]:
    uids = {pod.uid for pod in gone}
    return [pod for pod in pods if pod.uid not in uids]


def _round_shares(queues: PoolQueues, workload: WorkloadView, pods: Iterable[PodView]) -> None:
    """Where cards differ, round the shares of its queues to what these pods ask for."""
    if queues.has_unequal_cards:
        granule = gcd(MILLI_PER_GPU, *{_size(queues, pod) for pod in pods})
        for queue in queues.by_workload[workload.key].chain:
            queue.granule = gcd(queue.granule, granule)


def _size(queues: PoolQueues, pod: PodView) -> int:
    """What the pod counts, in milli: the same whether it waits or runs, on whatever card."""
    return pod_amounts(pod.demand, queues.smallest_card_mib)[GPU]
