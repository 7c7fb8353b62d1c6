"""The command `ballast shadow`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.cli.terminal.flags import Where, cluster_flags, format_flag

if TYPE_CHECKING:
    from extender.shadow.answers import ShadowReport
    from extender.shadow.record import Record


@click.command()
@click.option(
    "--queues",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File of GpuProjects, GpuDepartments and GpuNodePools, as ballast convert prints; - is"
    " standard input. Default: a project per namespace, all with the same weight.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, max=43_200),
    default=0.0,
    show_default=True,
    help="How long to look; 0 is one look. ^C ends it early, and the report is made all the same.",
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=1, max=3600),
    default=60.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the report to this file, as one page of HTML.",
)
@format_flag(("table", "json", "yaml"))
@cluster_flags
def shadow(
    files: tuple[Path, ...], minutes: float, every_s: float, html: Path | None, output: str,
    where: Where,
) -> None:  # fmt: skip
    """Tell what Ballast would decide on a cluster that another scheduler runs.

    Ballast need not be installed, and nothing is written to the cluster: pods, nodes, disruption
    budgets and priority classes are listed and watched, and each look makes one decision on a copy
    in which Ballast runs all GPU pods. The report says what would start, stop and move, how long
    work waited and would have waited, and what is not known.
    """
    import logging

    import msgspec
    import structlog

    from extender.cli.ask import ask
    from extender.cli.terminal.show import echo_data
    from extender.shadow.reading import QueueFileError, Window, read_queues, watch

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        queues = [each for path in files for each in read_queues(path, _text_of(path))]
    except QueueFileError as error:
        raise click.ClickException(str(error)) from None
    window = Window(minutes * 60, every_s)
    record = ask(where, lambda client: watch(client, queues, window, _tell))
    report = record.report()
    if html is not None:
        from extender.shadow.page import as_html

        html.write_text(as_html(report), encoding="utf-8")
        click.echo(f"The report is in {html}.", err=True)
    if not echo_data(output, msgspec.to_builtins(report)):
        _print(report)


def _text_of(path: Path) -> str:
    return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")


def _tell(record: "Record") -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{record.looks} looks", nl=False, err=True)


def _print(report: "ShadowReport") -> None:
    from extender.cli.terminal.output import wide_console
    from extender.cli.terminal.show import WIDTH, print_table, safe, table_of

    columns = ("PROJECT", "QUOTA", "OWED", "HELD", "BALLAST", "WAITING", "BALLAST WAITING")
    table = table_of(columns)
    for each in report.projects:
        table.add_row(
            safe(each.project), each.quota, each.owed, each.held, each.ballast_held, each.waiting,
            each.ballast_waiting,
        )  # fmt: skip
    if table.row_count:
        print_table(table)
    out = wide_console(WIDTH)
    starts = [each for each in report.work if each.ballast_seconds is not None]
    stops = [each for each in report.stops if each.what == "stops"]
    looks = "1 look" if report.looks == 1 else f"{report.looks} looks"
    out.print(
        f"{looks} at {report.gpus} GPUs of {report.nodes} nodes; {len(report.work)} workloads"
        f" waited, Ballast would start {len(starts)} of them;"
        f" {len(stops)} would stop and {len(report.stops) - len(stops)} move for others"
    )
    if report.looks_with_waiting:
        out.print(
            f"while work waited, {report.idle_while_waiting} GPUs were idle on average; with"
            f" Ballast {report.ballast_idle_while_waiting}"
        )
    for assumed in report.not_known:
        out.print(f"not known: {assumed.count} {safe(assumed.text)}")
    click.echo("Each look was one decision on a copy; nothing was changed.", err=True)
