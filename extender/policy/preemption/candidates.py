"""The pods of one node pool that may be evicted or moved, as flat arrays that the kernel reads.

Surplus pods of a workload are evicted one by one, other pods in the units of `gangs.unit_of`. The
arrays are built once a cycle. Evicted and moved pods are marked in them, and what can still be
evicted of their workload is computed again.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api.demand import Demand
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.workloads.disruption_budgets import Budgets
from extender.policy.workloads.gangs import (
    are_independent,
    has_groups,
    is_satisfied,
    live_pods,
    unit_of,
)
from extender.state.model import NOTHING, Amounts, Constraints, PodView, WorkloadView

#: Pods of one Job's gang that move at the same time. The Job controller recreates three pods that
#: ended together after 40 s, but four after 80 s; their nominations last 60 s, and then the gang is
#: evicted, since it was below its minimum for too long.
MOST_OF_JOB: Final = 3


@dataclass(slots=True, eq=False)
class Candidates:
    """Pods p in order of their nodes, workloads w, queues q; on each node in eviction order.

    `start` is int32[n_nodes + 1]: the pods of node ix are start[ix]..start[ix + 1]. By pod: `owner`
    its w, `turn` its position in the eviction order of its workload, `shape` its index in `shapes`,
    `card_start` (one more than pods) into `card_ix` and `card_milli`, `amounts` (int64[3 * n]),
    `lost` milli-GPU-seconds, `is_here` 1 while it may be chosen, `is_core` 1 if it is no surplus
    though its workload has some, `may_move` 1 if a controller would recreate it. By workload:
    `surplus` pods that may be evicted one by one, `whole_lost` and `whole_amounts` of all that can
    still be evicted, `is_stuck` 1 if neither it nor a group of it can be evicted whole, `priority`,
    `rank` of its priority in its project (0: the lowest), `age` (the larger the older), `queue`,
    `is_first` 1 if it precedes training (see `first_kinds`). By queue: `has` (int64[3 * n]) is what
    it holds, `had` what it held at first. `budgets` counts evictions and moves against disruption
    budgets, `guarded` are the pods that these protect; `n_moving` is how many pods of each w this
    cycle moves.
    """

    pods: list[PodView] = field(default_factory=list)
    workloads: list[WorkloadView] = field(default_factory=list)
    leaves: list[Queue] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    n_live: list[int] = field(default_factory=list)
    by_key: dict[str, int] = field(default_factory=dict)
    shapes: list[tuple[Demand, Constraints]] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    queue_ix: dict[Queue, int] = field(default_factory=dict)
    most_pods: int = 0
    start: "array[int]" = field(default_factory=lambda: array("i", [0]))
    owner: "array[int]" = field(default_factory=lambda: array("i"))
    shape: "array[int]" = field(default_factory=lambda: array("i"))
    turn: "array[int]" = field(default_factory=lambda: array("i"))
    card_start: "array[int]" = field(default_factory=lambda: array("i", [0]))
    card_ix: "array[int]" = field(default_factory=lambda: array("i"))
    card_milli: "array[int]" = field(default_factory=lambda: array("i"))
    amounts: "array[int]" = field(default_factory=lambda: array("q"))
    lost: "array[int]" = field(default_factory=lambda: array("q"))
    is_here: bytearray = field(default_factory=bytearray)
    is_core: bytearray = field(default_factory=bytearray)
    may_move: bytearray = field(default_factory=bytearray)
    surplus: "array[int]" = field(default_factory=lambda: array("i"))
    whole_lost: "array[int]" = field(default_factory=lambda: array("q"))
    whole_amounts: "array[int]" = field(default_factory=lambda: array("q"))
    is_stuck: bytearray = field(default_factory=bytearray)
    priority: "array[int]" = field(default_factory=lambda: array("i"))
    rank: "array[int]" = field(default_factory=lambda: array("i"))
    is_first: bytearray = field(default_factory=bytearray)
    age: "array[int]" = field(default_factory=lambda: array("q"))
    queue: "array[int]" = field(default_factory=lambda: array("i"))
    has: "array[int]" = field(default_factory=lambda: array("q"))
    had: "array[int]" = field(default_factory=lambda: array("q"))
    budgets: Budgets = field(default_factory=Budgets)
    guarded: list[int] = field(default_factory=list)
    n_moving: "array[int]" = field(default_factory=lambda: array("i"))
    _barred: set[int] = field(default_factory=set)
    _moving: set[str] = field(default_factory=set)
    _evicted: set[str] = field(default_factory=set)

    def number_shapes(self, pods: Iterable[PodView]) -> list[int]:
        """Add the shapes of the pods to `shapes`; returns the index of each pod's shape."""
        numbers: dict[tuple[Demand, int], int] = {}
        found = []
        for pod in pods:
            key = pod.demand, id(pod.constraints)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(self.shapes)
                self.shapes.append((pod.demand, pod.constraints))
            found.append(number)
        return found

    def is_over_limit(self, queue: Queue) -> bool:
        """Whether the queue holds more than its limit, and more than at first."""
        q = self.queue_ix.get(queue)
        had = NOTHING if q is None else self.had[3 * q : 3 * q + 3]
        return any(queue.allocated[r] > max(queue.limit[r], had[r]) for r in RESOURCES)

    def amounts_of(self, pods: Collection[int]) -> Amounts:
        """What the queue is charged for the pods."""
        held, gpu, cpu, memory = self.amounts, 0, 0, 0
        if len(pods) == 1:
            (p,) = pods
            return held[3 * p], held[3 * p + 1], held[3 * p + 2]
        for p in pods:
            gpu += held[3 * p]
            cpu += held[3 * p + 1]
            memory += held[3 * p + 2]
        return gpu, cpu, memory

    def inside(self, queue: Queue, resource: int) -> list[int]:
        """The queue's pods that hold the resource, cheapest first; costs one pass over all pods."""
        found = []
        for w, leaf in enumerate(self.leaves):
            if queue not in leaf.chain:
                continue
            for p in self.members[w]:
                if self.is_here[p] and self.amounts[3 * p + resource] > 0:
                    is_core = self.is_core[p] or self.surplus[w] == 0
                    lost = self.whole_lost[w] if is_core else self.lost[p]
                    age, uid = self.age[w], self.pods[p].uid
                    found.append((self.rank[w], is_core, lost, age, self.turn[p], uid, p))
        return [entry[-1] for entry in sorted(found)]

    def unit_of(self, p: int) -> Sequence[int] | None:
        """The pods to evict if `p` is evicted, or None if one of them may not be."""
        w = self.owner[p]
        workload, n_live = self.workloads[w], self.n_live[w]
        if (n_live > workload.min_member or (n_live == 1 and self.is_here[p])) and not has_groups(
            workload
        ):
            return (p,)
        here = [m for m in self.members[w] if self.is_here[m]]
        if not has_groups(workload):
            return here if len(here) == self.n_live[w] else None
        unit = {pod.uid for pod in unit_of(workload, self._live(workload), self.pods[p])}
        found = [m for m in here if self.pods[m].uid in unit]
        return found if len(found) == len(unit) else None

    def is_legal(self, w: int) -> bool:
        """Whether the workload keeps no pods, enough of them to run, or all that it had."""
        workload = self.workloads[w]
        if not has_groups(workload):
            if self.n_live[w] == 0 or self.n_live[w] >= workload.min_member:
                return True
        elif is_satisfied(workload, self._live(workload)):
            return True
        return self._evicted.isdisjoint(pod.uid for pod in workload.pods)

    def evict(self, pods: Collection[int]) -> None:
        """Mark the pods as evicted; call `refresh` for their workload afterwards."""
        for p in pods:
            self.is_here[p] = 0
            self.n_live[self.owner[p]] -= 1
            self._evicted.add(self.pods[p].uid)
        self._count(pods, 1)

    def keep(self, pods: Collection[int]) -> None:
        """Undo `evict`."""
        for p in pods:
            self.is_here[p] = 1
            self.n_live[self.owner[p]] += 1
            self._evicted.discard(self.pods[p].uid)
        self._count(pods, -1)

    def move(self, p: int, *, is_moving: bool) -> None:
        """Mark the pod as moved, or undo that."""
        self.is_here[p] = not is_moving
        (self._moving.add if is_moving else self._moving.discard)(self.pods[p].uid)
        self.n_moving[self.owner[p]] += 1 if is_moving else -1
        self._count((p,), 1 if is_moving else -1)

    def may_evict(self, pods: Iterable[int]) -> bool:
        """Whether disruption budgets let these pods be evicted together."""
        return not self.budgets.are_any or self.budgets.allow_stop([self.pods[p] for p in pods])

    def can_move(self, p: int) -> bool:
        """Whether the pod would be recreated, in time if it is of a Job's gang, and disruption
        budgets let it be moved."""
        w, pod = self.owner[p], self.pods[p]
        is_slow = pod.is_of_job and not are_independent(self.workloads[w])
        is_in_time = not is_slow or self.n_moving[w] < MOST_OF_JOB
        return is_in_time and bool(self.may_move[p]) and self.budgets.allow_move(pod)

    def apply_budgets(self) -> list[int]:
        """Exclude the pods whose eviction budgets forbid; returns all that any budget protects."""
        if not self.budgets.are_any:
            return []
        for p, pod in enumerate(self.pods):
            if self.is_here[p] and (pod.budgets or pod.uid in self.budgets.refused):
                self.guarded.append(p)
                self.is_here[p] = self.may_evict((p,))
        return self.guarded

    def lift_budgets(self) -> list[int]:
        """Include the pods that budgets excluded, while budgets are lifted; returns them."""
        found = [
            p
            for p in self.guarded
            if not self.is_here[p]
            and self.owner[p] not in self._barred
            and self.pods[p].uid not in self._evicted
            and self.pods[p].uid not in self._moving
        ]
        for p in found:
            self.is_here[p] = 1
        for w in {self.owner[p] for p in self.guarded}:
            self.refresh(w)
        return found

    def reapply_budgets(self, pods: Iterable[int]) -> None:
        """Undo `lift_budgets`, once budgets apply again."""
        for p in pods:
            self.is_here[p] = 0
        for w in {self.owner[p] for p in self.guarded}:
            self.refresh(w)

    def is_protected_by_budget(self, p: int) -> bool:
        """Whether budgets forbid evicting the pod on top of the evictions so far."""
        pods = self.unit_of(p)
        return bool(self.is_here[p]) and pods is not None and not self.may_evict(pods)

    def spare(self, p: int, *, is_spared: bool) -> None:
        """Exclude the pod from selection for a while, or include it again."""
        self.is_here[p] = not is_spared
        self.refresh(self.owner[p])

    def bar(self, w: int) -> None:
        """Exclude the pods of the workload for the rest of the cycle."""
        self._barred.add(w)
        for p in self.members[w]:
            self.is_here[p] = 0

    def bar_all(self, keys: Iterable[str]) -> None:
        """`bar` the workloads of these keys that are candidates."""
        for key in keys:
            w = self.by_key.get(key)
            if w is not None:
                self.bar(w)

    def refresh(self, w: int) -> None:
        """Compute again what can be evicted of the workload."""
        workload = self.workloads[w]
        here = [p for p in self.members[w] if self.is_here[p]]
        self.whole_lost[w] = sum(self.lost[p] for p in here)
        self.whole_amounts[3 * w : 3 * w + 3] = array("q", self.amounts_of(here))
        self.is_stuck[w] = len(here) < self.n_live[w] or not self.may_evict(here)
        if has_groups(workload):
            self._mark_surplus(w, here)
            if self.is_stuck[w] and not self.n_moving[w]:
                self.is_stuck[w] = not self._can_evict_unit(here)
        else:
            self.surplus[w] = max(0, self.n_live[w] - workload.min_member)

    def sync(self, queues: Iterable[Queue]) -> None:
        """Copy what the queues hold now."""
        for queue in queues:
            q = self.queue_ix.get(queue)
            if q is not None:
                at, has = 3 * q, self.has
                has[at], has[at + 1], has[at + 2] = queue.allocated

    def _count(self, pods: Iterable[int], sign: int) -> None:
        if self.budgets.left:
            self.budgets.take([self.pods[p] for p in pods], sign)

    def _live(self, workload: WorkloadView) -> list[PodView]:
        """The live pods of the workload that are not evicted."""
        return [pod for pod in live_pods(workload) if pod.uid not in self._evicted]

    def _can_evict_unit(self, here: Iterable[int]) -> bool:
        """Whether the pods of any one group of a workload may be evicted together."""
        seen = set[int]()
        for p in here:
            if p in seen or not self.is_core[p]:
                continue
            unit = self.unit_of(p) or ()
            if unit and self.may_evict(unit):
                return True
            seen.update(unit)
        return False

    def _mark_surplus(self, w: int, here: Sequence[int]) -> None:
        """Find the pods of a workload with groups that may be evicted one by one."""
        workload = self.workloads[w]
        rest = {pod.uid: pod for pod in self._live(workload)}
        self.surplus[w] = 0
        for p in self.members[w]:
            self.is_core[p] = 0
        for p in here:
            pod = rest.pop(self.pods[p].uid)
            self.is_core[p] = not is_satisfied(workload, rest.values())
            if self.is_core[p] or not rest:
                self.is_core[p] = 1
                rest[pod.uid] = pod
            else:
                self.surplus[w] += 1
