"""A queue of one node pool: its quotas, shares, allocation and requests.

Amounts are GPUs in milli, CPU in milli, memory in MiB, always in this order. The figures of a
`Queue` change while a cycle is simulated; every change goes through `Simulation.charge`, so that a
rollback restores them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api.units import MILLI_PER_GPU
from extender.policy.plan import QueueShare
from extender.policy.queues.months import bound_of
from extender.state.model import (
    CPU,
    GPU,
    LATELY,
    MEMORY,
    NOTHING,
    UNLIMITED,
    Amounts,
    PoolQuota,
)

RESOURCES = (GPU, CPU, MEMORY)
UNBOUND: Final[Amounts] = (UNLIMITED, UNLIMITED, UNLIMITED)


def nothing() -> list[int]:
    """A list of zero amounts."""
    return [0, 0, 0]


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """A queue in one node pool: a department, a project, or any level between or below.

    - `allocated`: held or nominated amounts without terminating pods; `leaving`: held by
      terminating pods; `held`: in reserved and bound rows, terminating or not; `requested`:
      allocated plus pending when shares were divided; `uncounted`: the part of `pending` in a leaf
      that does not count as demand. The suffix `_np` marks the non-preemptible part.
    - `chain`: the queue and its ancestors.
    - `is_user`: a queue below its project, of a user or (`is_workload`) of a single workload.
    - `quota`: a user's is a part of the project's where quotas count. `np_quota` bounds
      non-preemptible workloads. It is the quota, but unlimited for user and workload queues, and a
      GPU quota of 0 is unlimited outside pools of policy `fairshare`.
    - `share`: GPU shares are multiples of `granule`, the largest amount that all workloads of the
      queue can use; `exact_share`: before rounding.
    - `share_to_take` and `share_to_keep`: what reclaim lets the queue take and keep; see
      `fairshare`. `deserves`: the larger of `share_to_take` and quota, even where quotas exceed the
      capacity.
    - `due`: the larger of quota and exact share; the order of queues compares the allocation with
      it. `unbent_due`: `due` without past use; `held_lately`, as in the snapshot, is compared with
      it. `is_bent`: past use bends the weights of the pool.
    - `is_spent`: the budget of the month is used, and `limit` is lowered to what it allows.
    """

    name: str
    parent: "Queue | None" = None
    created_at: int = 0
    figures: PoolQuota = field(default_factory=PoolQuota)
    reclaim_min_runtime_s: int | None = None
    preempt_min_runtime_s: int | None = None
    is_user: bool = False
    is_workload: bool = False
    children: "list[Queue]" = field(default_factory=list)
    chain: "tuple[Queue, ...]" = field(init=False)
    quota: Amounts = field(init=False)
    limit: Amounts = field(init=False)
    np_quota: Amounts = field(init=False)
    allocated: list[int] = field(default_factory=nothing)
    allocated_np: list[int] = field(default_factory=nothing)
    leaving: list[int] = field(default_factory=nothing)
    leaving_np: list[int] = field(default_factory=nothing)
    held: list[int] = field(default_factory=nothing)
    held_np: list[int] = field(default_factory=nothing)
    pending: list[int] = field(default_factory=nothing)
    pending_np: list[int] = field(default_factory=nothing)
    uncounted: list[int] = field(default_factory=nothing)
    uncounted_np: list[int] = field(default_factory=nothing)
    granule: int = MILLI_PER_GPU
    requested: Amounts = NOTHING
    share: list[int] = field(default_factory=nothing)
    share_to_take: Amounts = NOTHING
    share_to_keep: Amounts = NOTHING
    deserves: Amounts = NOTHING
    due: Amounts = NOTHING
    unbent_due: Amounts = NOTHING
    exact_share: Amounts = NOTHING
    is_bent: bool = False
    is_spent: bool = False
    held_lately: Amounts = NOTHING

    def __post_init__(self) -> None:
        self.chain = (self,) if self.parent is None else (self, *self.parent.chain)
        gpu, cpu, memory = self.figures.figures
        self.quota = gpu.quota, cpu.quota, memory.quota
        self.limit = gpu.limit, cpu.limit, memory.limit
        self.np_quota = UNBOUND if self.is_user else self.quota
        if self.parent is not None:
            self.parent.children.append(self)

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def age_key(self) -> tuple[int, str]:
        """Sort key that breaks every tie: the oldest queue first."""
        return self.created_at, self.name

    @property
    def project(self) -> "Queue":
        """The project of a user or workload queue; for any other queue, the queue itself."""
        return self.parent.project if self.is_user and self.parent is not None else self

    def may_exceed_share(self, need: Amounts) -> bool:
        """Whether a workload that alone is larger than the queue's due may start.

        It may while the queue holds less than its due and has held less lately, since the excess
        makes up for the earlier shortfall.
        """
        is_larger = False
        for resource in RESOURCES:
            due = self.unbent_due[resource]
            if self.allocated[resource] + need[resource] <= due:
                continue
            is_larger = is_larger or need[resource] > due
            if self.allocated[resource] >= due or self.held_lately[resource] >= due * LATELY:
                return False
        return is_larger

    def is_host_reclaimable(self, need: Amounts) -> bool:
        """Whether GPU workloads within their quota may reclaim CPU and memory from such a workload:
        it requests no GPU, and the queue states no CPU or memory quota."""
        return not need[GPU] and not states_host(self.quota)

    def has_room(self, more: Amounts, bound: Sequence[int]) -> bool:
        """Whether the allocation plus `more` stays within the bound."""
        has = self.allocated
        return (
            (not more[0] or has[0] + more[0] <= bound[0])
            and (not more[1] or has[1] + more[1] <= bound[1])
            and (not more[2] or has[2] + more[2] <= bound[2])
        )

    def may_hold(self, more: Amounts, *, is_np: bool) -> bool:
        """Whether limits, and quotas if `is_np`, allow `more` to the queue and its ancestors."""
        gpu, cpu, memory = more
        for queue in self.chain:
            now, limit = queue.allocated, queue.limit
            if (
                (gpu and now[0] + gpu > limit[0])
                or (cpu and now[1] + cpu > limit[1])
                or (memory and now[2] + memory > limit[2])
            ):
                return False
        return not is_np or self.may_hold_np(more)

    def may_hold_np(self, more: Amounts) -> bool:
        """Whether non-preemptible quotas allow `more` to the queue and its ancestors."""
        return all(
            queue.allocated_np[r] + more[r] <= queue.np_quota[r]
            for queue in self.chain
            for r in RESOURCES
            if more[r]
        )

    def apply_budget(self, now_s: int) -> None:
        """Lower the limit if the month's budget is used; call this once `allocated` is set."""
        bound = bound_of(self.figures.gpu, self.allocated[GPU], now_s)
        if bound is not None:
            self.limit, self.is_spent = (bound, *self.limit[1:]), True

    def has_leaving_pods(self) -> bool:
        """Whether terminating pods still hold anything in the queue's whole tree."""
        root = self.chain[-1]
        return any(root.leaving) or any(root.leaving_np)

    def as_share(self) -> QueueShare:
        """The figures to publish."""
        return QueueShare(
            quota=self.quota,
            limit=(self.figures.gpu.limit, *self.limit[1:]),
            month=self.figures.gpu.month,
            fair_share=frozen(self.share),
            allocated=frozen(self.held),
            allocated_non_preemptible=frozen(self.held_np),
            requested=self.requested,
        )


def frozen(amounts: list[int]) -> Amounts:
    """An immutable copy of the amounts."""
    return amounts[0], amounts[1], amounts[2]


def states_host(quota: Amounts) -> bool:
    """Whether the quota states CPU or memory."""
    return min(quota[CPU], quota[MEMORY]) < UNLIMITED


def larger(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """The maximum per resource."""
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def smaller(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """The minimum per resource."""
    return min(one[0], other[0]), min(one[1], other[1]), min(one[2], other[2])


def add(to: list[int], amounts: Sequence[int]) -> None:
    """Add in place, resource by resource."""
    to[0] += amounts[0]
    to[1] += amounts[1]
    to[2] += amounts[2]


def subtract(of: list[int], amounts: Sequence[int]) -> None:
    """Subtract in place, resource by resource."""
    of[0] -= amounts[0]
    of[1] -= amounts[1]
    of[2] -= amounts[2]
