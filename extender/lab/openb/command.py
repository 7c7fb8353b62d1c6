"""`ballast replay openb`: allocation as pods fill a cluster, under one policy or all.

The options and the table; the replay itself is `extender.lab.openb.replay`.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from extender.cli.terminal.flags import format_flag
from extender.cli.terminal.output import bar, data_option, wide_console
from extender.cli.terminal.show import echo_data
from extender.cli.terminal.span import Span
from extender.lab.openb.data import DataError, load_cluster, load_reference, load_trace
from extender.lab.openb.policies import POLICIES
from extender.lab.openb.replay import TRACES, Run, replay_once
from extender.lab.openb.report import (
    COMPARED_AT,
    Summary,
    as_json,
    overall,
    summarise,
)

_MOST_SEEDS: Final = 1000
#: Seeds of the random numbers, one run each.
SEEDS: Final = Span("seeds", 0, 2**31 - 1, _MOST_SEEDS)
#: Width of the table in characters if the output is no terminal.
_WIDE: Final = 120


@click.command()
@data_option
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
@click.option("--seeds", type=SEEDS, default="42-51", show_default=True)
@format_flag(("table", "json", "yaml"))
def openb(
    folder: Path,
    policies: tuple[str, ...],
    traces: tuple[str, ...],
    seeds: range,
    output: str,
) -> None:
    """Measure GPU allocation as pods of the openb trace (Alibaba, 2023) fill its cluster.

    By the protocol of Weng et al., USENIX ATC 2023: pods never end, a pod that does not fit is
    dropped, and 130 % of the cluster's GPUs are requested in the end.
    """
    chosen = list(POLICIES) if "all" in policies else list(dict.fromkeys(policies))
    try:
        reference = load_reference(folder)
        runs = list(_replay_all(folder, list(dict.fromkeys(traces)) or TRACES, chosen, seeds))
    except DataError as error:
        raise click.ClickException(str(error)) from None
    summaries = summarise(runs, reference)
    if not echo_data(output, as_json(runs, summaries)):
        _show(summaries)


def _replay_all(
    folder: Path, traces: Sequence[str], policies: Sequence[str], seeds: range
) -> Iterator[Run]:
    """All runs, with a progress bar."""
    cluster = load_cluster(folder)
    loaded = [load_trace(folder, name, cluster) for name in traces]
    with bar() as progress:
        task = progress.add_task("", total=len(loaded) * len(policies) * len(seeds))
        for trace in loaded:
            for policy in policies:
                progress.update(task, description=f"{trace.name}, {policy}")
                for seed in seeds:
                    yield replay_once(cluster, trace, POLICIES[policy], seed)
                    progress.advance(task)


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
    wide_console(_WIDE).print(table)


def _cells(summary: Summary) -> Iterable[str]:
    for figure in summary.figures:
        yield f"{figure.mean:.2f}"
        yield "" if figure.sd is None else f"{figure.sd:.2f}"
        star = "*" if summary.reference != summary.policy else ""
        yield "" if figure.reference is None else f"{figure.reference:.2f}{star}"
        yield "" if figure.difference is None else f"{figure.difference:+.2f}"
    yield f"{summary.run_s:.2f}"
