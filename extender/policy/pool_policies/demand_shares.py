"""The division of GPUs in policy `demand-weighted`; `demand_weighted` states its rules.

Every queue gets a share in proportion to its demand times its weight, between two bounds. The lower
bound is its non-preemptible demand and its smallest task, the upper bound its demand. If not all
lower bounds fit, queues are served by `QueueDemand.order`; the remaining ones get only their
non-preemptible part. A used budget lowers only the upper bound, so weights stay as without a
budget.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from extender.kernels import shares
from extender.policy.pool_policies.queue_demands import Demands, read_demands
from extender.policy.queues.fairshare import fit_weights, granules
from extender.policy.queues.queue import Queue
from extender.policy.queues.tree import PoolQueues
from extender.policy.session import Session
from extender.state.model import GPU

#: How often the division among queues is repeated because some of them cannot use their shares.
_MOST_ROUNDS: Final = 8


def divide_by_demand(session: Session, queues: PoolQueues) -> None:
    """Set the GPU share of every queue of the pool. Costs one pass over all pods."""
    demands = read_demands(session, queues)
    on_cordoned = sum(demands[leaf].on_cordoned for leaf in queues.by_workload.values())
    _divide(queues.roots, queues.capacity[GPU] + on_cordoned, demands)


def _divide(queues: Sequence[Queue], capacity: int, demands: Demands) -> int:
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


def _divide_share(queue: Queue, share: int, demands: Demands) -> int:
    """How much of `share` the queue can use; also divides it among the queue's children."""
    if queue.children:
        return _divide(queue.children, share, demands)
    return demands[queue].usable(share)


def _lend_unused(queues: Sequence[Queue], capacity: int, used: list[int], demands: Demands) -> None:
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
    queues: Sequence[Queue], capacity: int, most: Sequence[int], demands: Demands
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
