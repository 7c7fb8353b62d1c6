"""What waits of a workload, in the portions in which it is decided.

The first portion, or chunk, is what its minimum lacks: placed whole or not at all. Then every
further pod is a chunk of its own, which stands behind all minimums of equal priority.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.policy.plan import Placement
from extender.policy.queues import PoolQueues, held_pool, pod_amounts, startable, sum_amounts
from extender.state.model import Amounts, PodView, Snapshot, WorkloadView


@dataclass(slots=True, eq=False)
class Pending:
    """A workload with pods that wait. `pools` is what it may still use, in order of preference."""

    workload: WorkloadView
    waiting: Sequence[PodView]
    pools: tuple[str, ...]
    n_live: int
    card_mib: int = 0
    _sort_key: tuple[int, bool, int, str] = field(init=False)

    def __post_init__(self) -> None:
        self._sort_key = self._key()

    def __lt__(self, other: "Pending") -> bool:
        return self._sort_key < other._sort_key

    @property
    def chunk(self) -> Sequence[PodView]:
        """The pods to be placed next, all or none."""
        return self.waiting[: max(1, self.workload.min_member - self.n_live)]

    @property
    def is_gang(self) -> bool:
        """Whether its pods belong together in one node pool."""
        return self.workload.min_member > 1

    @property
    def is_surplus(self) -> bool:
        """Whether what waits is above the workload's minimum."""
        return self.n_live >= self.workload.min_member

    def need(self) -> Amounts:
        """What the chunk asks for; requests in MiB at the least that they can be."""
        return sum_amounts(pod_amounts(pod.demand, self.card_mib) for pod in self.chunk)

    def advance(self, placements: Sequence[Placement], pool: str) -> "Pending | None":
        """The chunk has its places in `pool`; returns itself while more pods wait."""
        self.waiting = self.waiting[len(placements) :]
        self.n_live += len(placements)
        if self.is_gang:
            self.pools = (pool,)
        self._sort_key = self._key()
        return self if self.waiting else None

    def _key(self) -> tuple[int, bool, int, str]:
        workload = self.workload
        return -workload.priority, self.is_surplus, workload.created_at, workload.key


def read_pending(
    snapshot: Snapshot, pools: dict[str, PoolQueues], workload: WorkloadView
) -> Pending | Refused | None:
    """What waits of the workload, why nothing of it can be tried, or None when nothing waits."""
    waiting = [pod for pod in startable(workload) if pod.state == "gated"]
    gated = [pod for pod in workload.pods if pod.state == "gated" and not pod.is_terminating]
    if not gated:
        return None
    live = [pod for pod in workload.pods if _is_live(pod)]
    refused = _why_not(workload, waiting, gated, len(live))
    if refused is not None:
        return refused
    usable = [pool for pool in dict.fromkeys(workload.pools) if pool in pools]
    if live and workload.min_member > 1:
        usable = [pool for pool in (held_pool(snapshot, live[0]),) if pool in pools]
    if not usable:
        return Refused(
            Reason.UNKNOWN_NODE_POOL,
            f"{workload.key}: none of its node pools exists: {', '.join(workload.pools) or '-'}",
        )
    if pools[usable[0]].leaf_of(workload) is None:
        return Refused(
            Reason.UNKNOWN_PROJECT, f"{workload.key}: no project {workload.project or '-'}"
        )
    waiting.sort(key=lambda pod: (-pod.priority, pod.created_at, pod.key))
    return Pending(
        workload=workload,
        waiting=waiting,
        pools=tuple(usable),
        n_live=len(live),
        card_mib=max(pools[pool].largest_card_mib for pool in usable),
    )


def _why_not(
    workload: WorkloadView, waiting: Sequence[PodView], gated: Sequence[PodView], n_live: int
) -> Refused | None:
    """Why the workload can't be tried, whatever is free."""
    if workload.problem is not None:
        return workload.problem
    key, lacking = workload.key, workload.min_member - n_live - len(waiting)
    held = sorted({gate for pod in gated for gate in pod.other_gates})
    if held and (lacking > 0 or not waiting):
        return Refused(Reason.HELD_BY_OTHER_GATE, f"{key}: held by {', '.join(held)}")
    if not waiting:
        return Refused(Reason.OVER_LIMIT, f"{key}: runs {n_live} pods at once, as many as it may")
    if lacking > 0:
        least = workload.min_member
        return Refused(
            Reason.GANG_INCOMPLETE,
            f"{key}: has {least - lacking} of the {least} pods that must run together",
        )
    return None


def _is_live(pod: PodView) -> bool:
    return pod.state in ("nominated", "reserved", "bound") and not pod.is_terminating
