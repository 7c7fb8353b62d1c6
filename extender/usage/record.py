"""The content of one GpuUsage, and its extension by a booking. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from extender.api.kinds import GpuUsageSpec, OverQuota, UsageLine
from extender.api.usage_kinds import HOURS, OTHER_USERS, ByHour
from extender.api.usage_kinds import Account as Kind
from extender.usage.integral import DAY_S, HOUR_S, Counted, Hours, LineKey

PROJECT: Final = "Project"
NODE_POOL: Final = "NodePool"
#: Limit on a record's lines; further users share the lines of `OTHER_USERS`.
MAX_LINES: Final = 256

#: (`PROJECT` or `NODE_POOL`, name)
Account = tuple[Kind, str]

Key = TypeVar("Key")


def record_name(day: str, account: Account) -> str:
    """The object's name: 2026-10-01.project.vision."""
    kind, name = account
    return ".".join(part for part in (day, kind.lower(), name) if part)


def empty_record(day: str, account: Account) -> GpuUsageSpec:
    """The account's day before the first booking."""
    kind, name = account
    return GpuUsageSpec(account=kind, name=name, day=day)


def extended(spec: GpuUsageSpec, counted: Counted, until_s: int) -> GpuUsageSpec:
    """The record with the part of `counted` on its day added; `counted` must be new to it."""
    midnight_s = int(datetime.strptime(spec.day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    first = midnight_s // HOUR_S
    lines = {(each.user, each.node_pool, each.model): _copy(each) for each in spec.lines}
    for amounts, is_lost in ((counted.held, False), (counted.lost, True)):
        for key, hours in _of_day(amounts, first).items():
            line = _line(lines, key, has_users=spec.account == PROJECT)
            _add(line.lost if is_lost else line.held, hours, first)
    over = {
        each.node_pool: OverQuota(node_pool=each.node_pool, held=list(each.held))
        for each in spec.over_quota
    }
    for pool, hours in _of_day(counted.over_quota, first).items():
        _add(over.setdefault(pool, OverQuota(node_pool=pool)).held, hours, first)
    return GpuUsageSpec(
        account=spec.account,
        name=spec.name,
        day=spec.day,
        counted_to=max(spec.counted_to, min(until_s, midnight_s + DAY_S)),
        lines=list(lines.values()),
        over_quota=list(over.values()),
    )


def _line(lines: dict[LineKey, UsageLine], key: LineKey, *, has_users: bool) -> UsageLine:
    user, pool, model = key
    key = (user if has_users else "", pool, model)
    if key not in lines and len(lines) >= MAX_LINES:
        key = (OTHER_USERS, pool, model)
    return lines.setdefault(key, UsageLine(user=key[0], node_pool=pool, model=model))


def _copy(line: UsageLine) -> UsageLine:
    return UsageLine(
        user=line.user,
        node_pool=line.node_pool,
        model=line.model,
        held=list(line.held),
        lost=list(line.lost),
    )


def _of_day(amounts: Mapping[Key, Hours], first: int) -> dict[Key, Hours]:
    """The part on the day that begins with hour `first`; keys without any are left out."""
    found = {
        key: {hour: amount for hour, amount in hours.items() if 0 <= hour - first < HOURS}
        for key, hours in amounts.items()
    }
    return {key: hours for key, hours in found.items() if hours}


def _add(figures: ByHour, hours: Hours, first: int) -> None:
    for hour, amount in hours.items():
        figures[hour - first] += amount
