"""`ballast scenario`: what is decided on the cluster of a file, and whether it is expected."""

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from extender.scenario.errors import ScenarioError
from extender.scenario.load import Loaded, load
from extender.scenario.model import Case
from extender.scenario.run import Report, run_case, stories
from extender.scenario.tell import Story

_PATHS = click.Path(exists=True, path_type=Path)


@click.group()
def scenario() -> None:
    """Decide on clusters that are written in files."""


@scenario.command()
@click.argument("paths", nargs=-1, required=True, type=_PATHS)
@click.option(
    "--decisions",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Write them here, as JSON lines; - is standard output.",
)
@click.option("--json", "is_json", is_flag=True, help="One JSON object instead of a table.")
def run(paths: tuple[Path, ...], decisions: TextIO | None, is_json: bool) -> None:
    """Run all cases of files and folders and compare them with what they expect."""
    loaded = load(paths)
    if not (loaded.cases or loaded.broken):
        raise click.ClickException("there are no cases")
    reports = [Report(each.id, "failed", [each.why]) for each in loaded.broken]
    write = partial(_write_line, decisions) if decisions else None
    reports += (run_case(case, time.perf_counter_ns, write) for case in loaded.cases)
    counts = {word: sum(report.result == word for report in reports) for word in _COLOURS}
    if is_json:
        print(json.dumps({"cases": [_as_case(loaded, r) for r in reports], **counts}, indent=2))
    else:
        _print_reports(reports)
        print(", ".join(f"{n} {word}" for word, n in counts.items()))
    sys.exit(1 if counts["failed"] else 0)


@scenario.command()
@click.argument("path", type=_PATHS)
@click.option("--case", "id_", default="", help="Only the case with this id.")
@click.option("--json", "is_json", is_flag=True, help="JSON instead of sentences.")
def show(path: Path, id_: str, is_json: bool) -> None:
    """Tell what is decided: who gets what, who leaves for whom, who waits and why."""
    loaded = load([path])
    told: list[dict[str, Any]] = []
    for case in _chosen(loaded, id_):
        try:
            found = list(stories(case, time.perf_counter_ns))
        except ScenarioError as error:
            raise click.ClickException(f"{loaded.files[case.id]}: {error}") from error
        if is_json:
            told.append({"id": case.id, "cycles": [_as_json(story) for story in found]})
        else:
            _print_stories(case, found)
    if is_json:
        print(json.dumps(told, indent=2))


_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}


def _write_line(out: TextIO, line: dict[str, Any]) -> None:
    out.write(json.dumps(line, separators=(",", ":")) + "\n")


def _as_case(loaded: Loaded, report: Report) -> dict[str, Any]:
    file = loaded.files.get(report.id)
    line = {"id": report.id, "result": report.result, "reasons": report.reasons}
    return line | ({"file": str(file)} if file else {})


def _chosen(loaded: Loaded, id_: str) -> list[Case]:
    if loaded.broken:
        raise click.ClickException(loaded.broken[0].why)
    cases = [case for case in loaded.cases if not id_ or case.id == id_]
    if not cases:
        raise click.ClickException(f"there is no case {id_}" if id_ else "there are no cases")
    return cases


def _print_reports(reports: Iterable[Report]) -> None:
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    for report in reports:
        colour = _COLOURS[report.result]
        console.print(f"[{colour}]{report.result:7}[/{colour}] {escape(report.id)}")
        for reason in report.reasons if report.result == "failed" else ():
            console.print(f"        {escape(reason)}")


def _print_stories(case: Case, found: Iterable[Story]) -> None:
    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(case.id)}[/bold]")
    if case.about:
        console.print(escape(case.about))
    for story in found:
        console.print(f"\n[bold]Cycle {story.cycle}[/bold]")
        table = Table("queue", "", "quota", "fair share", "holds", box=None, pad_edge=False)
        for row in story.shares:
            table.add_row(*(escape(cell) for cell in astuple(row)))
        console.print(table)
        for line in (*story.leaving, *story.placed, *story.waiting):
            console.print(f"- {escape(line)}", soft_wrap=True)
        if not (story.leaving or story.placed or story.waiting):
            console.print("Nothing changes and nobody waits.")
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
