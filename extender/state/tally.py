"""Sums of what pods hold and request, updated incrementally, so a decision need not read all pods.

Sums are per node pool, project and user. A workload's part of them depends only on its view and on
the pools of the nodes. `ClusterState` keeps one Tally and gives each snapshot a copy; `Tally.of`
counts from scratch, for a snapshot without one.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.state.model import GPU, Amounts, PodView, WorkloadView
from extender.state.nodes import NodeTable

#: (node pool, project, user); the user is empty if the workload names none.
TallyKey = tuple[str, str, str]

# A sum is a flat list: three amounts (GPU, CPU, memory) from each of these offsets on, then the
# number of pods in it. Each figure is followed by its non-preemptible part.
ALLOCATED: Final = 0
ALLOCATED_NP: Final = 3
LEAVING: Final = 6
LEAVING_NP: Final = 9
HELD: Final = 12
HELD_NP: Final = 15
PENDING: Final = 18
PENDING_NP: Final = 21
N_PODS: Final = 24
_WIDTH: Final = 25

_WAITING: Final = ("gated", "foreign")
#: Property of a workload or of one of its pods -> the set of `Tally` that lists the workload.
_LISTED: Final = {
    "gated": "waiting",
    "nominated": "nominated",
    "leaving": "leaving",
    "picky": "picky",
    "timed": "timed",
    "stale": "stale",
    "replica": "replicas",
}


def pod_amounts(demand: Demand, card_mib: int) -> Amounts:
    """What a pod without cards will be charged; a request in MiB is converted by `card_mib`."""
    if demand.gpu_memory_mib == 0:
        milli = demand.devices * demand.milli
    else:
        milli = demand.devices * min(MILLI_PER_GPU, share_milli(demand.gpu_memory_mib, card_mib))
    if demand.counted:
        milli += demand.counted_milli
    return milli, demand.cpu_milli, demand.memory_mib


def held_amounts(pod: PodView, card_mib: int) -> Amounts:
    """What a placed pod is charged; without cards in its row, the same as before it is placed."""
    if not pod.cards:
        return pod_amounts(pod.demand, card_mib)
    demand = pod.demand
    milli = pod.cards[0].milli if len(pod.cards) == 1 else pod.held_milli
    return milli, demand.cpu_milli, demand.memory_mib


def starting_order(pod: PodView) -> tuple[int, int, int, str]:
    """Sort key: the order in which pods of one workload start."""
    return -pod.order, -pod.priority, pod.created_at, pod.key


def startable(workload: WorkloadView) -> "list[PodView]":
    """The pods that could start now if they fit, limited by `max_concurrent_pods`."""
    return startable_and_spare(workload)[0]


def startable_and_spare(workload: WorkloadView) -> "tuple[list[PodView], list[PodView]]":
    """The startable pods, and the pods beyond `max_concurrent_pods` that could replace them, in
    order."""
    waiting = [
        pod
        for pod in workload.pods
        if pod.state in _WAITING and not pod.is_terminating and not pod.other_gates
    ]
    if workload.max_concurrent_pods is None or not waiting:
        return waiting, []
    n_live = sum(p.state not in _WAITING and not p.is_terminating for p in workload.pods)
    waiting.sort(key=starting_order)
    n_more = max(0, workload.max_concurrent_pods - n_live)
    return waiting[:n_more], waiting[n_more:]


@dataclass(slots=True)
class Tally:
    """Sums by key, and the workloads that a cycle has to examine.

    `fractions` counts, by key, the pods that hold or request each fraction of a GPU.
    The sets hold workload keys. `waiting`: workloads with gated pods; `nominated`: with nominated
    pods; `leaving`: with terminating pods; `picky`: with pod (anti-)affinity; `timed`: with a
    stated run time; `stale`: gangs below their minimum; `replicas`: with an owner that states a
    floor.
    """

    sums: dict[TallyKey, list[int]] = field(default_factory=dict)
    fractions: dict[TallyKey, dict[int, int]] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    nominated: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    picky: set[str] = field(default_factory=set)
    timed: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    replicas: set[str] = field(default_factory=set)
    _pool_of: dict[str, str] = field(default_factory=dict)
    _card_mib: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: NodeTable, workloads: Mapping[str, WorkloadView]) -> "Tally":
        """The tally of these workloads, counted from scratch: one pass over all pods."""
        tally = cls()
        tally._pool_of = _pools_of(nodes)
        tally._card_mib = smallest_cards(nodes)
        for workload in workloads.values():
            tally._count(workload, 1)
        return tally

    def copy(self) -> "Tally":
        """An independent copy; costs the size of the sums and sets."""
        return Tally(
            sums={key: figures[:] for key, figures in self.sums.items()},
            fractions={key: dict(counts) for key, counts in self.fractions.items()},
            **{name: set(getattr(self, name)) for name in _LISTED.values()},
            _pool_of=self._pool_of,
            _card_mib=self._card_mib,
        )

    def replace(self, before: "WorkloadView | None", after: "WorkloadView | None") -> None:
        """Count a workload that changed, is new (`before` is None) or gone.

        A pod with the same view object in both stays counted.
        """
        same = _charged_alike(before, after) if before and after else frozenset()
        if before is not None:
            self._count(before, -1, same)
        if after is not None:
            self._count(after, 1, same)

    def follow(self, nodes: NodeTable, workloads: Mapping[str, WorkloadView]) -> None:
        """Update the sums to the node pools in `nodes`; `workloads` are those counted so far.

        Costs one pass over the nodes, and one over the workloads if a node came, went or changed
        its pool. If the smallest card of a pool changed, everything is counted anew.
        """
        card_mib, pool_of = smallest_cards(nodes), _pools_of(nodes)
        if card_mib != self._card_mib:
            fresh = Tally.of(nodes, workloads)
            self.sums, self.fractions = fresh.sums, fresh.fractions
            self._pool_of, self._card_mib = pool_of, card_mib
        elif pool_of != self._pool_of:
            changed = {name for name, _ in pool_of.items() ^ self._pool_of.items()}
            moved = [
                workload
                for workload in workloads.values()
                if any(pod.node in changed or pod.next_node in changed for pod in workload.pods)
            ]
            for workload in moved:
                self._count(workload, -1)
            self._pool_of = pool_of
            for workload in moved:
                self._count(workload, 1)

    def granule(self, key: TallyKey) -> int:
        """The largest part of a GPU, in milli, that divides every request under the key."""
        return gcd(MILLI_PER_GPU, *self.fractions.get(key, ()))

    def users(self) -> dict[str, set[str]]:
        """By project, the users that its workloads name, without projects that have none."""
        users: dict[str, set[str]] = {}
        for _, project, user in self.sums:
            users.setdefault(project, set()).add(user)
        return {project: names for project, names in users.items() if names != {""}}

    def pending_milli(self, workload: WorkloadView) -> dict[str, int]:
        """Milli-GPU that the workload's pending pods request, in each of its node pools."""
        waiting = startable(workload) if workload.problem is None else ()
        sizes = {pool: self._card_mib.get(pool, 0) for pool in workload.pools}
        return {
            pool: sum(pod_amounts(pod.demand, mib)[GPU] for pod in waiting)
            for pool, mib in sizes.items()
        }

    @property
    def card_sizes(self) -> Mapping[str, int]:
        """MiB of the smallest card in each node pool, by which requests in MiB are counted."""
        return self._card_mib

    def _count(self, workload: WorkloadView, sign: int, same: Set[int] = frozenset()) -> None:
        """Add the workload's part to the sums, or subtract it if `sign` is -1.

        What the pods in `same` (by `id`) hold is left as it is.
        """
        seen = _properties_of(workload)
        for pod in workload.pods:
            seen.add("leaving" if pod.is_terminating else pod.state)
            if id(pod) not in same:
                if pod.state not in _WAITING:
                    self._count_held(workload, pod, sign)
                if pod.next_node:
                    self._count_next(workload, pod, sign)
            if pod.constraints.pod_affinity or pod.constraints.pod_anti_affinity:
                seen.add("picky")
        if not seen.isdisjoint(_WAITING) and workload.problem is None:
            self._count_pending(workload, sign)
        for word in seen & _LISTED.keys():
            keys: set[str] = getattr(self, _LISTED[word])
            (keys.add if sign > 0 else keys.discard)(workload.key)

    def _count_held(self, workload: WorkloadView, pod: PodView, sign: int) -> None:
        """Count what the pod's row holds."""
        pool = self._pool_of.get(pod.node)
        if pool is None:
            return
        amounts = held_amounts(pod, self._card_mib.get(pool, 0))
        figures = self._figures((pool, workload.project, workload.user), amounts[0], sign)
        is_np = not workload.is_preemptible
        _add(figures, LEAVING if pod.is_terminating else ALLOCATED, amounts, sign, is_np)
        if pod.state != "nominated":
            _add(figures, HELD, amounts, sign, is_np)
        self._drop_empty((pool, workload.project, workload.user), figures)

    def _count_next(self, workload: WorkloadView, pod: PodView, sign: int) -> None:
        """Count the reservation for the successor of a pod that is moved."""
        pool = self._pool_of.get(pod.next_node)
        if pool is None:
            return
        milli = sum(card.milli for card in pod.next_cards) + pod.demand.counted_milli
        key = pool, workload.project, workload.user
        figures = self._figures(key, milli, sign)
        amounts = milli, pod.demand.cpu_milli, pod.demand.memory_mib
        _add(figures, ALLOCATED, amounts, sign, not workload.is_preemptible)
        self._drop_empty(key, figures)

    def _count_pending(self, workload: WorkloadView, sign: int) -> None:
        """Count the requests of the pending pods, in every pool that the workload may use."""
        waiting = startable(workload)
        is_np = not workload.is_preemptible
        for pool in dict.fromkeys(workload.pools):
            key, card_mib = (pool, workload.project, workload.user), self._card_mib.get(pool, 0)
            for pod in waiting:
                amounts = pod_amounts(pod.demand, card_mib)
                figures = self._figures(key, amounts[0], sign)
                _add(figures, PENDING, amounts, sign, is_np)
                self._drop_empty(key, figures)

    def _figures(self, key: TallyKey, milli: int, sign: int) -> list[int]:
        figures = self.sums.get(key)
        if figures is None:
            figures = self.sums[key] = [0] * _WIDTH
        figures[N_PODS] += sign
        if part := milli % MILLI_PER_GPU:
            counts = self.fractions.setdefault(key, {})
            counts[part] = counts.get(part, 0) + sign
            if not counts[part]:
                del counts[part]
            if not counts:
                del self.fractions[key]
        return figures

    def _drop_empty(self, key: TallyKey, figures: list[int]) -> None:
        if figures[N_PODS] == 0:
            del self.sums[key]
            self.fractions.pop(key, None)


def _charged_alike(before: WorkloadView, after: WorkloadView) -> Set[int]:
    """The `id` of each pod view in both workloads, if both are charged to the same sums."""
    one, other = ((each.project, each.user, each.is_preemptible) for each in (before, after))
    return set(map(id, before.pods)).intersection(map(id, after.pods)) if one == other else set()


def _properties_of(workload: WorkloadView) -> set[str]:
    """The properties of the workload itself that put it into a set of the tally."""
    seen: set[str] = set() if workload.expected_run_s is None else {"timed"}
    if workload.stale_since is not None:
        seen.add("stale")
    if workload.replica is not None:
        seen.add("replica")
    return seen


def _add(figures: list[int], at: int, amounts: Amounts, sign: int, is_np: bool) -> None:
    gpu, cpu, memory = amounts
    figures[at] += sign * gpu
    figures[at + 1] += sign * cpu
    figures[at + 2] += sign * memory
    if is_np:
        figures[at + 3] += sign * gpu
        figures[at + 4] += sign * cpu
        figures[at + 5] += sign * memory


def _pools_of(nodes: NodeTable) -> dict[str, str]:
    """Node pools by node name."""
    pool = nodes.pool
    return {name: pool[ix] for name, ix in nodes.cards.ix.items()}


def smallest_cards(nodes: NodeTable) -> dict[str, int]:
    """MiB of the smallest card on the ready nodes of each pool that has any card."""
    smallest: dict[str, int] = {}
    for pool, mib, is_ready in zip(nodes.pool, nodes.cards.card_mib, nodes.is_ready, strict=True):
        if mib and is_ready and mib < smallest.get(pool, mib + 1):
            smallest[pool] = mib
    return smallest


def sum_amounts(many: "Iterable[Amounts]") -> Amounts:
    """The sum, resource by resource."""
    gpu = cpu = memory = 0
    for amounts in many:
        gpu += amounts[0]
        cpu += amounts[1]
        memory += amounts[2]
    return gpu, cpu, memory
