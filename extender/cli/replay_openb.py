"""`ballast replay`: published traces through our own decisions, beside the published results."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from extender.cli.replay_philly import philly
from extender.replay.openb import TRACES, Run, replay_once
from extender.replay.openb_data import DataError, load_cluster, load_reference, load_trace
from extender.replay.openb_policies import POLICIES
from extender.replay.openb_report import (
    COMPARED_AT,
    Summary,
    as_chart,
    as_json,
    overall,
    summarise,
)

_MOST_SEEDS: Final = 1000
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def replay() -> None:
    """Replay published traces, and compare with published results."""


class _Seeds(click.ParamType[range]):
    """`42` or `42-51`."""

    name = "seeds"

    def convert(
        self, value: str | range, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        if isinstance(value, range):
            return value
        first, dash, last = value.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True) and len(value) < 20):
            self.fail(f"{value!r} is neither a seed (42) nor a range of seeds (42-51)", param, ctx)
        seeds = range(int(first), int(last if dash else first) + 1)
        if not 0 < len(seeds) <= _MOST_SEEDS:
            self.fail(
                f"{value!r} are {len(seeds)} seeds; 1 to {_MOST_SEEDS} are possible, lowest first",
                param,
                ctx,
            )
        return seeds


@replay.command()
@click.option("--data", "folder", required=True, type=_FOLDER, help="Folder of the openb trace.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([*POLICIES, "all"], case_sensitive=False),
    default=["all"],
    show_default=True,
    help="May be given several times.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    help="A pod list, as `default` or `cpu250`; several times. Default: the 17 with references.",
)
@click.option("--seeds", type=_Seeds(), default="42-51", show_default=True)
@click.option(
    "--json", "json_to", type=click.Path(), help="Write all curves here; - is standard output."
)
@click.option("--picture", type=click.Path(path_type=Path), help="Write a chart (SVG) here.")
def openb(
    folder: Path,
    policies: tuple[str, ...],
    traces: tuple[str, ...],
    seeds: range,
    json_to: str | None,
    picture: Path | None,
) -> None:
    """GPU allocation as pods of the openb trace (Alibaba, 2023) fill its cluster.

    By the protocol of Weng et al., USENIX ATC 2023: nothing ever leaves, what does not fit is
    dropped, and 130 % of the cluster's GPUs are asked for in the end.
    """
    for name in (picture, json_to):
        # Said before the work, not after it; standard output's "-" has the folder ".".
        if name and not (file := Path(name)).parent.is_dir():
            raise click.ClickException(f"{file}: there is no folder {file.parent}")
    chosen = list(POLICIES) if "all" in policies else list(dict.fromkeys(policies))
    try:
        reference = load_reference(folder)
        runs = list(_replay_all(folder, list(dict.fromkeys(traces)) or TRACES, chosen, seeds))
    except DataError as error:
        raise click.ClickException(str(error)) from None
    summaries = summarise(runs, reference)
    try:
        if picture:
            picture.write_text(as_chart(runs), encoding="utf-8")
        if json_to:
            text = json.dumps(as_json(runs, summaries), indent=1)
            with click.open_file(json_to, "w", encoding="utf-8") as out:
                out.write(text + "\n")
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    if json_to != "-":
        _show(summaries)


def _replay_all(
    folder: Path, traces: Sequence[str], policies: Sequence[str], seeds: range
) -> Iterator[Run]:
    """All runs, with a bar that shows how far they are."""
    cluster = load_cluster(folder)
    loaded = [load_trace(folder, name, cluster) for name in traces]
    with _progress() as progress:
        task = progress.add_task("", total=len(loaded) * len(policies) * len(seeds))
        for trace in loaded:
            for policy in policies:
                progress.update(task, description=f"{trace.name}, {policy}")
                for seed in seeds:
                    yield replay_once(cluster, trace, POLICIES[policy], seed)
                    progress.advance(task)


def _progress() -> Progress:
    """A bar on standard error; nothing where that is no terminal."""
    return Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def _show(summaries: Sequence[Summary]) -> None:
    table = Table(caption="allocated GPUs, % of the cluster; * beside the published FGD")
    for name in ("trace", "policy"):
        table.add_column(name, no_wrap=True)
    for at in COMPARED_AT:
        for name in (f"at {at} %", "sd", "reference", "diff."):
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("s/run", justify="right", no_wrap=True)
    for rows in (summaries, overall(summaries)):
        trace = ""
        for each in rows:
            if each.trace != trace:
                table.add_section()
            table.add_row(each.trace if each.trace != trace else "", each.policy, *_cells(each))
            trace = each.trace
    # A table that is cut is no table: where it is not shown on a terminal it gets all its width.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(table)


def _cells(summary: Summary) -> Iterable[str]:
    for figure in summary.figures:
        yield f"{figure.mean:.2f}"
        yield "" if figure.sd is None else f"{figure.sd:.2f}"
        star = "*" if summary.reference != summary.policy else ""
        yield "" if figure.reference is None else f"{figure.reference:.2f}{star}"
        yield "" if figure.difference is None else f"{figure.difference:+.2f}"
    yield f"{summary.run_s:.2f}"


replay.add_command(philly)
