"""`ballast report usage`: the GPU-hours of a month from GpuUsages."""

from pathlib import Path
from typing import Any

import click

from extender.cli.terminal.commands import Commands
from extender.cli.terminal.flags import cluster_flags, examples


@click.group(cls=Commands)
def report() -> None:
    """Report usage."""


@report.command(
    epilog=examples(
        "kubectl ballast report usage --month 2026-10 --by project,user",
        "kubectl ballast report usage --month 2026-10 --prices prices.yaml -o csv",
    )
)
@click.option("--month", default="", help="In UTC, such as 2026-10. Default: this month.")
@click.option(
    "--by",
    default="project",
    show_default=True,
    help="Group by these, comma separated: project, user, pool, model, day.",
)
@click.option(
    "--prices",
    "prices_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of prices.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "csv", "json", "focus"]),
    default="table",
    show_default=True,
    help="focus: CSV with the columns of the FinOps foundation's FOCUS 1.0, by day.",
)
@cluster_flags
def usage(**given: Any) -> None:
    """Print the GPU-hours of a month: in quota, above it, and lost to evictions.

    Standard error shows how much of their current budgets projects have used. The sum over projects
    is compared with what the node pools held; exit code 1 if they differ.
    """
    from extender.cli.past.reported import Asked, print_usage

    print_usage(Asked(**given))
