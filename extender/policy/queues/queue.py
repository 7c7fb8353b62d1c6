"""A queue of one node pool: its quotas, its shares, and what it holds and asks for.

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
    """No amounts yet."""
    return [0, 0, 0]


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """A queue in one node pool: a department, a project, or any level between or below.

    `allocated` is what it holds or is promised, without pods that are leaving; `leaving` is what
    those still hold; `held` is what its reserved and bound rows hold, leaving or not, and
    `requested` what it held and asked for when shares were divided. `uncounted` is the part of what
    is `pending` in a leaf that has no part in the shares. `np` stands for non-preemptible
    work, which is part of the whole. Reclaim lets a queue take up to `share_to_take` and keep
    `share_to_keep`; see `fairshare` for how they differ. `chain` is the queue and what is above it,
    `limited` those of them that have a limit, and the topmost, which is `UNLIMITED` for all
    below. What it `deserves` is the former, and never less than its quota, even where quotas exceed
    what there is. GPU shares are rounded to its `granule`, the largest of which all its work can
    make use. `np_quota` bounds non-preemptible work: the quota, save that users and workloads have
    none of their own, and that a GPU quota of 0 bounds nothing where work `needs_quota` not.
    `is_user`: it is below its project, a user's or (`is_workload`) a single workload's; a user's
    quota is a part of the project's where quotas count.
    `exact_share` is the share before it is rounded, which turns go by: they measure what a queue
    holds against its `due`, the larger of quota and exact share. `is_spent`: its budget of the
    month is used, and its `limit` is what that leaves it. `held_lately` is as in the snapshot, and
    is measured against `unbent_due`, which is `due` without past use; `is_bent` where past use
    bends the weights of the pool.
    """

    name: str
    parent: "Queue | None" = None
    created_at: int = 0
    figures: PoolQuota = field(default_factory=PoolQuota)
    reclaim_min_runtime_s: int | None = None
    preempt_min_runtime_s: int | None = None
    is_user: bool = False
    is_workload: bool = False
    needs_quota: bool = True
    children: "list[Queue]" = field(default_factory=list)
    chain: "tuple[Queue, ...]" = field(init=False)
    limited: "tuple[Queue, ...]" = field(init=False)
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
        self.limited = () if self.parent is None else self.parent.limited
        if self.parent is None or self.limit != UNBOUND or gpu.month is not None:
            self.limited = (self, *self.limited)
        self.np_quota = UNBOUND if self.is_user else self.quota
        if not self.needs_quota and gpu.quota == 0:
            self.np_quota = UNLIMITED, *self.np_quota[1:]
        if self.parent is not None:
            self.parent.children.append(self)

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def age_key(self) -> tuple[int, str]:
        """Sorts the oldest first: the order that breaks every tie."""
        return self.created_at, self.name

    @property
    def project(self) -> "Queue":
        """The queue itself; of a user or of a single workload, its project."""
        return self.parent.project if self.is_user and self.parent is not None else self

    def may_exceed_share(self, need: Amounts) -> bool:
        """Whether work that alone is larger than what the queue is due may have its turn.

        It may while the queue holds less than it is due, and has held less lately: then what it
        gets too much of now is what it got too little of before.
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
        """Whether GPU work within its quota may reclaim the CPU and memory of work like this: it
        asks for no GPU, and the queue states no quota of either."""
        return not need[GPU] and not states_host(self.quota)

    def has_room(self, more: Amounts, bound: Sequence[int]) -> bool:
        """Whether it stays within the bound with so much more."""
        has = self.allocated
        return (
            (not more[0] or has[0] + more[0] <= bound[0])
            and (not more[1] or has[1] + more[1] <= bound[1])
            and (not more[2] or has[2] + more[2] <= bound[2])
        )

    def may_hold(self, more: Amounts, *, is_np: bool) -> bool:
        """Whether limits, and quotas for non-preemptible work, allow so much more to it and to all
        above it."""
        gpu, cpu, memory = more
        for queue in self.limited:
            now, limit = queue.allocated, queue.limit
            if (
                (gpu and now[0] + gpu > limit[0])
                or (cpu and now[1] + cpu > limit[1])
                or (memory and now[2] + memory > limit[2])
            ):
                return False
        return not is_np or self.may_hold_np(more)

    def may_hold_np(self, more: Amounts) -> bool:
        """Whether quotas for non-preemptible work allow so much more of that to it and to all above
        it."""
        return all(
            queue.allocated_np[r] + more[r] <= queue.np_quota[r]
            for queue in self.chain
            for r in RESOURCES
            if more[r]
        )

    def apply_budget(self, now_s: int) -> None:
        """Lower the limit where the budget of the month is used; once what it holds is counted."""
        bound = bound_of(self.figures.gpu, self.allocated[GPU], now_s)
        if bound is not None:
            self.limit, self.is_spent = (bound, *self.limit[1:]), True

    def has_leaving_pods(self) -> bool:
        """Whether anything is still held, in it or in all above it, by pods on their way out."""
        # What a queue has, all above it have too.
        top = self.chain[-1]
        return any(top.leaving) or any(top.leaving_np)

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
    """The amounts as they are now."""
    return amounts[0], amounts[1], amounts[2]


def states_host(quota: Amounts) -> bool:
    """Whether the quota states CPU or memory."""
    return min(quota[CPU], quota[MEMORY]) < UNLIMITED


def larger(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """The larger of each."""
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def smaller(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """The smaller of each."""
    return min(one[0], other[0]), min(one[1], other[1]), min(one[2], other[2])


def add(to: list[int], amounts: Sequence[int]) -> None:
    """Add in place, resource by resource."""
    to[0] += amounts[0]
    to[1] += amounts[1]
    to[2] += amounts[2]


def subtract(of: list[int], amounts: Amounts) -> None:
    """Subtract in place, resource by resource."""
    of[0] -= amounts[0]
    of[1] -= amounts[1]
    of[2] -= amounts[2]
