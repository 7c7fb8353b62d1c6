"""Which statuses of queues are written in one look.

Every pod that comes or goes changes the figures of its queues: with a thousand busy projects,
statuses would be a third of all writes. What programs act on is written at once, and figures that
people read take turns.
"""

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from extender.api.kinds import QueueStatus

#: Statuses a second of which figures alone have changed, and the most of them in one look.
FIGURES_PER_S: Final = 10
MOST_FIGURES: Final = 100

T = TypeVar("T")


class NewStatus(Struct, Generic[T], frozen=True):
    """A status that says something new. `before` is what was written last; `tried_at` is when a
    write was last tried, so that one that the API server refuses holds up no other."""

    target: T
    status: QueueStatus
    before: QueueStatus | None
    tried_at: float = float("-inf")


def due(new: Sequence[NewStatus[T]], since_last_s: float) -> list[NewStatus[T]]:
    """What to write in a look `since_last_s` after the last one: all that says more than other
    figures. Then every other turn is for another fair share, and the rest for what was written
    longest ago, so that a share that changes again and again keeps no figure from its turn."""
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
    """What is not a figure of the moment: conditions, quotas, limits, and the use of the month,
    which decisions read."""
    pools = [(pool.name, pool.quota, pool.month) for pool in status.node_pools]
    return status.observed_generation, status.conditions, status.gpu.quota, status.gpu.limit, pools


def _has_other_shares(new: NewStatus[Any]) -> bool:
    return new.before is None or _shares(new.before) != _shares(new.status)


def _shares(status: QueueStatus) -> list[str]:
    return [pool.fair_share for pool in status.node_pools]
