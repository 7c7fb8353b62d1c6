"""What disruption budgets protect: pods whose eviction was refused, and until when budgets bind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.policy.plan import HeldBack

#: For so long after the first refusal; after each further one twice as long, up to the longest.
FIRST_S: Final = 30.0
LONGEST_S: Final = 480.0
#: Nothing wanted the pods of a budget for so long: its deadline is forgotten.
CALM_S: Final = 60
#: A pod that was not refused for so long starts anew.
_FORGET_S: Final = 2 * LONGEST_S


@dataclass(slots=True)
class _Refusal:
    count: int
    until: float


class Protection:
    """Remembers refusals by the pod's UID. Times are seconds on one monotonic clock."""

    def __init__(self) -> None:
        self._refusals: dict[str, _Refusal] = {}

    def refuse(self, uids: Iterable[str], now: float) -> None:
        """A budget refused one of these pods, which leave together or not at all."""
        for uid in uids:
            before = self._refusals.get(uid)
            count = before.count + 1 if before else 1
            wait_s = min(LONGEST_S, FIRST_S * 2 ** (count - 1))
            self._refusals[uid] = _Refusal(count, now + wait_s)

    def current(self, now: float) -> frozenset[str]:
        """UIDs of the pods that are protected now."""
        late = [uid for uid, each in self._refusals.items() if now > each.until + _FORGET_S]
        for uid in late:
            del self._refusals[uid]
        return frozenset(uid for uid, each in self._refusals.items() if now < each.until)


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
