"""Since when disruption budgets hold back reclaim and preemption: memory between cycles.

A plan names the victims that budgets kept from it (`Plan.held_back`). A caller that decides again
and again keeps a `Deadlines` and passes `since()` on as `Settings.held_since`.
"""

from collections.abc import Mapping
from typing import Final

from extender.policy.plan import Plan
from extender.policy.workloads.disruption_budgets import HoldKey, hold_key
from extender.state.model import PodView

#: Plans wanted no pod of a budget for longer than this: it holds the next one back anew.
CALM_S: Final = 60


class Deadlines:
    """Remembers since when budgets hold back what plans want. Times are unix seconds.

    All pods of a budget have one deadline: plans may want one of them now and another then, and
    several workloads may wait for them. A plan that takes such pods wants them, too.
    """

    def __init__(self) -> None:
        self._since: dict[HoldKey, int] = {}
        self._wanted_at: dict[HoldKey, int] = {}

    def note(self, plan: Plan, now_s: int) -> None:
        """Take what a plan wants of the pods that budgets cover."""
        for held in plan.held_back:
            key = hold_key(held.uid, held.budgets)
            self._since.setdefault(key, now_s)
            self._wanted_at[key] = now_s
        for eviction in plan.evictions:
            key = hold_key(eviction.pod.uid, eviction.pod.budgets)
            if key in self._since:
                self._wanted_at[key] = now_s
        for key in [key for key, at in self._wanted_at.items() if now_s - at > CALM_S]:
            del self._since[key], self._wanted_at[key]

    def since(self) -> Mapping[HoldKey, int]:
        """When each hold began."""
        return dict(self._since)

    def is_over(self, pod: PodView, hold_s: int, now_s: float) -> bool:
        """Whether budgets that hold back for so long bind the pod no more."""
        since = self._since.get(hold_key(pod.uid, pod.budgets))
        return since is not None and since + hold_s <= now_s
