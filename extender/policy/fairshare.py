"""What each department and project of a node pool deserves, in milli-GPU.

Top down, twice the same rule: every queue gets the smaller of its quota and its demand, then what
is left goes to those that want more. Departments divide it in proportion to their quotas (those
without quota equally, after the others); the projects of a department by over-quota weight, rank by
rank. No share exceeds demand or limit. Parts of the surplus are rounded to whole GPUs by largest
remainder, except for queues that have fractional work, which can use every milli. When quotas
exceed what there is, it is divided in proportion to them. Shares add up to the smaller of capacity
and demand, save what only projects of weight 0 would take: weight 0 has no part in the surplus.

Pods that are being deleted may come back (evicted ones do, when their controller makes them again)
or not, and their successors may already be counted beside them. So while some are leaving, shares
are worked out both with and without them, and reclaim goes by the smaller for what a queue may take
and by the larger for what it may keep: nobody takes on the strength of a demand that is in motion.
"""

from array import array
from collections.abc import Sequence
from itertools import groupby

from extender.api.units import MILLI_PER_GPU
from extender.kernels import shares
from extender.policy.queues import PoolQueues, Queue

Wants = dict[Queue, int]


def set_shares(queues: PoolQueues) -> None:
    """Set the shares of every queue; the result doesn't depend on the order they were added."""
    everyone = [*queues.departments.values(), *queues.projects.values()]
    for queue in everyone:
        queue.requested_milli = queue.allocated_milli + queue.pending_milli
    _divide_pool(queues, {queue: queue.wanted_milli(False) for queue in everyone})
    for queue in everyone:
        queue.share_to_take_milli = queue.share_to_keep_milli = queue.share_milli
    if any(queue.leaving_milli for queue in everyone):
        _divide_pool(queues, {queue: queue.wanted_milli(True) for queue in everyone})
        for queue in everyone:
            queue.share_to_take_milli = min(queue.share_to_take_milli, queue.share_milli)
            queue.share_to_keep_milli = max(queue.share_to_keep_milli, queue.share_milli)


def _divide_pool(queues: PoolQueues, wants: Wants) -> None:
    departments = sorted(queues.departments.values(), key=lambda queue: queue.age_key)
    left = _give_quota(departments, wants, queues.capacity_milli)
    with_quota = [queue for queue in departments if queue.quota_milli > 0]
    without = [queue for queue in departments if queue.quota_milli == 0]
    left = _give_surplus(with_quota, [queue.quota_milli for queue in with_quota], wants, left)
    _give_surplus(without, [1] * len(without), wants, left)
    for department in departments:
        projects = sorted(department.children, key=lambda queue: queue.age_key)
        left = _give_quota(projects, wants, department.share_milli)
        by_rank = sorted(projects, key=lambda queue: (queue.figures.rank, queue.age_key))
        for _, group in groupby(by_rank, key=lambda queue: queue.figures.rank):
            rank = list(group)
            left = _give_surplus(rank, [queue.figures.weight for queue in rank], wants, left)


def _give_quota(queues: Sequence[Queue], wants: Wants, total_milli: int) -> int:
    """Give every queue its quota as far as it wants it; returns what is left of the total."""
    rooms = [min(queue.quota_milli, wants[queue]) for queue in queues]
    left = total_milli - sum(rooms)
    for queue, room in zip(queues, rooms, strict=True):
        queue.share_milli = room if left >= 0 else 0
    if left >= 0:
        return left
    return _divide(queues, [queue.quota_milli for queue in queues], rooms, total_milli)


def _give_surplus(
    queues: Sequence[Queue], weights: list[int], wants: Wants, surplus_milli: int
) -> int:
    """Divide the surplus among queues that want more than they have; returns what is left."""
    rooms = [max(0, wants[queue] - queue.share_milli) for queue in queues]
    return _divide(queues, weights, rooms, surplus_milli)


def _divide(
    queues: Sequence[Queue], weights: list[int], rooms: list[int], surplus_milli: int
) -> int:
    if surplus_milli <= 0 or not any(rooms):
        return surplus_milli
    granules = array("q", [1 if queue.has_fractions else MILLI_PER_GPU for queue in queues])
    grants = array("q", bytes(8 * len(queues)))
    left = shares.divide(surplus_milli, array("q", weights), array("q", rooms), granules, grants)
    for queue, grant in zip(queues, grants, strict=True):
        queue.share_milli += grant
    return left
