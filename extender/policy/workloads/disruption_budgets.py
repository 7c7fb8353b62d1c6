"""Which pods a plan may still disrupt: disruption budgets, and evictions that were refused.

A budget always binds moves. It binds reclaim and preemption for the hold time of the pod's project
or node pool, from when it first held back any of its pods. After that, all of them may be evicted
but still not moved. The API server never evicts a pod that several budgets select, so these count
as used up for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from extender.policy.queues.tree import held_pool
from extender.state.model import PodView, budget_hold_s
from extender.state.snapshot import Snapshot

#: What holds a pod back: the budgets that select it, or its own UID if none is known.
HoldKey = tuple[str, ...]


def hold_key(uid: str, budgets: HoldKey) -> HoldKey:
    """The key of a hold; all pods with the same key have one deadline."""
    return budgets or (uid,)


def hold_s(snapshot: Snapshot, pod: PodView, project: str) -> int:
    """How many seconds budgets hold back the pod of this project."""
    pool = snapshot.pools.get(held_pool(snapshot, pod))
    return budget_hold_s(snapshot.queues.get(project), pool)


def find_overdue(snapshot: Snapshot, held_since: Mapping[HoldKey, int]) -> frozenset[str]:
    """UIDs of the pods whose hold is over. Costs one pass over all pods while there is any hold."""
    if not held_since:
        return frozenset()
    return frozenset(
        pod.uid
        for workload in snapshot.workloads.values()
        for pod in workload.pods
        if (since := held_since.get(hold_key(pod.uid, pod.budgets))) is not None
        and since + hold_s(snapshot, pod, workload.project) <= snapshot.now_s
    )


@dataclass(slots=True)
class Budgets:
    """The budgets as the current plan uses them up.

    `left` has the disruptions that each budget still allows. `refused` has the UIDs of pods that
    the API server recently refused to evict; `overdue` those of pods that may be evicted
    regardless of budgets. While `is_lifted`, nothing binds evictions.
    """

    left: dict[str, int] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    overdue: frozenset[str] = frozenset()
    is_lifted: bool = False

    @property
    def are_any(self) -> bool:
        """Whether there is any budget or refusal."""
        return bool(self.left or self.refused)

    def allow_stop(self, pods: Iterable[PodView]) -> bool:
        """Whether these pods may be evicted together, in addition to the plan's disruptions."""
        if self.is_lifted or not self.are_any:
            return True
        return self._allow([pod for pod in pods if pod.uid not in self.overdue])

    def allow_move(self, pod: PodView) -> bool:
        """Whether this pod may be moved, in addition to the plan's disruptions."""
        return not self.are_any or self._allow([pod])

    def take(self, pods: Iterable[PodView], sign: int = 1) -> None:
        """Count the pods as disrupted by the plan; a `sign` of -1 undoes this."""
        if self.left:
            for pod in pods:
                for budget in pod.budgets:
                    if budget in self.left:
                        self.left[budget] -= sign

    def name_of(self, pod: PodView) -> str:
        """Why the pod may not be disrupted, as text."""
        if len(pod.budgets) > 1:
            return f"PodDisruptionBudgets {' and '.join(pod.budgets)} both select the pod"
        for budget in pod.budgets:
            left = max(0, self.left.get(budget, 0))
            return f"PodDisruptionBudget {budget} allows {left} disruptions"
        return "the API server refused its eviction"

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Inside the context, budgets do not bind evictions."""
        self.is_lifted = True
        try:
            yield
        finally:
            self.is_lifted = False

    def _allow(self, pods: Iterable[PodView]) -> bool:
        wanted: Counter[str] = Counter()
        for pod in pods:
            if pod.uid in self.refused or len(pod.budgets) > 1:
                return False
            wanted.update(pod.budgets)
        return all(self.left.get(budget, 0) >= count for budget, count in wanted.items())
