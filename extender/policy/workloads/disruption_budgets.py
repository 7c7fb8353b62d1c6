"""How many pods a plan may still disrupt: disruption budgets, and victims that were refused.

A budget binds moves always. It binds reclaim and preemption for as many seconds as the pod's
project or node pool says, counted from when it first held back any of its pods; then all of them
may be stopped, but still not be moved. A pod that several budgets select is never evicted by the
API server, so all of them count as used up for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from extender.policy.queues.tree import held_pool
from extender.state.model import PodView, budget_hold_s
from extender.state.snapshot import Snapshot

#: What holds a pod back: the budgets that select it, or where none is known its own UID.
HoldKey = tuple[str, ...]


def hold_key(uid: str, budgets: HoldKey) -> HoldKey:
    """By what a hold is known: one deadline is for all pods with the same key."""
    return budgets or (uid,)


def hold_s(snapshot: Snapshot, pod: PodView, project: str) -> int:
    """How long budgets hold the pod of this project back."""
    pool = snapshot.pools.get(held_pool(snapshot, pod))
    return budget_hold_s(snapshot.queues.get(project), pool)


def find_overdue(snapshot: Snapshot, held_since: Mapping[HoldKey, int]) -> frozenset[str]:
    """UIDs of the pods that budgets have held back for long enough. Costs one pass over all pods
    while any budget holds back."""
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
    """The plan in the making takes pods from `left`, disruptions that each budget still allows.

    `refused` are UIDs of pods that the API server refused to evict lately. `overdue` are those
    that may be stopped whatever their budgets allow. While `is_lifted`, nothing binds a stop.
    """

    left: dict[str, int] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    overdue: frozenset[str] = frozenset()
    is_lifted: bool = False

    @property
    def are_any(self) -> bool:
        """Whether any pod at all may be bound."""
        return bool(self.left or self.refused)

    def allow_stop(self, pods: Iterable[PodView]) -> bool:
        """Whether these pods may be stopped together, on top of what the plan takes."""
        if self.is_lifted or not self.are_any:
            return True
        return self._allow([pod for pod in pods if pod.uid not in self.overdue])

    def allow_move(self, pod: PodView) -> bool:
        """Whether this pod may be moved, on top of what the plan takes."""
        return not self.are_any or self._allow([pod])

    def take(self, pods: Iterable[PodView], sign: int = 1) -> None:
        """The plan takes these pods; with a `sign` of -1 it leaves them alone again."""
        if self.left:
            for pod in pods:
                for budget in pod.budgets:
                    if budget in self.left:
                        self.left[budget] -= sign

    def name_of(self, pod: PodView) -> str:
        """What binds the pod, in words."""
        if len(pod.budgets) > 1:
            return f"PodDisruptionBudgets {' and '.join(pod.budgets)} both select the pod"
        for budget in pod.budgets:
            left = max(0, self.left.get(budget, 0))
            return f"PodDisruptionBudget {budget} allows {left} disruptions"
        return "the API server refused its eviction"

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Ask what the plan would be if budgets bound no stop."""
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
