"""Until when disruption budgets hold back reclaim and preemption: memory between cycles.

A plan names the victims that budgets kept from it (`Plan.held_back`). A caller that decides again
and again keeps a `Deadlines` and passes `ends()` on as `Settings.budget_ends`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.policy.plan import HeldBack

#: Nothing wanted the pods of a budget for so long: its deadline is forgotten.
CALM_S: Final = 60


@dataclass(slots=True, frozen=True)
class _Deadline:
    """When budgets stop binding a pod (unix seconds); `source` is what they are known by."""

    end: int
    source: tuple[str, ...]


class Deadlines:
    """Remembers when budgets stop holding back the pods that plans want. Times are unix seconds.

    Plans may want one pod of a budget now and another then, so a deadline lasts as long as any pod
    of the same budget is wanted.
    """

    def __init__(self) -> None:
        self._ends: dict[str, _Deadline] = {}
        self._wanted_at: dict[tuple[str, ...], int] = {}

    def note(self, held_back: Iterable[HeldBack], now_s: int) -> None:
        """Take what a plan says of the victims that budgets kept from it."""
        for each in held_back:
            source = each.budgets or (each.uid,)
            self._ends.setdefault(each.uid, _Deadline(each.until, source))
            self._wanted_at[source] = now_s
        calm = {key for key, at in self._wanted_at.items() if now_s - at > CALM_S}
        if calm:
            self._ends = {u: each for u, each in self._ends.items() if each.source not in calm}
            self._wanted_at = {k: at for k, at in self._wanted_at.items() if k not in calm}

    def ends(self) -> Mapping[str, int]:
        """By UID, when budgets stop binding the pod."""
        return {uid: each.end for uid, each in self._ends.items()}

    def is_over(self, uid: str, now_s: float) -> bool:
        """Whether budgets bind the pod no more."""
        each = self._ends.get(uid)
        return each is not None and each.end <= now_s
