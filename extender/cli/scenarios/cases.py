"""Implementation of `ballast scenario`: runs cases, and compares or prints the decisions."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import click
from rich.console import Console
from rich.markup import escape

from extender.api.listing import listed
from extender.cli.terminal.output import plain, sentence_console
from extender.cli.terminal.show import echo_data, print_table, safe, table_of
from extender.scenario.errors import ScenarioError
from extender.scenario.load import Loaded, load
from extender.scenario.model.case import Case
from extender.scenario.narrative import Story
from extender.scenario.run import Report, Write, run_case, stories

#: The file name that stands for standard output.
_STDOUT: Final = "-"
#: The most cases that an error message lists.
_MOST_LISTED: Final = 8
#: Columns of the queues before a cycle.
_SHARES: Final = ("queue", "resource", "quota", "fair share", "held before")


def run_cases(paths: tuple[Path, ...], decisions_to: str | None, output: str) -> None:
    """Run all cases and check their expectations; exits with 1 if any case fails."""
    if output != "table" and decisions_to == _STDOUT:
        raise click.UsageError(
            f"-o {output} and --decisions - both write to standard output; use one"
        )
    loaded = load(paths)
    _print_notes(loaded)
    with _decisions(decisions_to, loaded) as write:
        reports = [Report(each.id, "failed", [each.why]) for each in loaded.broken]
        reports += (_run(loaded, case, write) for case in loaded.cases)
    counts = {word: sum(report.result == word for report in reports) for word in _COLOURS}
    cases = [_as_case(loaded, report) for report in reports]
    if not echo_data(output, {"cases": cases, **counts}):
        _print_reports(reports)
        print(", ".join(f"{n} {word}" for word, n in counts.items()))
    sys.exit(1 if counts["failed"] else 0)


def show_cases(path: Path, id_: str, output: str) -> None:
    """Print the decisions on the cases; exits with 1 if any case cannot be used."""
    loaded = load([path])
    _print_notes(loaded)
    results: list[dict[str, Any]] = []
    wrong = [each.why for each in loaded.broken if id_ in ("", each.id)]
    for case in _chosen(loaded, id_):
        try:
            found = list(stories(case, time.perf_counter_ns))
        except ScenarioError as error:
            wrong.append(f"{loaded.files[case.id]}: {error}")
            continue
        results.append({"id": case.id, "cycles": [_as_json(story) for story in found]})
        if output == "text":
            _print_stories(case, found)
    echo_data(output, results)
    for why in wrong:
        click.echo(f"Error: {plain(why)}", err=True)
    sys.exit(1 if wrong else 0)


_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}


@contextmanager
def _decisions(to: str | None, loaded: Loaded) -> Iterator[Write | None]:
    """The writer for lines of decisions; raises a click error if the file cannot be written."""
    if to is None:
        yield None
        return
    if to != _STDOUT and any(_is_same(Path(to), file) for file in loaded.files.values()):
        message = f"'{to}': the cases are in it; accepted: any other file"
        raise click.BadParameter(message, param_hint="'--decisions'")
    try:
        with click.open_file(to, "w", encoding="utf-8") as out:
            yield partial(_write_line, out)
    except OSError as error:
        raise click.BadParameter(f"'{to}': {error.strerror}", param_hint="'--decisions'") from None


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def _write_line(out: IO[str], line: dict[str, Any]) -> None:
    out.write(json.dumps(line, separators=(",", ":")) + "\n")


def _print_notes(loaded: Loaded) -> None:
    for note in loaded.notes:
        click.echo(f"Note: {plain(note)}", err=True)


def _run(loaded: Loaded, case: Case, write: Write | None) -> Report:
    """The report of the case; reasons name the file if the case cannot be used."""
    report = run_case(case, time.perf_counter_ns, write)
    if report.is_unusable:
        report.reasons = [f"{loaded.files[case.id]}: {reason}" for reason in report.reasons]
    return report


def _as_case(loaded: Loaded, report: Report) -> dict[str, Any]:
    file = loaded.files.get(report.id)
    line = {"id": report.id, "result": report.result, "reasons": report.reasons}
    return line | ({"file": str(file)} if file else {})


def _chosen(loaded: Loaded, id_: str) -> list[Case]:
    """The cases to show; raises ClickException if there is no case with this id."""
    if id_ and id_ not in {*loaded.files, *(each.id for each in loaded.broken)}:
        raise no_such_case(loaded, id_)
    return [case for case in loaded.cases if id_ in ("", case.id)]


def no_such_case(loaded: Loaded, id_: str) -> click.ClickException:
    """The error that names the cases that there are."""
    known = listed(loaded.files, _MOST_LISTED) or "none that can be read"
    return click.ClickException(plain(f"there is no case {id_}; there are {known}"))


def _print_reports(reports: Iterable[Report]) -> None:
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    for report in reports:
        colour = _COLOURS[report.result]
        console.print(f"[{colour}]{report.result:7}[/{colour}] {safe(report.id)}")
        for reason in report.reasons if report.result == "failed" else ():
            console.print(f"        {safe(reason)}")


def _print_stories(case: Case, found: Iterable[Story]) -> None:
    console = sentence_console()
    console.print(f"[bold]{safe(case.id)}[/bold]")
    if case.about:
        console.print(escape("\n".join(map(plain, case.about.splitlines()))))
    if case.is_out_of_format:
        console.print(
            "It needs something that the format cannot express, so the result may be wrong."
        )
    for story in found:
        console.print(f"\n[bold]Cycle {story.cycle}[/bold]")
        table = table_of(_SHARES, folds=False)
        for row in story.shares:
            table.add_row(*(safe(cell) for cell in astuple(row)))
        print_table(table)
        for line in (*story.leaving, *story.placed, *story.waiting):
            console.print(f"- {safe(line)}")
        if not (story.leaving or story.placed or story.waiting):
            console.print("Nothing changes and no workload waits.")
    console.print()


def _as_json(story: Story) -> dict[str, Any]:
    return {
        "cycle": story.cycle,
        "placed": story.placed,
        "leaving": story.leaving,
        "waiting": story.waiting,
        "shares": [
            {
                "queue": row.queue,
                "resource": row.resource,
                "quota": row.quota,
                "fairShare": row.fair_share,
                "allocated": row.allocated,
            }
            for row in story.shares
        ],
    }
