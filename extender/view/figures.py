"""Figures of queues as answers show them."""

from collections.abc import Iterator

from extender.api.months import PER_GPU_HOUR, format_gpu_hours
from extender.api.units import format_gpus
from extender.policy.plan import Plan, QueueShare
from extender.state.model import GPU
from extender.state.snapshot import Snapshot
from extender.view.answers import QueueFigures
from extender.view.picture import is_limited


def all_figures(plan: Plan, snapshot: Snapshot) -> Iterator[QueueFigures]:
    """Every department and project with its figures in each node pool, parents first. User queues,
    and queues without quota, requests or budget in a pool, are left out, except the departments of
    projects that are not."""
    shown = {
        (above, pool)
        for (queue, pool), share in plan.shares.items()
        if queue in snapshot.queues and (share.quota[GPU] or share.requested[GPU] or share.month)
        for above in _path(queue, snapshot)
    }
    for queue, pool in sorted(shown, key=lambda each: (each[1], _path(each[0], snapshot))):
        yield figures_of(queue, pool, plan, snapshot)


def figures_of(queue: str, pool: str, plan: Plan, snapshot: Snapshot) -> QueueFigures:
    """The queue's quota, limits, shares and use in the pool."""
    share = plan.shares.get((queue, pool), QueueShare())
    quota, limit = share.quota[GPU], share.limit[GPU]
    view = snapshot.queues.get(queue)
    month = share.month
    is_known = month is not None and month.is_known_at(snapshot.now_s)
    return QueueFigures(
        queue=queue,
        node_pool=pool,
        parent=view.parent if view else "",
        quota=format_gpus(quota) if is_limited(quota) else "unlimited",
        limit=format_gpus(limit) if is_limited(limit) else "",
        fair_share=format_gpus(share.fair_share[GPU]),
        held=format_gpus(share.allocated[GPU]),
        borrowed=format_gpus(share.borrowed_milli),
        waiting=format_gpus(share.waiting_milli),
        gpu_hours_per_month=month.budget // PER_GPU_HOUR if month else None,
        gpu_hours_used=format_gpu_hours(month.used) if month and is_known else "",
    )


def _path(queue: str, snapshot: Snapshot) -> tuple[str, ...]:
    """The names of the queues above it, then its own."""
    found = [queue]
    view = snapshot.queues.get(queue)
    while view is not None and view.parent:
        found.append(view.parent)
        view = snapshot.queues.get(view.parent)
    return tuple(reversed(found))
