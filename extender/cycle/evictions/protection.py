"""Pods that are protected for a while because a disruption budget refused their eviction."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: How long after the first refusal; each further refusal doubles it, up to the longest.
FIRST_S: Final = 30.0
LONGEST_S: Final = 480.0
#: After so long without a refusal, a pod starts with the first wait again.
_FORGET_S: Final = 2 * LONGEST_S


@dataclass(slots=True)
class _Refusal:
    count: int
    until: float


class Protection:
    """Refusals by pod UID. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._refusals: dict[str, _Refusal] = {}

    def refuse(self, uids: Iterable[str], now: float) -> None:
        """A budget refused one of these pods, which are evicted together or not at all."""
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
