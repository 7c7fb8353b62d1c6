"""What each queue of a node pool deserves, resource by resource.

Top down, level after level the same rule: every queue gets the smaller of its quota and its demand,
then what is left goes to those that want more, rank by rank, by over-quota weight (departments have
their quota as weight). No share exceeds demand or limit. Parts of the surplus are rounded to whole
GPUs by largest remainder within the rank, for queues with fractional work to what all of it can
use. When quotas exceed what there is, it is divided in proportion to them. Shares add up to the
smaller of capacity and demand, save what only queues of weight 0 would take: weight 0 has no part
in the surplus.

Past use bends the weights: a queue of weight w among weights that add up to W, with past use beyond
its quota of the part u of the surplus, has max(0, w/W + k (w/W - u)) instead, with k from the
settings. Use of a queue's own quota does not count. What is not wanted by the queues with a weight
left above 0 goes to the others in the same way.

Users of a project have no quota when its share is divided among them. Afterwards each is given an
equal part of the project's quota, by which reclaim and turns tell what is within quota.

Reclaim lets a queue take up to its share, or up to its quota where quotas exceed what there is:
work within quota may take from work above quota, whatever the proportions.

Past use decides what starts, and stops nothing within the share without it. Where it bends weights,
a queue takes no more than its share would be without it, and keeps as much as the larger of the
two, both rounded up. So the sum of what queues hold above that falls with each reclaim, however
past use goes on.

Pods that are being deleted may come back (evicted ones do, when their controller makes them again)
or not, and their successors may already be counted beside them. So while some are leaving, shares
are worked out both with and without them, and reclaim goes by the smaller for what a queue may take
and by the larger for what it may keep: no reclaim rests on a demand that is in motion.
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
#: Weights that the kernel takes; larger ones lose their last binary digits.
_MAX_WEIGHT_BITS: Final = 52

_Wants = dict[Queue, int]


def set_shares(queues: PoolQueues, usage_weight_milli: int = 0) -> None:
    """Set the shares of every queue; the result doesn't depend on the order they were added."""
    everyone = children_first(queues.roots)
    of_users = [queue for queue in everyone if queue.is_user]
    for queue in of_users:
        queue.quota = NOTHING
    sum_requests(everyone)
    _divide_exactly(queues, everyone, 0)
    is_bent = usage_weight_milli > 0 and any(map(_used_anything, everyone))
    unbent = {queue: queue.exact_share for queue in everyone}
    if is_bent:
        _divide_exactly(queues, everyone, usage_weight_milli)
    in_quota = _divide_pool(queues, everyone, usage_weight_milli, is_leaving_counted=False)
    for queue in everyone:
        queue.share_to_keep = frozen(queue.share)
        queue.share_to_take = larger(queue.share, in_quota[queue])
    if any(any(queue.leaving) for queue in queues.roots):
        in_quota = _divide_pool(queues, everyone, usage_weight_milli, is_leaving_counted=True)
        for queue in everyone:
            to_take = larger(queue.share, in_quota[queue])
            queue.share_to_take = smaller(queue.share_to_take, to_take)
            queue.share_to_keep = larger(queue.share_to_keep, queue.share)
    if is_bent:
        for queue in everyone:
            queue.is_bent = True
            unbent_share = _rounded_up(queue, unbent[queue])
            queue.share_to_take = smaller(queue.share_to_take, unbent_share)
            exact_share = _rounded_up(queue, queue.exact_share)
            queue.share_to_keep = larger(queue.share_to_keep, larger(unbent_share, exact_share))
    if of_users:
        _divide_quotas(everyone)
    set_dues(queues, everyone)
    for queue in everyone if is_bent else ():
        queue.unbent_due = _due(queues, queue, unbent[queue])


def _used_anything(queue: Queue) -> bool:
    return any(figures.usage_ppm for figures in queue.figures.figures)


def _rounded_up(queue: Queue, amounts: Amounts) -> Amounts:
    """The share in whole GPUs, or what fractional work can use of them."""
    gpu, cpu, memory = amounts
    return -(-gpu // queue.granule) * queue.granule, cpu, memory


def children_first(roots: Iterable[Queue]) -> list[Queue]:
    """Every queue, those below it before it."""
    found = list(roots)
    for queue in found:
        found.extend(queue.children)
    return found[::-1]


def sum_requests(everyone: Iterable[Queue]) -> None:
    """Note what every queue holds and asks for, before the cycle changes it."""
    for queue in everyone:
        has, asks = queue.allocated, queue.pending
        queue.requested = has[0] + asks[0], has[1] + asks[1], has[2] + asks[2]


def set_dues(queues: PoolQueues, everyone: Iterable[Queue]) -> None:
    """Set what queues deserve, and what turns measure them by: the larger of quota and share,
    within the limit."""
    for queue in everyone:
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
    everyone: Iterable[Queue], resource: int, *, is_leaving_counted: bool
) -> dict[Queue, int]:
    """Demand that a share may answer: what could run, capped by limits; children come first.

    Non-preemptible work beyond quota can't run, so it entitles to nothing, on any level.
    """
    wants: _Wants = {}
    np_wants: _Wants = {}
    for queue in everyone:
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
    """What shares are rounded to: whole GPUs or what fractional work can use, or single units."""
    if resource != GPU:
        return array("q", [1 for _ in queues])
    return array("q", [queue.granule for queue in queues])


def bend(weights: Sequence[int], used_ppm: Sequence[int], weight_milli: int) -> list[int]:
    """The weights after past usage, in proportion: see the module."""
    total = sum(weights)
    bent = [
        max(0, weight * _PPM * (1000 + weight_milli) - weight_milli * used * total) if weight else 0
        for weight, used in zip(weights, used_ppm, strict=True)
    ]
    return fit_weights(bent)


def fit_weights(weights: Sequence[int]) -> list[int]:
    """The weights in proportion, small enough to be divided by: exact up to 52 binary digits."""
    factor = gcd(*weights) or 1
    small = [weight // factor for weight in weights]
    shift = max(0, max(small, default=0).bit_length() - _MAX_WEIGHT_BITS)
    return [max(1, weight >> shift) if weight else 0 for weight in small]


def _divide_pool(
    queues: PoolQueues,
    everyone: Sequence[Queue],
    usage_weight_milli: int,
    *,
    is_leaving_counted: bool,
) -> dict[Queue, list[int]]:
    """Set the shares; returns what every queue wants within its quota."""
    in_quota: dict[Queue, list[int]] = {queue: [] for queue in everyone}
    for resource in RESOURCES:
        wants = demands(everyone, resource, is_leaving_counted=is_leaving_counted)
        division = _Division(resource, wants, usage_weight_milli, queues.capacity[resource])
        division.divide(queues.roots, queues.capacity[resource])
        for queue in everyone:
            in_quota[queue].append(min(queue.quota[resource], wants[queue]))
    return in_quota


def _divide_exactly(queues: PoolQueues, everyone: Sequence[Queue], usage_weight_milli: int) -> None:
    """Set the shares that nothing is rounded of but single units."""
    for resource in RESOURCES:
        wants = demands(everyone, resource, is_leaving_counted=False)
        capacity = queues.capacity[resource]
        division = _Division(resource, wants, usage_weight_milli, capacity, is_rounded=False)
        division.divide(queues.roots, capacity)
    for queue in everyone:
        queue.exact_share = frozen(queue.share)


def _divide_quotas(everyone: Sequence[Queue]) -> None:
    """Give the users of a project equal parts of its quota, as far as they want them; what none
    wants, all have a part of. An unlimited quota of GPUs is as large as the project's share."""
    parts: dict[Queue, list[int]] = {queue: [] for queue in everyone if queue.is_user}
    projects = {queue.parent: queue.parent.children for queue in parts if queue.parent}
    for resource in RESOURCES:
        wants = demands(everyone, resource, is_leaving_counted=False)
        for project, users in projects.items():
            quota = project.quota[resource]
            if resource == GPU and quota >= UNLIMITED:
                quota = project.exact_share[GPU]
            grants = array("q", [UNLIMITED if quota >= UNLIMITED else 0 for _ in users])
            if quota < UNLIMITED:
                ones = array("q", [1 for _ in users])
                rooms = array("q", [wants[user] for user in users])
                left = shares.divide(quota, ones, rooms, ones, grants)
                grants = array("q", [grant + left // len(users) for grant in grants])
            for user, grant in zip(users, grants, strict=True):
                parts[user].append(grant)
    for user, (gpu, cpu, memory) in parts.items():
        user.quota = gpu, cpu, memory


@dataclass(slots=True)
class _Division:
    """One resource of one pool being divided."""

    resource: int
    wants: _Wants
    usage_weight_milli: int
    capacity: int
    is_rounded: bool = True

    def divide(self, queues: Sequence[Queue], total: int) -> None:
        """Divide `total` among queues of one parent, and each one's part among those below it."""
        self._divide_level(queues, total)
        parents = [queue for queue in queues if queue.children]
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
        """Give every queue its quota as far as it wants it; returns what is left of the total."""
        resource, wants = self.resource, self.wants
        rooms = [min(queue.quota[resource], wants[queue]) for queue in queues]
        left = total - sum(rooms)
        for queue, room in zip(queues, rooms, strict=True):
            queue.share[resource] = room if left >= 0 else 0
        if left >= 0:
            return left
        quotas = [queue.quota[resource] for queue in queues]
        # An unlimited quota is as good as all there is, and as any other that is wanted.
        stated = (q for q, room in zip(quotas, rooms, strict=True) if room and q < UNLIMITED)
        most = max(total, *stated, 1)
        return self._grant(queues, [min(quota, most) for quota in quotas], rooms, total)

    def _give_surplus(self, queues: Sequence[Queue], surplus: int) -> int:
        """Divide the surplus among queues that want more than they have; returns what is left."""
        resource, wants, whole = self.resource, self.wants, surplus
        while surplus > 0:
            open_ = [
                queue
                for queue in queues
                if wants[queue] > queue.share[resource] and queue.figures.figures[resource].weight
            ]
            if not open_:
                break
            figures = [queue.figures.figures[resource] for queue in open_]
            weights = [each.weight for each in figures]
            used = [self._used_of_surplus(each, whole) for each in figures]
            if self.usage_weight_milli and any(used):
                bent = bend(weights, used, self.usage_weight_milli)
                weights = bent if any(bent) else weights
            rooms = [wants[queue] - queue.share[resource] for queue in open_]
            surplus = self._grant(open_, weights, rooms, surplus)
        return surplus

    def _used_of_surplus(self, figures: Figures, surplus: int) -> int:
        """Millionths of the surplus that the queue used in the past, beyond its quota."""
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
            array("q", weights),
            array("q", rooms),
            granules(queues, resource if self.is_rounded else CPU),
            grants,
        )
        for queue, grant in zip(queues, grants, strict=True):
            queue.share[resource] += grant
        return left
