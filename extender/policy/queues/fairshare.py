"""Fair share: the share of each queue of a node pool, per resource.

The same rule applies at each level, top down. Every queue first gets the smaller of its quota and
its demand. The surplus is then divided among queues with unmet demand, rank by rank, by over-quota
weight (for departments, by quota). No share exceeds demand or limit. Parts of the surplus are
rounded by largest remainder within the rank: to whole GPUs, or for queues with fractional requests
to an amount that all of them can use. If quotas exceed the capacity, it is divided in proportion to
them. Shares add up to the smaller of capacity and demand, except that a queue of weight 0 gets none
of the surplus.

Past use bends the weights. A queue of weight w, of a total W, that used the part u of the surplus
beyond its quota has the weight max(0, w/W + k (w/W - u)) instead; k is a setting. Use within the
quota does not count. What the queues with a bent weight above 0 do not want goes to the others in
the same way.

When a project's share is divided among its users, they have no quota. Afterwards each gets an equal
part of the project's quota, which tells reclaim and the order of queues what is within quota.

Reclaim lets a queue take up to its share, or up to its quota where quotas exceed the capacity:
workloads within quota may take from workloads above quota, whatever the proportions.

Past use decides what starts, but evicts nothing within the unbent share, the one without past use.
Where it bends weights, a queue may take no more than its unbent share, and keeps the larger of its
bent and unbent shares, both rounded up. So the sum that queues hold above this bound falls with
each reclaim, however past use develops.

Terminating pods may or may not be recreated by their controllers, and their successors may already
be counted beside them. While there are any, shares are computed with and without them. Reclaim uses
the smaller share for what a queue may take and the larger for what it keeps, so that no reclaim
depends on an unsettled demand.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd
from typing import Final

from extender.kernels import shares
from extender.policy.queues.queue import RESOURCES, Queue, frozen, larger, smaller
from extender.policy.queues.tree import PoolQueues
from extender.state.model import CPU, GPU, NOTHING, UNLIMITED, Amounts, Figures

_PPM: Final = 1_000_000
#: Bits of the largest weight that the kernel takes; larger weights lose their lowest bits.
_MAX_WEIGHT_BITS: Final = 52

_Wants = dict[Queue, int]


def set_shares(queues: PoolQueues, usage_weight_milli: int = 0) -> None:
    """Set the shares of every queue, independently of the order in which queues were added."""
    all_queues = children_first(queues.roots)
    of_users = [queue for queue in all_queues if queue.is_user]
    for queue in of_users:
        queue.quota = NOTHING
    sum_requests(all_queues)
    wants = [demands(all_queues, r, is_leaving_counted=False) for r in RESOURCES]
    _divide(queues, wants, 0, is_rounded=False)
    unbent = {queue: frozen(queue.share) for queue in all_queues}
    is_bent = usage_weight_milli > 0 and any(map(_has_past_use, all_queues))
    if is_bent:
        _divide(queues, wants, usage_weight_milli, is_rounded=False)
    for queue in all_queues:
        queue.exact_share = frozen(queue.share)
    _set_rounded_shares(queues, all_queues, wants, usage_weight_milli)
    if is_bent:
        for queue in all_queues:
            queue.is_bent = True
            unbent_share = _rounded_up(queue, unbent[queue])
            queue.share_to_take = smaller(queue.share_to_take, unbent_share)
            exact_share = _rounded_up(queue, queue.exact_share)
            queue.share_to_keep = larger(queue.share_to_keep, larger(unbent_share, exact_share))
    if of_users:
        _divide_quotas(all_queues, wants)
    set_dues(queues, all_queues)
    for queue in all_queues if is_bent else ():
        queue.unbent_due = _due(queues, queue, unbent[queue])


def _has_past_use(queue: Queue) -> bool:
    return any(figures.usage_ppm for figures in queue.figures.figures)


def _rounded_up(queue: Queue, amounts: Amounts) -> Amounts:
    """The share with GPUs rounded up to the queue's granule."""
    gpu, cpu, memory = amounts
    return -(-gpu // queue.granule) * queue.granule, cpu, memory


def children_first(roots: Iterable[Queue]) -> list[Queue]:
    """All queues, children before their parents."""
    found = list(roots)
    for queue in found:
        found.extend(queue.children)
    return found[::-1]


def sum_requests(all_queues: Iterable[Queue]) -> None:
    """Set `requested` of every queue, before the cycle changes allocations."""
    for queue in all_queues:
        has, wants = queue.allocated, queue.pending
        queue.requested = has[0] + wants[0], has[1] + wants[1], has[2] + wants[2]


def set_dues(queues: PoolQueues, all_queues: Iterable[Queue]) -> None:
    """Set `due`, the larger of quota and exact share within the limit, and `deserves`."""
    for queue in all_queues:
        queue.due = queue.unbent_due = _due(queues, queue, queue.exact_share)
        queue.deserves = larger(queue.share_to_take, queue.quota)


def _due(queues: PoolQueues, queue: Queue, share: Amounts) -> Amounts:
    capacity, quota, limit = queues.capacity, queue.quota, queue.limit
    gpu, cpu, memory = (
        min(limit[r], max(share[r], quota[r] if quota[r] < UNLIMITED else capacity[r]))
        for r in RESOURCES
    )
    return gpu, cpu, memory


def demands(
    all_queues: Iterable[Queue], resource: int, *, is_leaving_counted: bool
) -> dict[Queue, int]:
    """The demand that counts for shares: what could run, capped by limits; children come first.

    Non-preemptible workloads beyond quota cannot run, so they do not count at any level.
    """
    wants: _Wants = {}
    np_wants: _Wants = {}
    for queue in all_queues:
        np_has = queue.allocated_np[resource]
        if queue.children:
            np_wanted = sum(np_wants[child] for child in queue.children)
            other = sum(wants[child] for child in queue.children) - np_wanted
        else:
            np_pending = queue.pending_np[resource] - queue.uncounted_np[resource]
            pending = queue.pending[resource] - queue.uncounted[resource]
            np_wanted = np_has + np_pending
            other = queue.allocated[resource] + pending - np_wanted
            if is_leaving_counted:
                np_wanted += queue.leaving_np[resource]
                other += queue.leaving[resource] - queue.leaving_np[resource]
        limit = queue.limit[resource]
        np_wants[queue] = min(limit, max(min(np_wanted, queue.np_quota[resource]), np_has))
        wants[queue] = min(limit, np_wants[queue] + other)
    return wants


def granules(queues: Iterable[Queue], resource: int) -> "array[int]":
    """What shares are rounded to: the queue's granule for GPUs, else single units."""
    if resource != GPU:
        return array("q", [1 for _ in queues])
    return array("q", [queue.granule for queue in queues])


def _bend(weights: Sequence[int], used_ppm: Sequence[int], weight_milli: int) -> list[int]:
    """The weights bent by past use, as proportions; see the module docstring."""
    total = sum(weights)
    return [
        max(0, weight * _PPM * (1000 + weight_milli) - weight_milli * used * total) if weight else 0
        for weight, used in zip(weights, used_ppm, strict=True)
    ]


def fit_weights(weights: Sequence[int]) -> list[int]:
    """The weights scaled down for the kernel; proportions are exact up to 52 bits."""
    factor = gcd(*weights) or 1
    small = [weight // factor for weight in weights]
    shift = max(0, max(small, default=0).bit_length() - _MAX_WEIGHT_BITS)
    return [max(1, weight >> shift) if weight else 0 for weight in small]


def _divide(
    queues: PoolQueues, wants: Sequence[_Wants], usage_weight_milli: int, *, is_rounded: bool
) -> None:
    """Set `share` of every queue for these demands, one for each resource."""
    for resource in RESOURCES:
        division = _Division(
            resource, wants[resource], usage_weight_milli, queues.capacity[resource], is_rounded
        )
        division.divide(queues.roots)


def _set_rounded_shares(
    queues: PoolQueues,
    all_queues: Sequence[Queue],
    wants: Sequence[_Wants],
    usage_weight_milli: int,
) -> None:
    """Set the shares, with and without terminating pods, and what reclaim lets a queue take and
    keep of them."""
    _divide(queues, wants, usage_weight_milli, is_rounded=True)
    for queue in all_queues:
        queue.share_to_keep = frozen(queue.share)
        queue.share_to_take = _share_to_take(queue, wants)
    if any(any(queue.leaving) for queue in queues.roots):
        more_wants = [demands(all_queues, r, is_leaving_counted=True) for r in RESOURCES]
        _divide(queues, more_wants, usage_weight_milli, is_rounded=True)
        for queue in all_queues:
            to_take = _share_to_take(queue, more_wants)
            queue.share_to_take = smaller(queue.share_to_take, to_take)
            queue.share_to_keep = larger(queue.share_to_keep, queue.share)


def _share_to_take(queue: Queue, wants: Sequence[_Wants]) -> Amounts:
    """The share or, if that is larger, the demand within the quota."""
    return larger(queue.share, [min(queue.quota[r], wants[r][queue]) for r in RESOURCES])


def _divide_quotas(all_queues: Sequence[Queue], wants: Sequence[_Wants]) -> None:
    """Give the users of a project equal parts of its quota, up to their demand.

    What exceeds the demand is divided equally. An unlimited GPU quota counts as the project's
    share.
    """
    parts: dict[Queue, list[int]] = {queue: [] for queue in all_queues if queue.is_user}
    projects = {queue.parent: queue.parent.children for queue in parts if queue.parent}
    for resource in RESOURCES:
        for project, users in projects.items():
            quota = project.quota[resource]
            if resource == GPU and quota >= UNLIMITED:
                quota = project.exact_share[GPU]
            if quota >= UNLIMITED:
                grants = [UNLIMITED] * len(users)
            else:
                grants = _equal_parts(quota, [wants[resource][user] for user in users])
            for user, grant in zip(users, grants, strict=True):
                parts[user].append(grant)
    for user, (gpu, cpu, memory) in parts.items():
        user.quota = gpu, cpu, memory


def _equal_parts(amount: int, rooms: Sequence[int]) -> list[int]:
    """Parts up to each room, and what is left in equal parts on top. All are rounded down:
    the odd GPU would always go by a part that is larger by a thousandth."""
    left, n_left, most = amount, len(rooms), amount
    for room in sorted(rooms):
        most = left // n_left
        if room > most:
            break
        left, n_left, most = left - room, n_left - 1, room
    parts = [min(room, most) for room in rooms]
    more = (amount - sum(parts)) // len(rooms)
    return [part + more for part in parts]


@dataclass(slots=True)
class _Division:
    """Divides one resource of one pool."""

    resource: int
    wants: _Wants
    usage_weight_milli: int
    capacity: int
    is_rounded: bool

    def divide(self, roots: Sequence[Queue]) -> None:
        """Divide the capacity among the roots, and each share among the queue's children."""
        self._divide_level(roots, self.capacity)
        parents = [queue for queue in roots if queue.children]
        for parent in parents:
            self._divide_level(parent.children, parent.share[self.resource])
            parents.extend(child for child in parent.children if child.children)

    def _divide_level(self, queues: Sequence[Queue], total: int) -> None:
        by_rank = sorted(queues, key=lambda queue: (queue.figures.rank, queue.age_key))
        left = self._give_quota(by_rank, total)
        if left > 0:
            for _, group in groupby(by_rank, key=lambda queue: queue.figures.rank):
                left = self._give_surplus(list(group), left)

    def _give_quota(self, queues: Sequence[Queue], total: int) -> int:
        """Give every queue the smaller of quota and demand; returns what is left of the total."""
        resource, wants = self.resource, self.wants
        rooms = [min(queue.quota[resource], wants[queue]) for queue in queues]
        left = total - sum(rooms)
        for queue, room in zip(queues, rooms, strict=True):
            queue.share[resource] = room if left >= 0 else 0
        if left >= 0:
            return left
        quotas = [queue.quota[resource] for queue in queues]
        # An unlimited quota counts as the total, or as the largest other quota with demand.
        stated = (q for q, room in zip(quotas, rooms, strict=True) if room and q < UNLIMITED)
        most = max(total, *stated, 1)
        return self._grant(queues, [min(quota, most) for quota in quotas], rooms, total)

    def _give_surplus(self, queues: Sequence[Queue], surplus: int) -> int:
        """Divide the surplus among queues with unmet demand; returns what is left."""
        resource, wants, whole = self.resource, self.wants, surplus
        while surplus > 0:
            unsatisfied = [
                queue
                for queue in queues
                if wants[queue] > queue.share[resource] and queue.figures.figures[resource].weight
            ]
            if not unsatisfied:
                break
            figures = [queue.figures.figures[resource] for queue in unsatisfied]
            weights = [each.weight for each in figures]
            used = [self._used_of_surplus(each, whole) for each in figures]
            if self.usage_weight_milli and any(used):
                bent = _bend(weights, used, self.usage_weight_milli)
                weights = bent if any(bent) else weights
            rooms = [wants[queue] - queue.share[resource] for queue in unsatisfied]
            surplus = self._grant(unsatisfied, weights, rooms, surplus)
        return surplus

    def _used_of_surplus(self, figures: Figures, surplus: int) -> int:
        """The past use beyond the quota, in millionths of the surplus."""
        used = figures.usage_ppm * self.capacity - figures.quota * _PPM
        return min(_PPM, max(0, used) // surplus)

    def _grant(
        self, queues: Sequence[Queue], weights: list[int], rooms: list[int], surplus: int
    ) -> int:
        if surplus <= 0:
            return surplus
        resource = self.resource
        grants = array("q", bytes(8 * len(queues)))
        left = shares.divide(
            surplus,
            array("q", fit_weights(weights)),
            array("q", rooms),
            granules(queues, resource if self.is_rounded else CPU),
            grants,
        )
        for queue, grant in zip(queues, grants, strict=True):
            queue.share[resource] += grant
        return left
