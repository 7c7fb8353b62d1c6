"""What each queue of a node pool deserves, resource by resource.

Top down, level after level the same rule: every queue gets the smaller of its quota and its demand,
then what is left goes to those that want more, rank by rank, by over-quota weight (departments have
their quota as weight). No share exceeds demand or limit. Parts of the surplus are rounded to whole
GPUs by largest remainder, except for queues that have fractional work, which can use every milli.
When quotas exceed what there is, it is divided in proportion to them. Shares add up to the smaller
of capacity and demand, save what only queues of weight 0 would take: weight 0 has no part in the
surplus.

Pods that are being deleted may come back (evicted ones do, when their controller makes them again)
or not, and their successors may already be counted beside them. So while some are leaving, shares
are worked out both with and without them, and reclaim goes by the smaller for what a queue may take
and by the larger for what it may keep: nobody takes on the strength of a demand that is in motion.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from extender.api.units import MILLI_PER_GPU
from extender.kernels import shares
from extender.policy.queues import RESOURCES, PoolQueues, Queue, frozen
from extender.state.model import GPU, Amounts

_Wants = dict[Queue, int]


def set_shares(queues: PoolQueues) -> None:
    """Set the shares of every queue; the result doesn't depend on the order they were added."""
    everyone = list(queues.by_name.values())
    for queue in everyone:
        has, asks = queue.allocated, queue.pending
        queue.requested = has[0] + asks[0], has[1] + asks[1], has[2] + asks[2]
    _divide_pool(queues, everyone, is_leaving_counted=False)
    for queue in everyone:
        queue.share_to_take = queue.share_to_keep = frozen(queue.share)
    if any(any(queue.leaving) for queue in queues.roots):
        _divide_pool(queues, everyone, is_leaving_counted=True)
        for queue in everyone:
            with_them = queue.share
            queue.share_to_take = _each(min, queue.share_to_take, with_them)
            queue.share_to_keep = _each(max, queue.share_to_keep, with_them)


def _divide_pool(
    queues: PoolQueues, everyone: Sequence[Queue], *, is_leaving_counted: bool
) -> None:
    for resource in RESOURCES:
        wants = {queue: queue.wanted(resource, is_leaving_counted) for queue in everyone}
        division = _Division(resource, wants)
        division.divide(queues.roots, queues.capacity[resource])


@dataclass(slots=True)
class _Division:
    """One resource of one pool being divided."""

    resource: int
    wants: _Wants

    def divide(self, queues: Sequence[Queue], total: int) -> None:
        """Divide `total` among queues of one parent, and each one's part among those below it."""
        queues = sorted(queues, key=lambda queue: queue.age_key)
        left = self._give_quota(queues, total)
        by_rank = sorted(queues, key=lambda queue: (queue.figures.rank, queue.age_key))
        for _, group in groupby(by_rank, key=lambda queue: queue.figures.rank):
            left = self._give_surplus(list(group), left)
        for queue in queues:
            if queue.children:
                self.divide(queue.children, queue.share[self.resource])

    def _give_quota(self, queues: Sequence[Queue], total: int) -> int:
        """Give every queue its quota as far as it wants it; returns what is left of the total."""
        resource = self.resource
        quotas = [min(queue.quota[resource], total) for queue in queues]
        rooms = [min(quota, self.wants[queue]) for quota, queue in zip(quotas, queues, strict=True)]
        left = total - sum(rooms)
        for queue, room in zip(queues, rooms, strict=True):
            queue.share[resource] = room if left >= 0 else 0
        return left if left >= 0 else self._grant(queues, quotas, rooms, total)

    def _give_surplus(self, queues: Sequence[Queue], surplus: int) -> int:
        """Divide the surplus among queues that want more than they have; returns what is left."""
        resource = self.resource
        weights = [queue.figures.figures[resource].weight for queue in queues]
        rooms = [max(0, self.wants[queue] - queue.share[resource]) for queue in queues]
        return self._grant(queues, weights, rooms, surplus)

    def _grant(
        self, queues: Sequence[Queue], weights: list[int], rooms: list[int], surplus: int
    ) -> int:
        if surplus <= 0 or not any(rooms):
            return surplus
        granules = array(
            "q",
            [
                MILLI_PER_GPU if self.resource == GPU and not queue.has_fractions else 1
                for queue in queues
            ],
        )
        grants = array("q", bytes(8 * len(queues)))
        left = shares.divide(surplus, array("q", weights), array("q", rooms), granules, grants)
        for queue, grant in zip(queues, grants, strict=True):
            queue.share[self.resource] += grant
        return left


def _each(choose: Callable[[int, int], int], left: Sequence[int], right: Sequence[int]) -> Amounts:
    return choose(left[0], right[0]), choose(left[1], right[1]), choose(left[2], right[2])
