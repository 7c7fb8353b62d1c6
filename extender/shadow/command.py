"""The command `ballast shadow`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from extender.cli.terminal.flags import Number, Where, cluster_flags, examples, format_flag

if TYPE_CHECKING:
    from extender.shadow.answers import ShadowReport
    from extender.shadow.record import Record


@click.command(
    epilog=examples(
        "ballast shadow",
        "ballast shadow --queues queues.yaml --minutes 60 --html report.html",
    )
)
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
    type=Number(min=0, max=43_200),
    default=0.0,
    show_default=True,
    help="How long to watch; 0 is one look. ^C ends it early, and the report is still written.",
)
@click.option(
    "--every",
    "every_s",
    type=Number(min=1, max=3600),
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
    """Report what Ballast would decide on a cluster that another scheduler runs.

    Ballast need not be installed, and nothing is written to the cluster: pods, nodes, disruption
    budgets and priority classes are listed and watched, and each look makes one decision on a copy
    in which Ballast runs all GPU pods. The report says what would start, stop and move, how long
    work waited and would have waited, and what is not known.
    """
    import logging

    import msgspec
    import structlog

    from extender.cli.ask import ask
    from extender.cli.terminal.output import plain
    from extender.cli.terminal.show import echo_data
    from extender.shadow.reading import QueueFileError, Window, read_queues, watch

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        queues = [each for path in files for each in read_queues(path, _text_of(path))]
    except QueueFileError as error:
        raise click.ClickException(plain(str(error))) from None
    if html is not None:
        _write(html, "a", "")
    window = Window(minutes * 60, every_s)
    record = ask(where, lambda client: watch(client, queues, window, _tell))
    report = record.report()
    if not echo_data(output, msgspec.to_builtins(report)):
        print_report(report)
    if html is not None:
        from extender.shadow.page import as_html

        _write(html, "w", as_html(report))
        click.echo(f"The report is in {html}.", err=True)


def _text_of(path: Path) -> str:
    from extender.shadow.reading import QueueFileError

    try:
        if str(path) == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise QueueFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise QueueFileError(f"{path}: not UTF-8") from None


def _write(path: Path, mode: Literal["a", "w"], text: str) -> None:
    """Write to the file; mode `a` without text checks before the looks that this is possible."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{path} could not be written: {error.strerror}") from None


def _tell(record: "Record") -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{record.looks} looks", nl=False, err=True)


def _count(n: int | str, thing: str) -> str:
    return f"{n} {thing}" if str(n) == "1" else f"{n} {thing}s"


def print_report(report: "ShadowReport") -> None:
    """Print the report as tables."""
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
    out.print(
        f"{_count(report.looks, 'look')} at {_count(report.gpus, 'GPU')} of"
        f" {_count(report.nodes, 'node')};"
        f" {_count(report.waited, 'workload')} waited, Ballast would start {report.would_start} of"
        f" them; {report.would_stop} would stop and {report.would_move} move for others"
    )
    if report.looks_with_waiting:
        out.print(
            f"while work waited, {report.idle_while_waiting} GPUs were idle on average; with"
            f" Ballast {report.ballast_idle_while_waiting}"
        )
    n_left_out = report.left_out + report.stops_left_out + report.moves_left_out
    if n_left_out:
        out.print(f"the report is full: {_count(n_left_out, 'line')} of work and stops left out")
    for assumed in report.not_known:
        out.print(f"not known: {safe(assumed.text)} ({assumed.count})")
    click.echo("Each look was one decision on a copy; nothing was changed.", err=True)
