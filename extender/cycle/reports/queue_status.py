"""The statuses of queues and node pools: shares, use, and mistakes in their specs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from extender.api.kinds import (
    GpuDepartment,
    GpuNodePool,
    GpuNodePoolStatus,
    GpuProject,
    HostUse,
    MonthUse,
    PastUse,
    PoolUse,
    QueueStatus,
    QueueSummary,
)
from extender.api.objects import Condition
from extender.api.reasons import Reason
from extender.api.selectors import lacking
from extender.api.units import MILLI_PER_GPU, format_gpus
from extender.cycle.pool_metrics import PoolSums
from extender.cycle.reports.conditions import OVER_QUOTA, VALID, condition
from extender.policy.plan import QueueShare
from extender.state.model import CPU, GPU, MEMORY, UNLIMITED
from extender.state.problems import Problem


class PodCounts(NamedTuple):
    """The pods of a queue, in all node pools together: how many are pending and bound, the
    milli-GPU that pending ones request, and how much more that is if each counts in every pool that
    it may use."""

    pending: int = 0
    bound: int = 0
    waiting_milli: int = 0
    repeated_milli: int = 0

    def plus(self, other: "PodCounts", sign: int = 1) -> "PodCounts":
        """The sums with the other's; the differences if `sign` is -1."""
        return PodCounts(*(one + sign * more for one, more in zip(self, other, strict=True)))


QueueState = Literal["InQuota", "OverQuota", "OverFairShare"]
_HOLDS: Final[Mapping[QueueState, Reason]] = {
    "InQuota": Reason.WITHIN_QUOTA,
    "OverQuota": Reason.ABOVE_QUOTA,
    "OverFairShare": Reason.ABOVE_FAIR_SHARE,
}

_NONE: Final[Mapping[str, MonthUse]] = {}

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
    months: Mapping[str, MonthUse] = _NONE,
) -> QueueStatus:
    """The status of a GpuDepartment or GpuProject. `past` is its past use by node pool, `months`
    its use of this month."""
    listed = [share for _, share in shares]
    return QueueStatus(
        state=_state(listed),
        gpu=_summary(listed, pods),
        node_pools=[
            _pool_use(pool, share, past.get(pool, UNSET), months.get(pool, UNSET))
            for pool, share in shares
        ],
        conditions=conditions,
    )


def over_quota(status: QueueStatus, before: Sequence[Condition]) -> Condition:
    """The condition that says whether the queue's pods hold more than its quota."""
    return condition(OVER_QUOTA, status.state != "InQuota", _HOLDS[status.state], "", before)


def _state(shares: Sequence[QueueShare]) -> QueueState:
    """The worst of all node pools: quota that is unused in one pool covers nothing in another."""
    over = [share for share in shares if share.allocated[GPU] > share.quota[GPU]]
    if not over:
        return "InQuota"
    if all(share.allocated[GPU] <= share.fair_share[GPU] for share in over):
        return "OverQuota"
    return "OverFairShare"


def _summary(shares: Sequence[QueueShare], pods: PodCounts) -> QueueSummary:
    limits = [share.limit[GPU] for share in shares]
    is_limited = bool(limits) and max(limits) < UNLIMITED
    return QueueSummary(
        quota=format_gpus(sum(share.quota[GPU] for share in shares)),
        limit=format_gpus(sum(limits)) if is_limited else "unlimited",
        fair_share=format_gpus(sum(share.fair_share[GPU] for share in shares)),
        allocated=format_gpus(sum(share.allocated[GPU] for share in shares)),
        borrowed=format_gpus(sum(share.borrowed_milli for share in shares)),
        requested=format_gpus(sum(share.requested[GPU] for share in shares) - pods.repeated_milli),
        waiting=format_gpus(pods.waiting_milli),
        pending_pods=pods.pending,
        running_pods=pods.bound,
    )


def pool_statuses(sums: Mapping[str, PoolSums]) -> dict[str, GpuNodePoolStatus]:
    """Capacity, use and fragments of every pool."""
    return {
        name: GpuNodePoolStatus(
            nodes=of.nodes,
            capacity=format_gpus(of.capacity),
            allocated=format_gpus(of.held),
            fragmented=format_gpus(of.free_pieces),
            largest_node_gpus=of.largest // MILLI_PER_GPU,
            largest_card_mib=of.largest_mib,
        )
        for name, of in sums.items()
    }


def validity(
    problems: Iterable[Problem], before: Sequence[Condition], note: str = ""
) -> list[Condition]:
    """The condition that says whether the object's spec is valid; `note` is said of one that is."""
    listed = list(problems)
    if not listed:
        return [condition(VALID, True, Reason.ACCEPTED, note, before)]
    text = "; ".join(problem.text for problem in listed)
    return [condition(VALID, False, Reason(listed[0].fault), text, before)]


def why_without_pods(queue: GpuDepartment | GpuProject) -> str:
    """What is said of a project to which no pod can belong; empty for other queues."""
    if isinstance(queue, GpuProject) and not queue.spec.namespaces:
        return "it lists no namespace, so no pod belongs to it"
    return ""


def why_empty(pool: GpuNodePool, labels: Sequence[Mapping[str, str]], pools: Sequence[str]) -> str:
    """Why no node is in the pool, from the labels and pools of all GPU nodes; empty where an
    autoscaler adds nodes or there are none."""
    selector = pool.spec.node_selector
    if not selector or pool.spec.elastic or not any(labels):
        return ""
    for key, value, there in lacking(selector.items(), labels):
        among = f" (they have {', '.join(there)})" if there else ""
        return f"it has no node: no GPU node has the label {key}={value}{among}"
    here = {
        other for each, other in zip(labels, pools, strict=True) if selector.items() <= each.items()
    }
    if here:
        others = "pool" if len(here) == 1 else "pools"
        return (
            "it has no node: those that its nodeSelector selects are in node"
            f" {others} {', '.join(sorted(here))}, whose name comes first"
        )
    return "it has no node: no GPU node has all labels of its nodeSelector"


def _pool_use(
    pool: str, share: QueueShare, past: PastUse | UnsetType, month: MonthUse | UnsetType
) -> PoolUse:
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
        month=month,
    )


def _host_use(share: QueueShare, resource: int, unit: str) -> HostUse | UnsetType:
    """CPU or memory, if it has a quota or a limit."""
    if share.quota[resource] >= UNLIMITED and share.limit[resource] >= UNLIMITED:
        return UNSET
    return HostUse(
        fair_share=f"{share.fair_share[resource]}{unit}",
        allocated=f"{share.allocated[resource]}{unit}",
        requested=f"{share.requested[resource]}{unit}",
    )
