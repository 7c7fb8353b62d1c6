"""The queue tree of one node pool, built from the snapshot and its tally."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from msgspec.structs import replace

from extender.api.demand import slices_milli
from extender.api.units import MILLI_PER_GPU
from extender.policy.queues.queue import RESOURCES, UNBOUND, Queue, add, nothing
from extender.state import tally
from extender.state.figures import of_department
from extender.state.model import (
    GPU,
    NOTHING,
    UNLIMITED,
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

_NO_FIGURES: Final = PoolQuota()
#: Users have no figures of their own: `fairshare` gives them equal parts of the project's quota.
_USER_FIGURES: Final = PoolQuota(cpu=Figures(), memory=Figures())
#: The figures of a queue that are sums over its pods, and their offsets in a tally's sums.
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


@dataclass(slots=True)
class PoolQueues:
    """The queues of one node pool by name, the roots by age, and the capacity that they share.

    `by_workload` has a queue per workload, in pools that share among workloads.
    """

    pool: str
    by_name: dict[str, Queue] = field(default_factory=dict)
    by_workload: dict[str, Queue] = field(default_factory=dict)
    roots: list[Queue] = field(default_factory=list)
    capacity: list[int] = field(default_factory=nothing)
    smallest_card_mib: int = 0
    largest_card_mib: int = 0

    @property
    def has_unequal_cards(self) -> bool:
        """Whether cards differ in memory size."""
        return self.smallest_card_mib < self.largest_card_mib

    def leaf_of(self, workload: WorkloadView) -> Queue | None:
        """The queue that the workload's pods are charged to; None if its project is unknown."""
        if self.by_workload and (own := self.by_workload.get(workload.key)) is not None:
            return own
        return self.leaf(workload.project, workload.user)

    def leaf(self, project: str, user: str) -> Queue | None:
        """The user's queue if the project's workloads name users, else the project's."""
        queue = self.by_name.get(project)
        if queue is None or not queue.children:
            return queue
        return self.by_name.get(user_queue(project, user), queue)


def build_queues(snapshot: Snapshot) -> dict[str, PoolQueues]:
    """The queues of every node pool, with the allocation and requests of the snapshot's pods.

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
            _add_sums(queues, queues.leaf(project, user), sums, summed.granule(key))
    shared_by_workload = {
        name: queues
        for name, queues in pools.items()
        if snapshot.pools[name].policy == "demand-weighted"
    }
    if shared_by_workload:
        _add_workloads(snapshot, shared_by_workload)
    for queues in pools.values():
        for queue in queues.by_name.values():
            queue.apply_budget(snapshot.now_s)
    for (name, pool), amounts in snapshot.held_lately.items():
        if pool in pools and (held := pools[pool].by_name.get(name)) is not None:
            held.held_lately = amounts
    return pools


def _add_workloads(snapshot: Snapshot, pools: Mapping[str, PoolQueues]) -> None:
    """Give every workload a queue of its own in these pools, with its allocation and requests.

    Costs one pass over all pods.
    """
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
            age = workload.created_at
            leaf = Queue(key, leaf, age, figures, is_user=True, is_workload=True)
            queues.by_workload[key] = leaf
        _add_sums(queues, leaf, sums, summed.granule(at))


def tally_of(snapshot: Snapshot) -> Tally:
    """The snapshot's tally, made and stored if it has none."""
    if snapshot.tally is None:
        snapshot.tally = Tally.of(snapshot.nodes, snapshot.workloads)
    return snapshot.tally


def held_pool(snapshot: Snapshot, pod: PodView) -> str:
    """The pool of the pod's node; empty if the node is unknown."""
    return snapshot.nodes.pool_of(pod.node)


def _parents_first(snapshot: Snapshot) -> list[QueueView | list[QueueView]]:
    """All queues in order of age, parents first.

    A list represents a missing parent and has the queues that name it. Queues in a cycle are left
    out.
    """
    below: dict[str, list[QueueView]] = {}
    for view in sorted(snapshot.queues.values(), key=lambda view: (view.created_at, view.name)):
        below.setdefault(view.parent, []).append(view)
    absent = sorted(name for name in below if name and name not in snapshot.queues)
    listed: list[QueueView | list[QueueView]] = [below[name] for name in absent]
    ready = [*below.pop("", ()), *(view for name in absent for view in below[name])]
    for view in ready:
        listed.append(view)
        ready.extend(below.pop(view.name, ()))
    return listed


def _empty_queues(
    listed: Sequence[QueueView | list[QueueView]], users: Mapping[str, set[str]], of: PoolView
) -> PoolQueues:
    """The tree without amounts; a missing parent gets the sum of its children's quotas."""
    pool = of.name
    queues = PoolQueues(pool)
    by_name = queues.by_name
    for view in listed:
        if isinstance(view, list):
            by_name[view[0].parent] = _missing_parent(view[0].parent, view, of)
            continue
        queue = by_name[view.name] = Queue(
            name=view.name,
            parent=by_name.get(view.parent),
            created_at=view.created_at,
            figures=view.pools.get(pool, _NO_FIGURES),
            reclaim_min_runtime_s=view.reclaim_min_runtime_s,
            preempt_min_runtime_s=view.preempt_min_runtime_s,
        )
        if of.policy != "fairshare" and queue.quota[GPU] == 0:
            queue.np_quota = UNLIMITED, *queue.np_quota[1:]
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


def _missing_parent(name: str, views: list[QueueView], of: PoolView) -> Queue:
    """A queue for a missing parent; its quota is the sum of its children's."""
    quota = tally.sum_amounts(
        tuple(f.quota for f in view.pools.get(of.name, PoolQuota()).figures)  # type: ignore[misc]
        for view in views
    )
    gpu, cpu, memory = (Figures(min(UNLIMITED, amount)) for amount in quota)
    oldest = min(view.created_at for view in views)
    queue = Queue(name, None, oldest, of_department(PoolQuota(gpu, cpu, memory)))
    if of.policy != "fairshare":
        queue.np_quota = UNBOUND
    return queue


def _count_capacity(snapshot: Snapshot, pools: dict[str, PoolQueues]) -> None:
    nodes, cards = snapshot.nodes, snapshot.nodes.cards
    amounts = cards.capacity_milli, nodes.cpu_milli, nodes.memory_mib
    is_cut = any(nodes.counted)
    ready: dict[str, list[int]] = {}
    for ix, (pool, is_ready) in enumerate(zip(nodes.pool, nodes.is_ready, strict=True)):
        if is_ready:
            ready.setdefault(pool, []).append(ix)
    for pool, queues in pools.items():
        here = ready.get(pool, [])
        add(queues.capacity, [sum(map(column.__getitem__, here)) for column in amounts])
        if is_cut:
            queues.capacity[GPU] += sum(slices_milli(nodes.counted[ix].items()) for ix in here)
        # Cards held by pods without a row are not shared.
        queues.capacity[GPU] -= sum(map(cards.foreign_milli.__getitem__, here))
        if sizes := set(map(cards.card_mib.__getitem__, here)) - {0}:
            queues.smallest_card_mib, queues.largest_card_mib = min(sizes), max(sizes)


def _add_sums(queues: PoolQueues, leaf: Queue | None, sums: Sequence[int], granule: int) -> None:
    """Add a tally's sums to the leaf and its ancestors; its pods can use multiples of `granule`."""
    if leaf is None:
        # Pods outside every queue reduce the capacity that the queues share.
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
