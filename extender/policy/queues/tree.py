"""The queue tree of one node pool, with what every queue holds and asks for.

Amounts are GPUs in milli, CPU in milli, memory in MiB, always in this order. The figures of a
`Queue` change while a cycle is simulated; every change goes through `Simulation.charge`, so that a
rollback restores them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from msgspec.structs import replace

from extender.api.units import MILLI_PER_GPU
from extender.policy.plan import QueueShare
from extender.policy.queues.months import bound_of
from extender.state import tally
from extender.state.model import (
    CPU,
    GPU,
    LATELY,
    MEMORY,
    NOTHING,
    UNLIMITED,
    Amounts,
    Figures,
    PodView,
    PoolQuota,
    PoolView,
    QueueView,
    WorkloadView,
    user_queue,
)
from extender.state.snapshot import Snapshot
from extender.state.tally import Tally

RESOURCES = (GPU, CPU, MEMORY)

# What pods are charged is counted where it is summed up, and asked for here.
held_amounts = tally.held_amounts
pod_amounts = tally.pod_amounts
startable = tally.startable
sum_amounts = tally.sum_amounts

_NO_FIGURES: Final = PoolQuota()
#: Users of a project have equal parts of what it has, and nothing guaranteed.
_USER_FIGURES: Final = PoolQuota(cpu=Figures(), memory=Figures())
_UNBOUND: Final[Amounts] = (UNLIMITED, UNLIMITED, UNLIMITED)
#: Figures of a queue that are summed up from its pods, and where they are in a tally's sums.
_SUMMED: Final = (
    ("allocated", tally.ALLOCATED),
    ("allocated_np", tally.ALLOCATED_NP),
    ("leaving", tally.LEAVING),
    ("leaving_np", tally.LEAVING_NP),
    ("held", tally.HELD),
    ("held_np", tally.HELD_NP),
    ("pending", tally.PENDING),
    ("pending_np", tally.PENDING_NP),
)


def _nothing() -> list[int]:
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
    `is_user`: it is below its project, a user's or (`is_workload`) a single workload's.
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
    reclaim_min_runtime_s: int = 0
    preempt_min_runtime_s: int = 0
    is_user: bool = False
    is_workload: bool = False
    needs_quota: bool = True
    children: "list[Queue]" = field(default_factory=list)
    chain: "tuple[Queue, ...]" = field(init=False)
    limited: "tuple[Queue, ...]" = field(init=False)
    quota: Amounts = field(init=False)
    limit: Amounts = field(init=False)
    np_quota: Amounts = field(init=False)
    allocated: list[int] = field(default_factory=_nothing)
    allocated_np: list[int] = field(default_factory=_nothing)
    leaving: list[int] = field(default_factory=_nothing)
    leaving_np: list[int] = field(default_factory=_nothing)
    held: list[int] = field(default_factory=_nothing)
    held_np: list[int] = field(default_factory=_nothing)
    pending: list[int] = field(default_factory=_nothing)
    pending_np: list[int] = field(default_factory=_nothing)
    uncounted: list[int] = field(default_factory=_nothing)
    uncounted_np: list[int] = field(default_factory=_nothing)
    granule: int = MILLI_PER_GPU
    requested: Amounts = NOTHING
    share: list[int] = field(default_factory=_nothing)
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
        if self.parent is None or self.limit != _UNBOUND or gpu.month is not None:
            self.limited = (self, *self.limited)
        self.np_quota = _UNBOUND if self.is_user else self.quota
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

    def is_owed_more_than_its_share(self, need: Amounts) -> bool:
        """Whether work that alone is larger than what the queue is due may have its turn.

        It may while the queue holds less than it is due, and has held less lately: then what it
        gets too much of now is what it got too little of before.
        """
        is_larger = False
        for resource in RESOURCES:
            due = self.due[resource]
            if self.allocated[resource] + need[resource] <= due:
                continue
            is_larger = is_larger or need[resource] > due
            if self.allocated[resource] >= due or self.held_lately[resource] >= due * LATELY:
                return False
        return is_larger

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
        for queue in self.chain if is_np else ():
            has, most = queue.allocated_np, queue.np_quota
            if any(more[r] and has[r] + more[r] > most[r] for r in RESOURCES):
                return False
        return True

    def hold_to_budget(self, now_s: int) -> None:
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


@dataclass(slots=True)
class PoolQueues:
    """The queues of one node pool by name, its roots in order of age, and what they share.

    `by_workload` are the queues of single workloads, in pools that share among workloads.
    """

    pool: str
    by_name: dict[str, Queue] = field(default_factory=dict)
    by_workload: dict[str, Queue] = field(default_factory=dict)
    roots: list[Queue] = field(default_factory=list)
    capacity: list[int] = field(default_factory=_nothing)
    smallest_card_mib: int = 0
    largest_card_mib: int = 0

    def leaf_of(self, workload: WorkloadView) -> Queue | None:
        """The queue that the workload's pods are charged to; None when its project is unknown."""
        own = self.by_workload.get(workload.key)
        return own or self.leaf(workload.project, workload.user)

    def leaf(self, project: str, user: str) -> Queue | None:
        """The user's queue where the project's work names users, else the project's."""
        queue = self.by_name.get(project)
        if queue is None or not queue.children:
            return queue
        return self.by_name.get(user_queue(project, user), queue)


def build_queues(snapshot: Snapshot) -> dict[str, PoolQueues]:
    """The queues of every node pool with what the snapshot's pods hold and ask for.

    Costs one pass over nodes, queues and the sums of the tally.
    """
    summed = tally_of(snapshot)
    listed = _parents_first(snapshot)
    users = summed.users()
    pools = {
        name: _empty_queues(listed, users, view) for name, view in sorted(snapshot.pools.items())
    }
    _count_capacity(snapshot, pools)
    for key, sums in summed.sums.items():
        pool, project, user = key
        queues = pools.get(pool)
        if queues is not None and snapshot.pools[pool].policy != "demand-weighted":
            _count(queues, queues.leaf(project, user), sums, summed.granule(key))
    shared_by_workload = {
        name: queues
        for name, queues in pools.items()
        if snapshot.pools[name].policy == "demand-weighted"
    }
    if shared_by_workload:
        _add_workloads(snapshot, shared_by_workload)
    for queues in pools.values():
        for queue in queues.by_name.values():
            queue.hold_to_budget(snapshot.now_s)
    for (name, pool), amounts in snapshot.held_lately.items():
        if pool in pools and (held := pools[pool].by_name.get(name)) is not None:
            held.held_lately = amounts
    return pools


def _add_workloads(snapshot: Snapshot, pools: Mapping[str, PoolQueues]) -> None:
    """Give every workload a queue of its own in these pools, and count there what it holds and asks
    for. Costs one pass over all pods."""
    workloads = snapshot.workloads
    alone = {key: replace(workload, user=key) for key, workload in workloads.items()}
    summed = Tally.of(snapshot.nodes, alone)
    leaves = {id(q) for each in pools.values() for q in each.by_name.values() if not q.children}
    for at, sums in sorted(summed.sums.items()):
        pool, project, key = at
        if (queues := pools.get(pool)) is None:
            continue
        workload = workloads[key]
        leaf = queues.leaf(project, workload.user)
        if leaf is not None and id(leaf) in leaves:
            figures = PoolQuota(Figures(weight=workload.weight), cpu=Figures(), memory=Figures())
            leaf = Queue(key, leaf, workload.created_at, figures, is_user=True)
            leaf.is_workload = True
            queues.by_workload[key] = leaf
        _count(queues, leaf, sums, summed.granule(at))


def tally_of(snapshot: Snapshot) -> Tally:
    """The snapshot's tally; it is given one where it has none."""
    if snapshot.tally is None:
        snapshot.tally = Tally.of(snapshot.nodes, snapshot.workloads)
    return snapshot.tally


def held_pool(snapshot: Snapshot, pod: PodView) -> str:
    """The node pool of the node that the pod holds; empty when it holds none that is known."""
    ix = snapshot.nodes.ix_of(pod.node) if pod.node else None
    return "" if ix is None else snapshot.nodes.pool[ix]


def frozen(amounts: list[int]) -> Amounts:
    """The amounts as they are now."""
    return amounts[0], amounts[1], amounts[2]


def _parents_first(snapshot: Snapshot) -> list[QueueView | list[QueueView]]:
    """All queues in order of age, parents first. A list stands for a parent that doesn't exist, and
    holds the queues that name it; queues that are their own ancestors are left out."""
    below: dict[str, list[QueueView]] = {}
    for view in sorted(snapshot.queues.values(), key=lambda view: (view.created_at, view.name)):
        below.setdefault(view.parent, []).append(view)
    absent = sorted(name for name in below if name and name not in snapshot.queues)
    listed: list[QueueView | list[QueueView]] = [below[name] for name in absent]
    ready = [*below.get("", ()), *(view for name in absent for view in below[name])]
    for view in ready:
        listed.append(view)
        ready.extend(below.get(view.name, ()))
    return listed


def _empty_queues(
    listed: Sequence[QueueView | list[QueueView]], users: Mapping[str, set[str]], of: PoolView
) -> PoolQueues:
    """The tree without usage. A missing parent is made, with the quotas of its child."""
    pool, needs_quota = of.name, of.policy == "fairshare"
    queues = PoolQueues(pool)
    by_name = queues.by_name
    for view in listed:
        if isinstance(view, list):
            by_name[view[0].parent] = _stand_in(view[0].parent, view, of)
            continue
        by_name[view.name] = Queue(
            name=view.name,
            parent=by_name.get(view.parent),
            created_at=view.created_at,
            figures=view.pools.get(pool, _NO_FIGURES),
            reclaim_min_runtime_s=view.reclaim_min_runtime_s,
            preempt_min_runtime_s=view.preempt_min_runtime_s,
            needs_quota=needs_quota,
        )
    for project in sorted(users):
        parent = by_name.get(project)
        if parent is None or parent.children:
            continue
        for user in sorted(users[project]):
            name = user_queue(project, user)
            by_name[name] = Queue(name, parent, parent.created_at, _USER_FIGURES, is_user=True)
    queues.roots = [queue for queue in by_name.values() if queue.parent is None]
    queues.roots.sort(key=lambda queue: queue.age_key)
    return queues


def _stand_in(name: str, views: list[QueueView], of: PoolView) -> Queue:
    """A queue that doesn't exist: its quota is what those below it have."""
    quota = sum_amounts(
        tuple(f.quota for f in view.pools.get(of.name, PoolQuota()).figures)  # type: ignore[misc]
        for view in views
    )
    gpu, cpu, memory = (
        Figures(min(UNLIMITED, amount), weight=min(UNLIMITED, amount) or 1) for amount in quota
    )
    oldest = min(view.created_at for view in views)
    queue = Queue(name, None, oldest, PoolQuota(gpu, cpu, memory))
    if of.policy != "fairshare":
        queue.np_quota = _UNBOUND
    return queue


def _count_capacity(snapshot: Snapshot, pools: dict[str, PoolQueues]) -> None:
    nodes, cards = snapshot.nodes, snapshot.nodes.cards
    amounts = cards.capacity_milli, nodes.cpu_milli, nodes.memory_mib
    is_cut = any(nodes.counted_milli)
    ready: dict[str, list[int]] = {}
    for ix, (pool, is_ready) in enumerate(zip(nodes.pool, nodes.is_ready, strict=True)):
        if is_ready:
            ready.setdefault(pool, []).append(ix)
    for pool, queues in pools.items():
        here = ready.get(pool, [])
        add(queues.capacity, [sum(map(column.__getitem__, here)) for column in amounts])
        if is_cut:
            queues.capacity[GPU] += sum(map(nodes.counted_milli.__getitem__, here))
        # Cards that pods without a row hold are not shared.
        queues.capacity[GPU] -= sum(map(cards.foreign_milli.__getitem__, here))
        if sizes := set(map(cards.card_mib.__getitem__, here)) - {0}:
            queues.smallest_card_mib, queues.largest_card_mib = min(sizes), max(sizes)


def _count(queues: PoolQueues, leaf: Queue | None, sums: Sequence[int], granule: int) -> None:
    """Add sums of a tally to their queue and all above it; the pods can use multiples of
    `granule`."""
    if leaf is None:
        # Work outside every queue is not shared: the others divide what it leaves.
        for resource in RESOURCES:
            held = sums[tally.ALLOCATED + resource] + sums[tally.LEAVING + resource]
            queues.capacity[resource] = max(0, queues.capacity[resource] - held)
        return
    for name, at in _SUMMED:
        amounts = sums[at], sums[at + 1], sums[at + 2]
        if amounts != NOTHING:
            for queue in leaf.chain:
                add(getattr(queue, name), amounts)
    for queue in leaf.chain if granule < MILLI_PER_GPU else ():
        queue.granule = gcd(queue.granule, granule)


def larger(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """The larger of each."""
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


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
