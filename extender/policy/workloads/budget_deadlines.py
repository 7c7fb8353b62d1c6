"""Records, between cycles, since when disruption budgets hold back reclaim and preemption.

A plan lists the victims that budgets withheld from it (`Plan.held_back`). A caller that runs cycles
keeps a `Deadlines` and passes `since()` on as `Settings.held_since`.
"""

from collections.abc import Mapping
from typing import Final

from extender.policy.plan import Plan
from extender.policy.workloads.disruption_budgets import HoldKey, hold_key
from extender.state.model import PodView

#: Seconds after which a hold ends if no plan wants a pod of the budget.
CALM_S: Final = 60


class Deadlines:
    """Remembers since when budgets hold back victims. Times are unix seconds.

    All pods of a budget have one deadline, since plans may want different ones of them in turn, for
    several pending workloads. A plan that evicts such pods wants them, too.
    """

    def __init__(self) -> None:
        self._since: dict[HoldKey, int] = {}
        self._wanted_at: dict[HoldKey, int] = {}

    def note(self, plan: Plan, now_s: int) -> None:
        """Record which pods covered by budgets the plan wants."""
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
        """The beginning of each hold, in unix seconds."""
        return dict(self._since)

    def is_over(self, pod: PodView, hold_s: int, now_s: float) -> bool:
        """Whether the budgets of the pod, which hold it back for `hold_s`, no longer bind it."""
        since = self._since.get(hold_key(pod.uid, pod.budgets))
        return since is not None and since + hold_s <= now_s
