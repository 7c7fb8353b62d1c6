"""Which queue statuses are written in one report.

Every pod that comes or goes changes the figures of its queues: with a thousand busy projects,
statuses would be a third of all writes. So fields that programs act on are written at once, and
figures that people read take turns.
"""

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from extender.api.kinds import QueueStatus

#: Statuses per second in which only figures have changed, and the most of them in one report.
FIGURES_PER_S: Final = 10
MOST_FIGURES: Final = 100

T = TypeVar("T")


class NewStatus(Struct, Generic[T], frozen=True):
    """A status that has changed. `before` is what was written last; `tried_at` is the time of the
    last write attempt, so that a status that the API server refuses does not delay others."""

    target: T
    status: QueueStatus
    before: QueueStatus | None
    tried_at: float = float("-inf")


def due(new: Sequence[NewStatus[T]], since_last_s: float) -> list[NewStatus[T]]:
    """The statuses to write in a report `since_last_s` after the last: all in which more than
    figures changed. Of the turns, half go to changed fair shares and the rest to the statuses
    written longest ago, so that a share that changes all the time can't starve other figures."""
    at_once = [each for each in new if _says_more(each)]
    figures = [each for each in new if not _says_more(each)]
    figures.sort(key=lambda each: (not _has_other_shares(each), each.tried_at))
    n_turns = int(min(MOST_FIGURES, FIGURES_PER_S * since_last_s))
    n_shares = min((n_turns + 1) // 2, sum(map(_has_other_shares, figures)))
    others = sorted(figures[n_shares:], key=lambda each: each.tried_at)
    return at_once + figures[:n_shares] + others[: n_turns - n_shares]


def _says_more(new: NewStatus[Any]) -> bool:
    return new.before is None or _stated(new.before) != _stated(new.status)


def _stated(status: QueueStatus) -> tuple[Any, ...]:
    """All that are no momentary figures: conditions, quotas, limits, and the month's use, which
    decisions read."""
    pools = [(pool.name, pool.quota, pool.month) for pool in status.node_pools]
    return status.observed_generation, status.conditions, status.gpu.quota, status.gpu.limit, pools


def _has_other_shares(new: NewStatus[Any]) -> bool:
    return new.before is None or _shares(new.before) != _shares(new.status)


def _shares(status: QueueStatus) -> list[str]:
    return [pool.fair_share for pool in status.node_pools]
