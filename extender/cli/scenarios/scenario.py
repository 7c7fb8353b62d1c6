"""`ballast scenario`: decides on the cluster of a file and checks the expectations."""

from pathlib import Path
from typing import Final

import click

from extender.cli.terminal.commands import Commands

_PATHS: Final = click.Path(exists=True, path_type=Path)


@click.group(cls=Commands)
def scenario() -> None:
    """Decide on clusters in scenario files."""


@scenario.command()
@click.argument("paths", nargs=-1, required=True, type=_PATHS)
@click.option(
    "--decisions",
    "decisions_to",
    type=click.Path(dir_okay=False),
    help="Write the decisions here, as JSON lines; - is standard output.",
)
@click.option("--json", "is_json", is_flag=True, help="One JSON object instead of a table.")
def run(paths: tuple[Path, ...], decisions_to: str | None, is_json: bool) -> None:
    """Run all cases of files and folders and compare them with what they expect."""
    from extender.cli.scenarios.cases import run_cases

    run_cases(paths, decisions_to, is_json)


@scenario.command()
@click.argument("path", type=_PATHS)
@click.option("--case", "id_", default="", help="Only the case with this id.")
@click.option("--json", "is_json", is_flag=True, help="JSON instead of sentences.")
def show(path: Path, id_: str, is_json: bool) -> None:
    """Print what is decided: placements, evictions with their beneficiary, and why work waits."""
    from extender.cli.scenarios.cases import show_cases

    show_cases(path, id_, is_json)
