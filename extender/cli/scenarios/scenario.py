"""`ballast scenario`: decides on the cluster of a file and checks the expectations."""

from pathlib import Path
from typing import Final

import click

from extender.cli.terminal.commands import Commands
from extender.cli.terminal.flags import examples, format_flag

_PATHS: Final = click.Path(exists=True, path_type=Path)


@click.group(cls=Commands)
def scenario() -> None:
    """Decide on clusters in scenario files."""


@scenario.command(
    epilog=examples(
        "ballast scenario run examples/shares.yaml",
    )
)
@click.argument("paths", nargs=-1, required=True, type=_PATHS)
@click.option(
    "--decisions",
    "decisions_to",
    type=click.Path(dir_okay=False),
    help="Write the decisions here, as JSON lines; - is standard output.",
)
@format_flag(("table", "json", "yaml"))
def run(paths: tuple[Path, ...], decisions_to: str | None, output: str) -> None:
    """Run all cases of files and folders and compare them with what they expect."""
    from extender.cli.scenarios.cases import run_cases

    run_cases(paths, decisions_to, output)


@scenario.command(
    epilog=examples(
        "ballast scenario show examples/shares.yaml",
    )
)
@click.argument("path", type=_PATHS)
@click.option("--case", "id_", default="", help="Only the case with this id.")
@format_flag(("text", "json", "yaml"))
def show(path: Path, id_: str, output: str) -> None:
    """Print what is decided: placements, evictions with their beneficiary, and why work waits."""
    from extender.cli.scenarios.cases import show_cases

    show_cases(path, id_, output)
