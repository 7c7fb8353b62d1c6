"""Output of `ballast report usage`: the GPU-hours of a month, as a table or for billing.

Data goes to standard output, messages to standard error.
"""

import csv
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import click
from rich.markup import escape
from rich.table import Table

from extender.api.kinds import GpuProject, GpuUsageSpec
from extender.api.months import PER_GPU_HOUR
from extender.api.names import LABEL_MONTH
from extender.cli.ask import ask
from extender.cli.past.month_budgets import budget_lines
from extender.cli.terminal.flags import Where
from extender.cli.terminal.output import wide_console
from extender.kube.client import Client
from extender.kube.errors import RequestRefused
from extender.kube.resources import PROJECTS, USAGES
from extender.usage.focus import BY, COLUMNS, focus_rows
from extender.usage.prices import CENT, PriceError, Prices, read_prices
from extender.usage.report import DIMENSIONS, Amounts, Report, make_report

_WIDTH: Final = 200
_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
#: Exit code if the usage of projects and of node pools differs.
DIFFERS: Final = 1


@dataclass(slots=True, frozen=True)
class Asked:
    """The options of `ballast report usage`, not yet parsed."""

    month: str
    by: str
    prices_file: Path | None
    output: str
    where: Where


def print_usage(asked: Asked) -> None:
    """Print the report; raises a click error, or SystemExit(1) if projects and pools differ."""
    month = asked.month or datetime.now(UTC).strftime("%Y-%m")
    if not _MONTH.fullmatch(month):
        raise click.UsageError(f"--month: {month[:40]!r} is not a month such as 2026-10")
    dimensions = asked.by.split(",")
    if unknown := [each for each in dimensions if each not in DIMENSIONS]:
        raise click.UsageError(f"--by: {unknown[0][:40]!r} is not one of {', '.join(DIMENSIONS)}")
    try:
        prices = read_prices(asked.prices_file) if asked.prices_file else None
    except PriceError as error:
        raise click.ClickException(str(error)) from None
    records, projects = ask(asked.where, lambda client: _read(client, month))
    made = make_report(records, dimensions, prices)
    if asked.output == "focus":
        _print_focus(records, month, prices or Prices())
    else:
        printed = {"table": _print_table, "csv": _print_csv, "json": _print_json}
        printed[asked.output](made, prices)
    for line in budget_lines(records, projects):
        click.echo(line, err=True)
    click.echo(check_line(made), err=True)
    if made.differing:
        raise SystemExit(DIFFERS)


def check_line(made: Report) -> str:
    """A sentence: whether the usage of projects and of node pools is equal, and up to when."""
    if not made.counted_to:
        return "there are no records of this month"
    until = datetime.fromtimestamp(made.counted_to, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if not made.differing:
        held = f"{hours(made.total.held)} GPU-hours"
        return f"sum of the projects = what the node pools held: {held}; counted to {until} UTC"
    day, hour, pool = made.differing[0]
    return (
        f"the projects' sum and node pool {pool or '(none)'} differ at {day} {hour:02}:00"
        f" (hours that differ: {len(made.differing)}): records were changed by hand, or a write was"
        " cut off"
    )


def hours(milli_s: int) -> str:
    """GPU-hours with two decimals."""
    return f"{Decimal(milli_s) / PER_GPU_HOUR:,.2f}"


async def _read(client: Client, month: str) -> tuple[list[GpuUsageSpec], list[GpuProject]]:
    """The records of the month, and the present projects (none if the user may not list them)."""
    listed = await client.list_all(USAGES, label_selector=f"{LABEL_MONTH}={month}")
    try:
        projects = (await client.list_all(PROJECTS)).items
    except RequestRefused:
        projects = []
    return [record.spec for record in listed.items], list(projects)


def _print_table(made: Report, prices: Prices | None) -> None:
    table = Table(box=None, header_style="", pad_edge=False)
    for dimension in made.by:
        table.add_column(dimension.upper())
    figures = ["IN QUOTA", "OVER QUOTA", "HELD", "LOST"]
    for title in [*figures, *([f"CHARGE {prices.currency}"] if prices else [])]:
        table.add_column(title, justify="right")
    for key, amounts in made.rows.items():
        table.add_row(*(escape(part or "-") for part in key), *_figures(amounts, prices))
    total = Amounts(made.total.in_quota, made.total.over_quota, made.total.lost)
    # Rounded so that the column adds up to the sum printed below it.
    total.charge = sum((_cents(each.charge) for each in made.rows.values()), Decimal(0))
    table.add_row("total", *([""] * (len(made.by) - 1)), *_figures(total, prices))
    wide_console(_WIDTH).print(table)


def _figures(amounts: Amounts, prices: Prices | None) -> list[str]:
    held = (amounts.in_quota, amounts.over_quota, amounts.held, amounts.lost)
    charge = [f"{_cents(amounts.charge):,}"] if prices else []
    return [*map(hours, held), *charge]


def _print_csv(made: Report, prices: Prices | None) -> None:
    """Print exact GPU-seconds as CSV."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    charge = ["charge", "currency"] if prices else []
    figures = ["in_quota_gpu_seconds", "over_quota_gpu_seconds", "lost_gpu_seconds"]
    out.writerow([*made.by, *figures, *charge])
    for key, each in made.rows.items():
        seconds = [_seconds(amount) for amount in (each.in_quota, each.over_quota, each.lost)]
        money = [str(_cents(each.charge)), prices.currency] if prices else []
        out.writerow([*key, *seconds, *money])


def _print_json(made: Report, prices: Prices | None) -> None:
    def as_json(each: Amounts) -> dict[str, Any]:
        amounts: dict[str, Any] = {
            "inQuotaMilliGpuSeconds": each.in_quota,
            "overQuotaMilliGpuSeconds": each.over_quota,
            "lostMilliGpuSeconds": each.lost,
        }
        return amounts | ({"charge": str(_cents(each.charge))} if prices else {})

    body = {
        "rows": [
            dict(zip(made.by, key, strict=True)) | as_json(each) for key, each in made.rows.items()
        ],
        "total": as_json(made.total),
        "nodePoolsHeldMilliGpuSeconds": made.pools_held,
        "countedTo": made.counted_to,
        "differs": bool(made.differing),
    } | ({"currency": prices.currency} if prices else {})
    click.echo(json.dumps(body, indent=1))


def _print_focus(records: Sequence[GpuUsageSpec], month: str, prices: Prices) -> None:
    out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    out.writeheader()
    for row in focus_rows(make_report(records, BY), month, prices):
        out.writerow(row)


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT)


def _seconds(milli_s: int) -> str:
    return f"{milli_s // 1000}.{milli_s % 1000:03}"
