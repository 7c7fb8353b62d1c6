"""Implementation of `ballast simulate`: runs cases for days and prints the figures of queues."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import structs

from extender.cli.scenarios.cases import no_such_case
from extender.cli.terminal.output import plain, sentence_console
from extender.cli.terminal.show import echo_data, fits, print_table, safe, table_of
from extender.scenario.errors import ScenarioError
from extender.scenario.load import load
from extender.scenario.longrun.simulate import as_time, simulate
from extender.scenario.model.case import Case
from extender.scenario.narrative import tell
from extender.scenario.outcome import Outcome
from extender.scenario.world import World

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS: Final = (
    ("arrived", "arrived"),
    ("ended", "ended"),
    ("owedGpuHours", "owed"),
    ("heldGpuHours", "held"),
    ("deprivedGpuHours", "deprived"),
    ("lostGpuHours", "lost"),
    ("evictions", "evictions"),
    ("repeatedEvictions", "repeated"),
    ("moves", "moves"),
    ("longestWaitHours", "longest wait h"),
    ("longestWithoutHours", "longest without h"),
)
#: Of these, what a terminal that is too narrow for all shows first.
_N_HOURS: Final = 6


def run_days(
    path: Path, id_: str, days: float | None, seed: int | None, *, has_events: bool, output: str
) -> None:
    """Run the cases for days and print their figures; exits with 1 if a bound of the file is missed
    or an invariant is broken."""
    loaded = load([path])
    for note in loaded.notes:
        click.echo(f"Note: {plain(note)}", err=True)
    wrong = [each.why for each in loaded.broken if id_ in ("", each.id)]
    chosen = [case for case in loaded.cases if id_ in ("", case.id)]
    if not chosen and not wrong:
        raise no_such_case(loaded, id_)
    reports: list[dict[str, Any]] = []
    for case in chosen:
        try:
            report = simulate(_seeded(case, seed), days, _tell if has_events else None)
        except ScenarioError as error:
            wrong.append(str(error))
            continue
        reports.append(report.as_json())
    if not echo_data(output, reports):
        for each in reports:
            _print(each)
    for why in wrong:
        click.echo(f"Error: {plain(why)}", err=True)
    sys.exit(1 if wrong or any(each["broken"] or each["missed"] for each in reports) else 0)


def _seeded(case: Case, seed: int | None) -> Case:
    if seed is None:
        return case
    return structs.replace(case, simulate=structs.replace(case.simulate, seed=seed))


def _table(lines: Mapping[str, Mapping[str, Any]], columns: Sequence[tuple[str, str]]) -> "Table":
    """The figures of these columns, a line for each queue and user."""
    table = table_of(("", *(heading for _, heading in columns)), folds=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, figures in lines.items():
        cells = (
            f"{figures[key]:,.1f}" if isinstance(figures[key], float) else f"{figures[key]:,}"
            for key, _ in columns
        )
        table.add_row(safe(name), *cells)
    return table


def _tell(now_s: int, world: World, outcome: Outcome) -> None:
    """Print the decisions of one cycle to standard error."""
    story = tell(world, outcome)
    for line in (*story.leaving, *story.placed):
        click.echo(f"{as_time(now_s)}  {plain(line)}", err=True)


def _print(report: dict[str, Any]) -> None:
    n_days = report["days"]
    title = (
        f"{report['id']}: {n_days:g} {'day' if n_days == 1 else 'days'};"
        " owed, held, deprived and lost in GPU-hours"
    )
    lines = {**report["queues"], **report["users"], "total": report["total"]}
    click.echo(plain(title))
    table = _table(lines, _COLUMNS)
    if fits(table):
        print_table(table)
    else:
        print_table(_table(lines, _COLUMNS[:_N_HOURS]))
        print_table(_table(lines, _COLUMNS[_N_HOURS:]))
    whole = report["total"]
    rest = "nothing" if whole["cameToRest"] else "something"
    out = sentence_console()
    out.print(
        f"{whole['cycles']:,} cycles; the last one decided {rest}."
        f" Decisions followed an event for at most {whole['longestUnrestHours']:g} h."
        f" Without a new event, {whole['evictionsWithoutChange']:,} pods were evicted or moved, and"
        f" {whole['evictedAndBack']:,} evicted pods started again."
        f" {whole['lostPercent']:g} % of what was held was lost;"
        f" {whole['idleWhileWaitingGpuHours']:,.1f} of {whole['capacityGpuHours']:,.1f} GPU-hours"
        " were idle while pods waited."
    )
    for line in (*report["broken"], *report["missed"]):
        out.print(f"- {safe(line)}")
    out.print()
