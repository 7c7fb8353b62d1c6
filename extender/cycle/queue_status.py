"""What queues and node pools say of themselves: shares, use, and what is wrong with them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, UnsetType

from extender.api.kinds import (
    GpuNodePoolStatus,
    HostUse,
    PastUse,
    PoolUse,
    QueueStatus,
    QueueSummary,
)
from extender.api.objects import Condition
from extender.api.reasons import Reason
from extender.api.units import format_gpus
from extender.cycle.conditions import VALID, condition
from extender.policy.plan import QueueShare
from extender.state.model import CPU, GPU, MEMORY, UNLIMITED, Snapshot
from extender.state.problems import Problem

#: (pods that wait, pods that are bound)
PodCounts = tuple[int, int]

#: A queue's shares by node pool, in order of the pools' names.
Shares = Sequence[tuple[str, QueueShare]]


def shares_of(shares: Mapping[tuple[str, str], QueueShare]) -> dict[str, Shares]:
    """A plan's shares by queue."""
    found: dict[str, list[tuple[str, QueueShare]]] = {}
    for (queue, pool), share in sorted(shares.items()):
        found.setdefault(queue, []).append((pool, share))
    return {queue: tuple(listed) for queue, listed in found.items()}


def queue_status(
    shares: Shares,
    pods: PodCounts,
    conditions: list[Condition],
    past: Mapping[str, PastUse],
) -> QueueStatus:
    """The status of a GpuDepartment or GpuProject; `past` is its past use by node pool."""
    listed = [share for _, share in shares]
    allocated = sum(share.allocated[GPU] for share in listed)
    if allocated <= sum(share.quota[GPU] for share in listed):
        state = "InQuota"
    elif all(share.allocated[GPU] <= share.fair_share[GPU] for share in listed):
        state = "OverQuota"
    else:
        state = "OverFairShare"
    n_pending, n_running = pods
    return QueueStatus(
        state=state,  # type: ignore[arg-type]  # one of the three literals above
        gpu=QueueSummary(
            quota=format_gpus(sum(share.quota[GPU] for share in listed)),
            fair_share=format_gpus(sum(share.fair_share[GPU] for share in listed)),
            allocated=format_gpus(allocated),
            requested=format_gpus(sum(share.requested[GPU] for share in listed)),
            pending_pods=n_pending,
            running_pods=n_running,
        ),
        node_pools=[_pool_use(pool, share, past.get(pool, UNSET)) for pool, share in shares],
        conditions=conditions,
    )


def pool_statuses(snapshot: Snapshot) -> dict[str, GpuNodePoolStatus]:
    """Capacity, use and fragments of every pool; O(cards)."""
    sums = {name: [0, 0, 0, 0] for name in snapshot.pools}
    table = snapshot.nodes
    cards = table.cards
    for ix in cards.ix.values():
        total = sums.get(table.pool[ix])
        if total is None:
            continue
        capacity = cards.capacity_milli[ix]
        free = [milli for milli in cards.free_of(ix) if milli > 0]
        total[0] += 1
        total[1] += capacity
        total[2] += capacity - sum(free)
        total[3] += sum(milli for milli in free if milli < 1000)
    return {
        name: GpuNodePoolStatus(
            nodes=nodes,
            capacity=format_gpus(capacity),
            allocated=format_gpus(allocated),
            fragmented=format_gpus(fragmented),
        )
        for name, (nodes, capacity, allocated, fragmented) in sums.items()
    }


def validity(problems: Iterable[Problem], before: Sequence[Condition]) -> list[Condition]:
    """The condition that tells whether the object is as its author can have meant it."""
    listed = list(problems)
    if not listed:
        return [condition(VALID, True, Reason.ACCEPTED, "", before)]
    text = "; ".join(problem.text for problem in listed)
    return [condition(VALID, False, Reason(listed[0].fault), text, before)]


def _pool_use(pool: str, share: QueueShare, past: PastUse | UnsetType) -> PoolUse:
    return PoolUse(
        name=pool,
        quota=format_gpus(share.quota[GPU]),
        fair_share=format_gpus(share.fair_share[GPU]),
        allocated=format_gpus(share.allocated[GPU]),
        allocated_non_preemptible=format_gpus(share.allocated_non_preemptible[GPU]),
        requested=format_gpus(share.requested[GPU]),
        cpu=_host_use(share, CPU, "m"),
        memory=_host_use(share, MEMORY, "Mi"),
        past=past,
    )


def _host_use(share: QueueShare, resource: int, unit: str) -> HostUse | UnsetType:
    """CPU or memory where it has a quota or a limit."""
    if share.quota[resource] >= UNLIMITED and share.limit[resource] >= UNLIMITED:
        return UNSET
    return HostUse(
        fair_share=f"{share.fair_share[resource]}{unit}",
        allocated=f"{share.allocated[resource]}{unit}",
        requested=f"{share.requested[resource]}{unit}",
    )
