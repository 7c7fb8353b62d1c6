"""Sums usage records, with prices if there are any, and checks the sums. Pure.

What a project held above its quota in an hour and node pool is divided among its users and card
models in proportion to what they held in that hour, in exact integers: the largest remainders round
up.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from msgspec import Struct

from extender.api.kinds import GpuUsageSpec
from extender.api.months import PER_GPU_HOUR
from extender.api.usage_kinds import HOURS
from extender.usage.integral import HOUR_S, day_of
from extender.usage.prices import Prices
from extender.usage.record import PROJECT

#: Longest duration of a booking in seconds: during it, records may disagree about its hours.
_BOOKING_S: Final = 180
#: Dimensions by which a report can be grouped.
DIMENSIONS: Final = ("project", "user", "pool", "model", "day")

#: Values of the requested dimensions, in their order.
Key = tuple[str, ...]
#: (day, hour, node pool)
_Hour = tuple[str, int, str]


class Cell(Struct, frozen=True, gc=False):
    """One hour of a record's line in milli-GPU-seconds: `in_quota` and `over_quota` were held;
    their sum is the total."""

    project: str
    user: str
    pool: str
    model: str
    day: str
    hour: int
    in_quota: int
    over_quota: int
    lost: int


@dataclass(slots=True)
class Amounts:
    """Milli-GPU-seconds, and the charge for those held (exact; 0 without prices)."""

    in_quota: int = 0
    over_quota: int = 0
    lost: int = 0
    charge: Decimal = Decimal(0)

    @property
    def held(self) -> int:
        """The total within and above quota."""
        return self.in_quota + self.over_quota

    def add(self, cell: Cell, prices: Prices | None) -> None:
        """Add the cell."""
        self.in_quota += cell.in_quota
        self.over_quota += cell.over_quota
        self.lost += cell.lost
        if prices is not None:
            self.charge += _charge(cell, prices)


@dataclass(slots=True)
class Report:
    """The rows of a report by the dimensions `by`, in order, and their total.

    `pools_held` is the total in the node pools' own records. `differing` are hours in which the
    projects' sum differs from the pool's; hours of the last booking are left out, since it may be
    partly written.
    """

    by: tuple[str, ...]
    rows: dict[Key, Amounts] = field(default_factory=dict)
    total: Amounts = field(default_factory=Amounts)
    pools_held: int = 0
    counted_to: int = 0
    differing: list[_Hour] = field(default_factory=list)


def make_report(
    records: Sequence[GpuUsageSpec], by: Sequence[str], prices: Prices | None = None
) -> Report:
    """Sum the records, which are of projects and of node pools."""
    report = Report(tuple(by))
    rows: dict[Key, Amounts] = {}
    for record in records:
        report.counted_to = max(report.counted_to, record.counted_to)
        if record.account != PROJECT:
            report.pools_held += sum(sum(line.held) for line in record.lines)
            continue
        for cell in _cells_of(record):
            key = tuple(getattr(cell, dimension) for dimension in by)
            rows.setdefault(key, Amounts()).add(cell, prices)
            report.total.add(cell, prices)
    report.rows = dict(sorted(rows.items()))
    report.differing = _differing(records, report.counted_to)
    return report


def _cells_of(record: GpuUsageSpec) -> Iterator[Cell]:
    """The cells of a project's record with a held or lost amount."""
    over = {each.node_pool: each.held for each in record.over_quota}
    for hour in range(HOURS):
        held = [line.held[hour] for line in record.lines]
        parts = [0] * len(held)
        for pool, amounts in over.items():
            here = [ix for ix, line in enumerate(record.lines) if line.node_pool == pool]
            divided = divide(amounts[hour], [held[ix] for ix in here])
            for ix, part in zip(here, divided, strict=True):
                parts[ix] = part
        for line, all_of, part in zip(record.lines, held, parts, strict=True):
            if all_of or line.lost[hour]:
                yield Cell(
                    record.name, line.user, line.node_pool, line.model, record.day, hour,
                    all_of - part, part, line.lost[hour],
                )  # fmt: skip


def divide(amount: int, weights: Sequence[int]) -> list[int]:
    """Divides `amount` in proportion to `weights`, into integers whose sum is `amount`.

    No part exceeds its weight if `amount` is at most the sum of all weights. If all weights are 0,
    so are the parts.
    """
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    parts = [amount * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda ix: -(amount * weights[ix] % whole))
    for ix in by_remainder[: amount - sum(parts)]:
        parts[ix] += 1
    return parts


def _charge(cell: Cell, prices: Prices) -> Decimal:
    """The cell's charge, without rounding to cents."""
    own = cell.in_quota * prices.per_hour(cell.model, is_over_quota=False)
    borrowed = cell.over_quota * prices.per_hour(cell.model, is_over_quota=True)
    return (own + borrowed) / PER_GPU_HOUR


def _differing(records: Iterable[GpuUsageSpec], counted_to: int) -> list[_Hour]:
    """Hours in which the projects' records disagree with the node pool's."""
    sums: dict[_Hour, int] = {}
    for record in records:
        sign = 1 if record.account == PROJECT else -1
        for line in record.lines:
            for hour, amount in enumerate(line.held):
                key = record.day, hour, line.node_pool
                sums[key] = sums.get(key, 0) + sign * amount
    under_way = {(day_of(at), at // HOUR_S % HOURS) for at in (counted_to, counted_to - _BOOKING_S)}
    return [key for key, rest in sorted(sums.items()) if rest and key[:2] not in under_way]
