"""Counts milli-GPU-seconds by day and hour from holds. Pure, in integers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from extender.usage.meter import Hold, Loss

HOUR_S: Final = 3600
DAY_S: Final = 86_400

#: (user, node pool, model)
LineKey = tuple[str, str, str]
#: Hours since 1970 -> milli-GPU-seconds.
Hours = dict[int, int]


@dataclass(slots=True)
class Counted:
    """Held and lost amounts by line, and amounts above the quota by node pool."""

    held: dict[LineKey, Hours] = field(default_factory=dict)
    lost: dict[LineKey, Hours] = field(default_factory=dict)
    over_quota: dict[str, Hours] = field(default_factory=dict)

    def hours(self) -> set[int]:
        """The hours that have any amount."""
        every = (*self.held.values(), *self.lost.values(), *self.over_quota.values())
        return {hour for hours in every for hour in hours}


def day_of(unix_s: int) -> str:
    """The day in UTC, as 2026-10-01."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d")


def count_holds(holds: Iterable[Hold], start_s: int, end_s: int) -> dict[LineKey, Hours]:
    """What each line held from `start_s` to `end_s`, by hour. O(holds x hours)."""
    sums: dict[LineKey, Hours] = {}
    for hold in holds:
        begin, end = max(hold.since, start_s), min(hold.until or end_s, end_s)
        if begin >= end:
            continue
        hours = sums.setdefault((hold.user or "", hold.node_pool, hold.model), {})
        for hour, seconds in _by_hour(begin, end):
            hours[hour] = hours.get(hour, 0) + hold.milli * seconds
    return sums


def count_losses(losses: Iterable[Loss], start_s: int, end_s: int) -> dict[LineKey, Hours]:
    """What each line lost from `start_s` to `end_s`, in the hour of the eviction."""
    sums: dict[LineKey, Hours] = {}
    for loss in losses:
        if start_s <= loss.at < end_s:
            hold = loss.hold
            hours = sums.setdefault((hold.user or "", hold.node_pool, hold.model), {})
            hour = loss.at // HOUR_S
            hours[hour] = hours.get(hour, 0) + loss.milli_s
    return sums


def count_over_quota(
    holds: Iterable[Hold], quotas: Mapping[str, int], start_s: int, end_s: int
) -> dict[str, Hours]:
    """What was held above the quota (milli-GPU by node pool; absent: 0), exact to the second."""
    steps: dict[str, dict[int, int]] = {}
    for hold in holds:
        begin, end = max(hold.since, start_s), min(hold.until or end_s, end_s)
        if begin < end:
            of_pool = steps.setdefault(hold.node_pool, {})
            of_pool[begin] = of_pool.get(begin, 0) + hold.milli
            of_pool[end] = of_pool.get(end, 0) - hold.milli
    sums: dict[str, Hours] = {}
    for pool, of_pool in steps.items():
        hours: Hours = {}
        level, quota, times = 0, quotas.get(pool, 0), sorted(of_pool)
        for at, following in pairwise(times):
            level += of_pool[at]
            if level > quota:
                for hour, seconds in _by_hour(at, following):
                    hours[hour] = hours.get(hour, 0) + (level - quota) * seconds
        if hours:
            sums[pool] = hours
    return sums


def _by_hour(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """(hour since 1970, seconds of it) for each hour between `begin` and `end`."""
    while begin < end:
        hour = begin // HOUR_S
        until = min(end, (hour + 1) * HOUR_S)
        yield hour, until - begin
        begin = until
